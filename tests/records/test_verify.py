"""The check of records: every kind of tampering is noticed, and what may change unnoticed is listed."""

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from runner.accounting import sound_epsilon
from runner.accounting.accountants import ANSWERS
from runner.cli.records import verify as main
from runner.config import REPOSITORY
from runner.files import SEAL, sealed
from runner.records import verify as verifying
from runner.records.disk import digest_of, read_record, results_folder, text_of
from runner.records.identity import identify_recorded
from runner.runs.execute import execute
from tests.conftest import quietly

Record = dict[str, Any]
Place = tuple[str | int, ...]

PLAIN = "006bf744f38e"  # 20 epochs
SCREENED = "035dc2296f64"  # 20 epochs, 25 of 800 updates kept only because of ten rejections before them
BUDGETED = "306443dcfd4c"  # screened by the images reported on, until 1,076 updates are kept
EVERY = [PLAIN, SCREENED, BUDGETED]


@cache
def _committed(run_id: str) -> Record:
    return read_record(REPOSITORY / "results" / "runs" / f"{run_id}.json")


def committed(run_id: str) -> Record:
    return copy.deepcopy(_committed(run_id))


@pytest.fixture(autouse=True)
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the answers of accountants: not the user's own."""
    path = tmp_path / "answers" / "epsilons.json"
    monkeypatch.setattr(verifying, "_answers_path", lambda: path)
    return path


def ended(record: Record) -> Record:
    """The record with the final metrics of its history."""
    history, final = record["history"], record["final"]
    final |= {name: column[-1] for name, column in history.items()}
    best = max(range(len(history["epoch"])), key=history["test_accuracy"].__getitem__)
    final |= {"best_test_accuracy": history["test_accuracy"][best], "best_epoch": best + 1}
    return record


def written(record: Record, folder: Path) -> Path:
    """Write a record with the right digest and file name."""
    record["digest"] = digest_of(record)
    path = folder / f"{record['run_id']}.json"
    path.write_text(text_of(record))
    return path


def shortened(epochs: int) -> Record:
    """The record of the same run for fewer epochs, so that an accountant is asked once for each."""
    record = committed(PLAIN)
    record["config"]["epochs"] = epochs
    cut(record, epochs)
    record["run_id"], record["setting_id"] = identify_recorded(record["config"])
    return ended(record)


def noticed(record: Record, folder: Path) -> list[str]:
    """Return the faults of a record with the right digest and file name."""
    return verifying.check_file(written(record, folder)).faults


def counted(record: Record, name: str, changed: Callable[[int], int]) -> None:
    record["history"][name] = [changed(value) for value in record["history"][name]]


def cut(record: Record, epochs: int) -> None:
    for column in record["history"].values():
        del column[epochs:]


def kept_as_taken(record: Record) -> None:
    """Set the steps to the accepted ones, with the sound epsilon of that number."""
    history, setting = record["history"], verifying._text(record["config"])
    history["steps"] = list(history["accepted"])
    history["epsilon_sound"] = [verifying._epsilon_spent(setting, steps) for steps in history["steps"]]


def half_kept(record: Record) -> None:
    """Halve the accepted updates, with the epsilon that the paper counts for that number."""
    history, setting = record["history"], verifying._text(record["config"])
    history["accepted"] = [count // 2 for count in history["accepted"]]
    history["epsilon"] = [verifying._epsilon(setting, count) for count in history["accepted"]]


# Changes of several values at once, additions, and changes of what is only partly determined. The test below has each
# change of one value.
TAMPERED = {
    "test_accuracy after epoch 3": (PLAIN, lambda r: r["history"]["test_accuracy"].__setitem__(2, 90.001)),
    "the last epoch is 10, and should be 20": (PLAIN, lambda r: cut(r, 10)),
    "max_tries is 260, and should be missing": (PLAIN, lambda r: r["final"].update(max_tries=260)),
    "epsilon_spent is 1.0, and should be 2.0405": (
        PLAIN,
        lambda r: (r.update(status="diverged"), r["final"].update(max_tries=260, epsilon_spent=1.0)),
    ),
    "its history has the columns accepted": (PLAIN, lambda r: r["history"].update(accepted=r["history"]["steps"])),
    "steps after epoch 1 ": (SCREENED, kept_as_taken),
    "tries after epoch 1 ": (SCREENED, lambda r: (kept_as_taken(r), counted(r, "tries", lambda count: count - 1))),
    "acceptance_rate after epoch 1 ": (SCREENED, half_kept),
    "forced after epoch": (SCREENED, lambda r: counted(r, "forced", lambda count: 2 * count)),
    "forced after epoch 20 ": (SCREENED, lambda r: r["history"]["forced"].__setitem__(-1, 0)),
    "unscreened_accuracy, and should have": (SCREENED, lambda r: (r["history"].pop("tries"), r["final"].pop("tries"))),
    "screening_share is nan, and should be between 0 and 1": (
        SCREENED,
        lambda r: r["provenance"].pop("screening_share"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("run_id", "change", "sentence"), [(*change, sentence) for sentence, change in TAMPERED.items()]
)
def test_tampering_is_noticed(run_id: str, change: Callable[[Record], Any], sentence: str, tmp_path: Path) -> None:
    record = committed(run_id)
    change(record)
    faults = noticed(ended(record), tmp_path)
    assert any(sentence in fault for fault in faults), faults


TAKEN = object()
ABSENT = (None, [], {}, TAKEN)


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the places of the values of a record. A list gives its first, one in the middle, and its last."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, (*place, name))
    elif isinstance(value, list) and value:
        for index in sorted({0, len(value) // 2, len(value) - 1}):
            yield from leaves(value[index], (*place, index))
    else:
        yield place


def others(value: Any) -> list[Any]:
    """Values of the same type, near and far."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value - 1, value + 1]
    if isinstance(value, float):
        return [float(f"{value * factor:.5g}") for factor in (0.5, 0.9998)] + [value + 0.01]
    if isinstance(value, str):
        return [f"x{value}", ""]
    return [1, ["x"], {"x": 1}, None]


def edits(record: Record) -> Iterator[tuple[str, Record]]:
    """Every record with one value changed or taken away, in the history's last row also in the final metrics.

    Null and empty values are the same as none at all.
    """
    for place in leaves({name: record[name] for name in record if name not in ("digest", "run_id", "setting_id")}):
        old = _at(record, place)
        for value in (TAKEN, *others(old)):
            edited = copy.deepcopy(record)
            if value == old or (old in ABSENT and value in ABSENT) or (value is TAKEN and isinstance(place[-1], int)):
                continue
            holders = [(_at(edited, place[:-1]), place[-1])]
            if place[0] == "history" and place[-1] == len(record["history"]["epoch"]) - 1:
                holders.append((edited["final"], place[1]))
            for holder, name in holders:
                if value is TAKEN:
                    del holder[name]
                else:
                    holder[name] = value
            yield ".".join(name for name in place if isinstance(name, str)), edited


def _at(value: Any, place: Place) -> Any:
    for name in place:
        value = value[name]
    return value


# What no config determines, nor any other column.
MEASURED = {"history.train_loss", "history.test_loss", "history.test_accuracy"}
SCREENING = {"history.forced", "provenance.screening_share"}  # of `forced` only the bounds are known
SAID = {"config.draw"} | {
    f"provenance.{name}"
    for name in (
        *("git_revision", "python", "device", "threads", "engine", "step", "physical_batch"),
        *("wall_seconds", "examples_per_second", "peak_memory_mib", "lockstep"),
    )
}
TIMED = {"provenance.processor_seconds", "provenance.yardstick_seconds"}
UNNOTICED = {
    PLAIN: SAID | MEASURED,
    SCREENED: SAID | TIMED | SCREENING | {"history.train_loss", "history.test_loss"}
    | {"history.screening_loss", "history.screening_accuracy"},
    BUDGETED: SAID | TIMED | SCREENING | {"history.train_loss"},
}  # fmt: skip


@pytest.mark.parametrize("run_id", EVERY)
def test_only_undetermined_fields_change_unnoticed(run_id: str, tmp_path: Path) -> None:
    unnoticed = {name for name, edited in edits(committed(run_id)) if not noticed(edited, tmp_path)}
    fields = {name for name in unnoticed if not name.startswith(("provenance.versions.", "provenance.kernels."))}
    assert fields == UNNOTICED[run_id]


def test_a_record_that_cannot_be_read_or_prepared_hides_no_other(tmp_path: Path, capsys: Any) -> None:
    """Each is a line: of text that reaches no terminal as it is, and without a traceback."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for run_id in EVERY:
        written(ended(committed(run_id)), folder)
    record = committed(PLAIN)
    record["config"]["loss"]["_target_"] = "\x1b[31mnowhere.\nSoftmax"
    record["run_id"], record["setting_id"] = identify_recorded(record["config"])
    written(record, folder)
    (folder / "000000000000.json").write_text("[" * 100_000)
    (folder / "000000000001.json").mkdir()
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    names = sorted(["000000000000", record["run_id"]])  # a folder is no file
    assert sorted(line.partition(".json: ")[0] for line in lines[:-2]) == names
    assert lines[-2].startswith("3 records have noise that was drawn in float32, so their ε is not")
    assert "For 3 of them δ is computed to be at least 0.5523 at any ε, and at least 0.8818 for 2." in lines[-2]
    assert lines[-1] == "5 records, 2 of which contradict their config"
    assert "\x1b" not in "".join(lines)
    for name in names:
        (folder / f"{name}.json").unlink()
    assert main([str(tmp_path)]) == 0


def diverged(epochs: int) -> Record:
    record = committed(PLAIN)
    cut(record, epochs)
    record["status"] = "diverged"
    return ended(record)


def test_a_diverged_run_is_not_finite_or_states_its_guarantee(tmp_path: Path) -> None:
    """Its weights may have been the first that were not finite. Records from before the guarantee do not have it."""
    record = diverged(10)
    guarantee = {"max_tries": 260, "epsilon_sound": 2.0405, "epsilon_spent": record["final"]["epsilon_sound"]}
    assert {fault.split(" is ")[0] for fault in noticed(diverged(10), tmp_path)} == guarantee.keys()
    record["final"] |= guarantee
    assert noticed(record, tmp_path) == []
    record["final"]["max_tries"] = 130
    assert noticed(record, tmp_path) == ["max_tries is 130, and should be 260"]


def forget() -> None:
    ANSWERS.clear()
    for function in (sound_epsilon, verifying._run_of_setting, verifying._epsilon, verifying._epsilon_spent):
        function.cache_clear()


def test_accountant_answers_are_reused_unless_fresh_is_given(tmp_path: Path, answers: Path) -> None:
    (tmp_path / "runs").mkdir()
    written(shortened(2), tmp_path / "runs")
    forget()
    assert main([str(tmp_path)]) == 0
    content = answers.read_bytes()
    rows = json.loads(content[:-SEAL])
    assert len(rows) == 2
    answers.write_bytes(sealed(json.dumps([[*question, 1.1 * epsilon] for *question, epsilon in rows]).encode()))
    for arguments, code in (([], 1), (["--fresh"], 0), ([], 0)):
        forget()
        assert main([str(tmp_path), *arguments]) == code
    assert answers.read_bytes() == content


def test_an_error_is_a_line_with_its_class_and_an_interrupt_none(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(verifying, "verify", lambda record: 1 / 0)
    assert noticed(committed(PLAIN), tmp_path) == ["ZeroDivisionError: division by zero"]
    monkeypatch.setattr(verifying, "verify", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        noticed(committed(PLAIN), tmp_path)


@pytest.mark.parametrize(
    "overrides",
    [
        ("experiment=tempered_sigmoid/mnist_tanh", "evaluation=holdout", "diagnostics=[per_class_accuracy]"),
        ("experiment=tempered_sigmoid/mnist_tanh", "activation=relu", "optimizer.lr=1e38", "epochs=2"),
        ("experiment=noise_screening/mnist_screened", "epochs=2", "screening.images=test", "max_epsilon=0.3"),
    ],
)
def test_what_a_run_writes_today_is_as_it_should_be(smoke: Any, tmp_path: Path, overrides: tuple[str, ...]) -> None:
    config = smoke(*overrides)
    outcome = execute(config, quietly)
    assert outcome == ("diverged" if "optimizer.lr=1e38" in overrides else "finished")
    assert main([str(results_folder(config))]) == 0

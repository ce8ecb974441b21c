"""The check of records: every kind of tampering is noticed, and what may change unnoticed is listed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runner.config import REPOSITORY
from runner.runs import verify as verifying
from runner.runs.records import digest_of, read_record, text_of
from runner.runs.verify import verify

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


def ended(record: Record) -> Record:
    """The record with the final metrics of its history."""
    history, final = record["history"], record["final"]
    final |= {name: column[-1] for name, column in history.items()}
    best = max(range(len(history["epoch"])), key=history["test_accuracy"].__getitem__)
    final |= {"best_test_accuracy": history["test_accuracy"][best], "best_epoch": best + 1}
    return record


def noticed(record: Record, folder: Path) -> list[str]:
    """What is said of a record with the right digest, in a file of its name."""
    record["digest"] = digest_of(record)
    path = folder / f"{record['run_id']}.json"
    path.write_text(text_of(record))
    return verifying._found(path)


@pytest.mark.parametrize("run_id", EVERY)
def test_a_record_as_it_was_written_is_as_it_should_be(run_id: str, tmp_path: Path) -> None:
    assert verify(committed(run_id)) == []
    assert noticed(ended(committed(run_id)), tmp_path) == []


def scaled(name: str, factor: float, places: slice = slice(None)) -> Callable[[Record], None]:
    def change(record: Record) -> None:
        column = record["history"][name]
        column[places] = [float(f"{value * factor:.5g}") for value in column[places]]

    return change


def counted(name: str, of: Callable[[int], int]) -> Callable[[Record], None]:
    def change(record: Record) -> None:
        record["history"][name] = [of(value) for value in record["history"][name]]

    return change


def cut(record: Record, epochs: int) -> None:
    for column in record["history"].values():
        del column[epochs:]


def kept_as_taken(record: Record) -> None:
    """As many steps as were kept, with the sound epsilon of so many."""
    history, setting = record["history"], verifying._text(record["config"])
    history["steps"] = list(history["accepted"])
    history["epsilon_sound"] = [verifying._epsilon_sound(setting, steps) for steps in history["steps"]]


def half_kept(record: Record) -> None:
    """Half of the updates kept, with the epsilon that the paper counts for so many."""
    history, setting = record["history"], verifying._text(record["config"])
    history["accepted"] = [count // 2 for count in history["accepted"]]
    history["epsilon"] = [verifying._epsilon(setting, kept) for kept in history["accepted"]]


def both(*changes: Callable[[Record], None]) -> Callable[[Record], None]:
    return lambda record: [change(record) for change in changes] and None


TAMPERED = {
    "epsilon_sound after epoch 8": (PLAIN, scaled("epsilon_sound", 0.99, slice(7, 8))),
    "epsilon after epoch 8": (PLAIN, scaled("epsilon", 0.99, slice(7, 8))),
    "epsilon_sound after epoch 1": (PLAIN, scaled("epsilon_sound", 1 - 1.9e-4)),
    "epsilon after epoch 1": (PLAIN, scaled("epsilon", 1 + 1.9e-4)),
    "steps after epoch 20": (PLAIN, lambda r: r["history"]["steps"].__setitem__(-1, 261)),
    "test_accuracy after epoch 3": (PLAIN, lambda r: r["history"]["test_accuracy"].__setitem__(2, 90.001)),
    "the last epoch is 10, and should be 20": (PLAIN, lambda r: cut(r, 10)),
    "max_tries is missing, and should be 260": (PLAIN, lambda r: (cut(r, 10), r.update(status="diverged"))),
    "epsilon_sound_at_max_tries is missing": (PLAIN, lambda r: r.update(status="diverged")),
    "max_tries is 260, and should be missing": (
        PLAIN,
        lambda r: r["final"].update(max_tries=260, epsilon_sound_at_max_tries=2.0405),
    ),
    "epsilon_sound_at_max_tries is 1.0, and should be 2.0405": (
        PLAIN,
        lambda r: (r.update(status="diverged"), r["final"].update(max_tries=260, epsilon_sound_at_max_tries=1.0)),
    ),
    "neighbouring_relation is missing, and should be add-or-remove-one": (
        PLAIN,
        lambda r: r["final"].pop("neighbouring_relation"),
    ),
    "its history has the columns accepted": (PLAIN, lambda r: r["history"].update(accepted=r["history"]["steps"])),
    "config.secure: Extra inputs": (PLAIN, lambda r: r["config"].update(secure=None)),
    "config.runtime: Extra inputs": (PLAIN, lambda r: r["config"].update(runtime={"engine": "vmap"})),
    "it goes on after a loss that is not": (PLAIN, lambda r: r["history"]["test_loss"].__setitem__(3, "nan")),
    "provenance.wall_seconds: Input should be": (PLAIN, lambda r: r["provenance"].update(wall_seconds=-1.0)),
    "epsilon_rests_on is ['me'], and should be []": (PLAIN, lambda r: r["provenance"].update(epsilon_rests_on=["me"])),
    "noise_multiplier is 2.4901": (PLAIN, lambda r: r["final"].update(noise_multiplier=2.4901)),
    "sampling_rate is 0.072728": (PLAIN, lambda r: r["final"].update(sampling_rate=0.072728)),
    "steps after epoch 1 ": (SCREENED, kept_as_taken),
    "tries after epoch 1 ": (SCREENED, both(kept_as_taken, counted("tries", lambda count: count - 1))),
    "acceptance_rate after epoch 1 ": (SCREENED, half_kept),
    "acceptance_rate after epoch 2 ": (SCREENED, scaled("acceptance_rate", 0.5, slice(1, 2))),
    "accepted after epoch 20 is 1160": (SCREENED, lambda r: r["history"]["accepted"].__setitem__(-1, 1160)),
    "accepted after epoch 19": (BUDGETED, lambda r: r["history"]["accepted"].__setitem__(-1, 1077)),
    "forced after epoch": (SCREENED, counted("forced", lambda count: 2 * count)),
    "forced after epoch 20 ": (SCREENED, lambda r: r["history"]["forced"].__setitem__(-1, 0)),
    "unscreened_accuracy after epoch 4": (SCREENED, scaled("unscreened_accuracy", 0.99, slice(3, 4))),
    "unscreened_accuracy after epoch 1": (BUDGETED, lambda r: r["history"]["unscreened_accuracy"].__setitem__(0, 90.0)),
    "screening_loss after epoch 2": (BUDGETED, scaled("screening_loss", 0.9, slice(1, 2))),
    "screening_accuracy after epoch 2": (BUDGETED, scaled("screening_accuracy", 0.99, slice(1, 2))),
    "max_tries is missing, and should be 1160": (
        SCREENED,
        lambda r: [r["final"].pop(name) for name in ("max_tries", "epsilon_sound_at_max_tries")],
    ),
    "max_tries is 1159": (SCREENED, lambda r: r["final"].update(max_tries=1159)),
    "unscreened_accuracy, and should have": (SCREENED, lambda r: (r["history"].pop("tries"), r["final"].pop("tries"))),
    "screening_share is nan, and should be between 0 and 1": (
        SCREENED,
        lambda r: r["provenance"].pop("screening_share"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("run_id", "change", "sentence"), [(*of, said) for said, of in TAMPERED.items()])
def test_tampering_is_noticed(run_id: str, change: Callable[[Record], Any], sentence: str, tmp_path: Path) -> None:
    record = committed(run_id)
    change(record)
    found = noticed(ended(record), tmp_path)
    assert any(sentence in each for each in found), found


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """Where the values of a record are; of a list the first, one in the middle, and the last."""
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
        return [value - 1, value + 1, 2 * value, 0]
    if isinstance(value, float):
        return [float(f"{value * factor:.5g}") for factor in (0.5, 0.99, 0.9998, 1.0002, 1.01)] + [value + 0.01]
    if isinstance(value, str):
        return [f"x{value}", f"{value}x", ""]
    return [1, "x", ["x"], {"x": 1}, None]


def edits(record: Record) -> Iterator[tuple[str, Record]]:
    """Every record with one value changed or taken away, in the history's last row also in the final metrics."""
    for place in leaves({name: record[name] for name in record if name not in ("digest", "run_id", "setting_id")}):
        for change in ("set", "taken"):
            for value in others(_at(record, place)) if change == "set" else [None]:
                edited = copy.deepcopy(record)
                holder = _at(edited, place[:-1])
                if change == "taken":
                    if not isinstance(holder, dict):
                        continue
                    del holder[place[-1]]
                elif value == holder[place[-1]]:
                    continue
                else:
                    holder[place[-1]] = value
                last = place[0] == "history" and place[-1] == len(edited["history"]["epoch"]) - 1
                if last:
                    edited["final"][place[1]] = value
                yield ".".join(str(name) for name in place if isinstance(name, str)), edited


def _at(value: Any, place: Place) -> Any:
    for name in place:
        value = value[name]
    return value


MEASURED = {"history.train_loss", "history.test_loss", "history.test_accuracy"}
BELIEVED = {"config.draw"}  # it shows in no other field
ABSENT = {f"config.{name}" for name in ("normalization", "mechanism", "schedule", "constraint", "confusion_epochs")}
SAID = {
    f"provenance.{name}"
    for name in (
        *("git_revision", "python", "device", "threads", "engine", "step", "lockstep", "physical_batch"),
        *("wall_seconds", "examples_per_second", "peak_memory_mib", "processor_seconds", "yardstick_seconds"),
    )
}
UNNOTICED = {
    PLAIN: MEASURED | BELIEVED | SAID | ABSENT,
    SCREENED: MEASURED | BELIEVED | SAID | ABSENT,
    BUDGETED: MEASURED | BELIEVED | SAID | ABSENT,
}


@pytest.mark.parametrize("run_id", EVERY)
def test_a_field_that_may_change_unnoticed_is_one_that_nothing_determines(run_id: str, tmp_path: Path) -> None:
    unnoticed = {name for name, edited in edits(committed(run_id)) if not noticed(edited, tmp_path)}
    named = {name for name in unnoticed if not name.startswith(("provenance.versions.", "provenance.kernels."))}
    assert named == UNNOTICED[run_id]

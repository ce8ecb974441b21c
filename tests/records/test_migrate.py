"""Records under new ids: each under exactly one, no number changed, none lost however often it is interrupted."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from runner.cli.commands import carry_out
from runner.cli.records import migrate as main
from runner.records import migrate as module
from runner.records.disk import check_record, digest_of, read_record, text_of
from runner.records.migrate import migrate
from tests.tracked import tracked

COMMITTED = tracked("results/runs/*.json")


def older(record: dict[str, Any], run_id: str) -> dict[str, Any]:
    """The record as code with other ids wrote it."""
    return signed(record | {"run_id": run_id, "setting_id": "of old"})


def signed(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"digest": digest_of(record)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five committed records: three under old ids, two as they are."""
    (tmp_path / "runs").mkdir()
    for place, path in enumerate(COMMITTED[:5]):
        record = json.loads(path.read_text())
        record["final"]["of_many_digits"] = 0.1234567890123456  # older code did not round
        record = older(record, f"old{place}") if place < 3 else signed(record)
        (tmp_path / "runs" / f"{record['run_id']}.json").write_text(text_of(record))
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in (folder / "runs").iterdir()}


def test_committed_records_are_up_to_date() -> None:
    assert len(COMMITTED) >= 1715
    for path in COMMITTED:
        record = json.loads(path.read_text())
        check_record(path, record)  # its ids are those of its config, and of its file's name
        assert text_of(record) == path.read_text(), "a migration rewrites them byte by byte but for ids"


def test_migrated_records_get_config_ids_and_keep_all_numbers(folder: Path, capsys) -> None:
    before = contents(folder)
    assert main([str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    ids = dict(line.split() for line in lines)
    assert ids == {f"old{place}": COMMITTED[place].stem for place in range(3)}
    after = contents(folder)
    assert sorted(after) == [path.stem for path in COMMITTED[:5]]
    for old, text in before.items():
        new = json.loads(after[ids.get(old, old)])
        assert new == signed(json.loads(text) | {"run_id": new["run_id"], "setting_id": new["setting_id"]})
        lines = after[new["run_id"]].split("\n")
        changed = {line for line in lines if line.rstrip(",") not in {old.rstrip(",") for old in text.split("\n")}}
        assert all(re.match(r'"(run_id|setting_id|digest)": ', line) for line in changed)
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == ""
    assert contents(folder) == after


def test_moved_classes_and_modules_get_their_new_names(folder: Path) -> None:
    moved = {
        "runner.data.datasets": "runner.data.images",
        "runner.clipping": "runner.clipping.bounds",  # into itself: must not move on when the command is repeated
        "runner.clipping.Backprop": "runner.elsewhere.Backprop",
    }
    texts = contents(folder)
    targets = set(re.findall(r'"_target_": "([^"]*)"', "".join(texts.values())))
    assert {"runner.data.datasets.ImageDataset", "runner.clipping.Flat"} <= targets
    ids = migrate(folder, moved)
    after = contents(folder)
    now = {re.sub(r"^runner\.data\.datasets\b", "runner.data.images", target) for target in targets}
    now = {"runner.elsewhere.Backprop" if target == "runner.clipping.Backprop" else target for target in now}
    now = {re.sub(r"^runner\.clipping\b", "runner.clipping.bounds", target) for target in now}
    assert set(re.findall(r'"_target_": "([^"]*)"', "".join(after.values()))) == now
    assert sorted(ids.values()) == sorted(after) == [path.stem for path in COMMITTED[:5]], "the names are the same"
    migrate(folder, moved)
    assert contents(folder) == after


@pytest.mark.parametrize("step", range(6))
def test_repeating_an_interrupted_migration_completes_it(folder: Path, monkeypatch, step: int) -> None:
    """Interrupted before and after each of the three records is written under its new name."""
    steps = iter(range(100))
    write = module.write_whole

    def interrupted(path: Path, text: str, *, replace: bool) -> bool:
        if next(steps) == step:
            raise KeyboardInterrupt
        written = write(path, text, replace=replace)
        if next(steps) == step:
            raise KeyboardInterrupt
        return written

    monkeypatch.setattr(module, "write_whole", interrupted)
    with pytest.raises(KeyboardInterrupt):
        migrate(folder, {})
    monkeypatch.setattr(module, "write_whole", write)
    migrate(folder, {})
    assert sorted(contents(folder)) == [path.stem for path in COMMITTED[:5]]
    for path in (folder / "runs").iterdir():
        assert read_record(path)["final"]["of_many_digits"] == 0.1234567890123456


def changed(folder: Path, **changes: Any) -> None:
    """Change the record of old0."""
    path = folder / "runs" / "old0.json"
    path.write_text(text_of(json.loads(path.read_text()) | changes))


def second(folder: Path) -> None:
    """Add a record that gets the id of old1, too."""
    record = json.loads((folder / "runs" / "old1.json").read_text())
    record["provenance"]["wall_seconds"] += 1
    (folder / "runs" / "older.json").write_text(text_of(older(record, "older")))


@pytest.mark.parametrize(
    ("change", "targets", "parts"),
    [
        (second, [], ["old1.json", "older.json", COMMITTED[1].name]),
        (lambda folder: (folder / "runs" / "old0.json").write_text("{"), [], ["old0.json cannot be migrated"]),
        (lambda folder: changed(folder, run_id="old9"), [], ["old0.json cannot be migrated"]),
        (lambda folder: changed(folder, history={}), [], ["old0.json cannot be migrated"]),
        (lambda folder: [path.unlink() for path in (folder / "runs").iterdir()], [], ["has no records"]),
        (None, ["=runner.datasets"], ["old.module.Class=new.module.Class"]),
        (None, ["a.b=c.d", "c=e"], ["moves c.d on to e.d"]),
    ],
)
def test_a_refused_migration_is_one_sentence_and_changes_nothing(
    folder: Path, capsys, change: Any, targets: list[str], parts: list[str]
) -> None:
    if change is not None:
        change(folder)
    before = contents(folder)
    assert carry_out("migrate", [str(folder), *(f"--target={target}" for target in targets)]) == 2
    assert contents(folder) == before
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    assert all(part in line for part in parts)

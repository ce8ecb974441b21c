"""Records: damaged and edited ones are found wherever they are read, set aside, and computed again."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.cli.errors import explained
from runner.config import RESULTS, YOURS, register
from runner.records import disk
from runner.records.disk import (
    UnreadableRecordError,
    digest_of,
    is_recorded,
    read_record,
    recorded,
    set_aside,
    text_of,
)
from runner.records.identity import resolved
from runner.records.jobs import Job, composed

Jobs = Callable[..., list[Job]]


@pytest.fixture
def path(fabricate, jobs: Jobs) -> Path:
    """A record of two epochs."""
    return fabricate(jobs("fig_3", "mnist_tanh")[0], [97.0, 98.0], epsilon=[2.0, 2.5], sound=[1.0, 2.0])


def edited(path: Path, change: Callable[[dict[str, Any]], object], *, signed: bool = True) -> Path:
    record = json.loads(path.read_text())
    change(record)
    if signed:
        record["digest"] = digest_of(record)
    path.write_text(text_of(record))
    return path


def test_a_record_carries_the_digest_of_the_rest(path: Path) -> None:
    record = read_record(path)
    assert record["digest"] == digest_of(record)
    with pytest.raises(ValueError, match=f"{path.name} is not a whole record: its digest"):
        read_record(edited(path, lambda record: _both(record, "epsilon_sound", 1.5), signed=False))


def _both(record: dict[str, Any], name: str, value: Any) -> None:
    record["history"][name][-1] = record["final"][name] = value


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: _both(r, "test_accuracy", 150.0), "history.test_accuracy.1: Input should be less than or equal to"),
        (lambda r: _both(r, "epsilon_sound", 0.5), "its epsilon_sound falls from one epoch to the next"),
        (lambda r: _both(r, "test_loss", "nan"), "its last loss is not a finite number"),
        (lambda r: _both(r, "epsilon_sound", None), "its epsilon_sound is known after some epochs and not after"),
        (lambda r: r["provenance"].update(epsilon_unsound="Own."), "null without provenance.epsilon_unsound, or the"),
        (lambda r: r["history"]["steps"].pop(), "its history is not of equal lengths"),
        (lambda r: [values.pop() for values in r["history"].values()], "are not the last of its history"),
        (lambda r: r["history"].update(epoch=[2, 3]), "its epochs are not 1, 2, 3"),
        (lambda r: r.update(status="running"), "status: Input should be 'finished', 'diverged' or 'stopped'"),
        (lambda r: r["history"]["test_loss"].__setitem__(0, "nan"), "it goes on after a loss that is not"),
        (lambda r: r.pop("provenance"), "provenance: Field required"),
        (lambda r: r["config"].update(delta=0.7), "config.delta: it has to be greater than 0 and less than 0.5"),
        (lambda r: r["config"].update(seed=9), "its ids are not those of its config"),
        (lambda r: r["config"].update(epochs=1), "it has more epochs than its config"),
        (lambda r: r["config"]["loss"].update(x=json.loads("[" * 900 + "]" * 900)), "it is nested too deeply"),
    ],
)
def test_what_cannot_be_is_refused_whatever_its_digest(path: Path, change: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"{path.name} (is not a whole record|was written by a newer)") as refused:
        read_record(edited(path, change))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["config"].update(mixture={"_target_": "runner.augment.Flip"}),
        lambda r: r.update(status="paused"),
        lambda r: r["diagnostics"].update(norms=["large"]),
        lambda r: r.update({"\x1b[31m\nred": 1}),  # it reaches no terminal as it is
    ],
)
def test_a_file_from_a_newer_version_is_not_overwritten(path: Path, jobs: Jobs, change: Any) -> None:
    """Its digest is right, so nothing is damaged; its run is refused, and commands that read many can name it."""
    config = jobs("fig_3", "mnist_tanh")[0].config
    config.runtime.results_root = str(path.parent.parent)
    content = edited(path, change).read_text()
    with pytest.raises(UnreadableRecordError, match=f"{path} was written by a newer version") as refused:
        recorded(config)
    assert explained(refused.value)[1] == 2
    assert str(refused.value).isprintable()
    with pytest.raises(UnreadableRecordError):
        set_aside(path)
    assert not is_recorded(path.parent.parent, path.stem)
    assert [file.read_text() for file in path.parent.iterdir()] == [content]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"seed": ', f'"seed": {"9" * 400}'),
        lambda text: text.replace('"run_id"', '"\\ud800": 1, "run_id"'),
        lambda text: "[" * 100_000,
        lambda text: text.encode("utf-16"),
        lambda text: '{"run_id": 1}',
    ],
)
def test_whatever_is_no_record_is_a_value_error(path: Path, change: Any) -> None:
    content = change(path.read_text())
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=path.name) as refused:
        read_record(path)
    assert str(refused.value).isprintable()


def test_non_files_are_set_aside_but_unreadable_paths_stay(path: Path) -> None:
    path.unlink()
    path.mkdir()
    assert set_aside(path) == path.with_suffix(".broken-1")
    os.mkfifo(path)
    with pytest.raises(ValueError, match="it is not a file"):  # and is not waited for
        read_record(path)
    path.unlink()
    path.symlink_to("/nowhere/x.json")  # a record written through it would be lost
    assert set_aside(path) == path.with_suffix(".broken-2")
    path.symlink_to(path)
    with pytest.raises(UnreadableRecordError, match="cannot be read"):
        set_aside(path)
    assert path.is_symlink()


def test_records_of_the_repository_stand_behind_those_of_a_user(tmp_path: Path, monkeypatch) -> None:
    """The user's own record comes first; another folder has only its own; scales do not mix."""
    monkeypatch.setattr(disk, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(disk, "YOURS", tmp_path / "results" / "yours")
    committed, yours = (disk.record_path(folder, "0" * 12) for folder in (disk.RESULTS, disk.YOURS))
    assert disk.find_record(disk.YOURS, "0" * 12) == yours, "where it would be"
    committed.parent.mkdir(parents=True)
    committed.touch()
    assert disk.find_record(disk.YOURS, "0" * 12) == committed
    assert disk.find_record(disk.YOURS / "smoke", "0" * 12) != committed
    assert disk.find_record(tmp_path / "results" / "fresh", "0" * 12).parent.parent.name == "fresh"
    yours.parent.mkdir(parents=True)
    yours.touch()
    assert disk.find_record(disk.YOURS, "0" * 12) == yours


@pytest.mark.parametrize(
    ("overrides", "folder"),
    [
        ((), YOURS),
        (("scale=smoke",), RESULTS / "smoke"),
        ((f"runtime.results_root={RESULTS}",), RESULTS),
    ],
)
def test_a_users_run_leaves_tracked_folders_alone(overrides: tuple[str, ...], folder: Path) -> None:
    register()
    config = resolved(composed(overrides))
    disk.use_own_folder(config, overrides)
    assert disk.results_folder(config) == folder

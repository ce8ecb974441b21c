"""Runs on file systems that lack something, fill up or belong to others: a run that was trained is recorded."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from runner.config import ConfigError
from runner.data import files
from runner.records.files import record_path, recorded, results_folder, set_aside
from runner.records.identity import identify
from runner.runs import checkpoints
from runner.runs.checkpoints import checkpoint_path
from runner.runs.execute import execute
from tests.conftest import quietly

ONE = ("scale.epochs=1", "diagnostics=[]")


def path_of(config: DictConfig) -> Path:
    return record_path(results_folder(config), identify(config)[0])


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder."""
    folder = tmp_path / "temporary files"
    folder.mkdir()
    monkeypatch.setattr(files.tempfile, "tempdir", str(folder))
    return folder


def full_for(*paths: Path) -> Any:
    """In the place of `write_whole`: a disk that has no room for these files."""
    write = files.write_whole

    def written(path: Path, content: Any, **options: Any) -> bool:
        if path in paths:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, content, **options)

    return written


@pytest.mark.parametrize(
    "folder", ["", "smoke", "smoke/runs", "smoke/failed", ".locks", ".checkpoints", "smoke/models"]
)
def test_a_place_that_cannot_be_written_is_found_before_training(smoke, folder: str) -> None:
    config = smoke(*ONE, "save_model=yes")
    place = Path(config.runtime.results_root) / folder
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    before = sorted(place.parent.iterdir())
    sentence = r"cannot be written to .*: runtime\.results_root=FOLDER|cannot be read: Not a directory"
    with pytest.raises(ConfigError, match=sentence):
        execute(config, quietly, on_start=lambda run: pytest.fail("it began"))
    assert sorted(place.parent.iterdir()) == before


def test_a_checkpoint_that_cannot_be_written_ends_no_run(smoke, monkeypatch, capsys) -> None:
    config = smoke("scale.epochs=2", "diagnostics=[]", "runtime.checkpoint_above=0")
    monkeypatch.setattr(checkpoints, "write_whole", full_for(checkpoint_path(config)))
    assert execute(config, quietly) == "finished"
    assert capsys.readouterr().err.count("No space left on device") == 1


@pytest.mark.parametrize("lost", ["record", "weights"])
def test_what_cannot_be_written_after_training_is_saved(smoke, monkeypatch, elsewhere, lost: str) -> None:
    """The weights are no reason not to write the record."""
    config = smoke(*ONE, "save_model=yes")
    weights = results_folder(config) / "models" / f"{identify(config)[0]}.pt"
    path = path_of(config) if lost == "record" else weights
    monkeypatch.setattr(files, "write_whole", full_for(path))
    with pytest.raises(OSError, match="No space left on device") as error:
        execute(config, quietly)
    assert recorded(config) == (lost == "weights")
    subprocess.run(str(error.value).partition("in its place: ")[2], shell=True, check=True)
    assert recorded(config)
    assert weights.exists()
    assert not list(elsewhere.iterdir())


def test_a_file_created_at_the_record_path_in_a_run_is_set_aside(smoke) -> None:
    """As an empty file, which a machine that lost its power leaves."""
    config = smoke(*ONE)

    def show_epoch(row: dict[str, float], run: Any) -> None:
        path_of(config).parent.mkdir(parents=True, exist_ok=True)
        path_of(config).touch()

    assert execute(config, show_epoch) == "finished"
    assert recorded(config)
    assert set_aside(path_of(config)) is None
    assert path_of(config).with_suffix(".broken-1").read_text() == ""

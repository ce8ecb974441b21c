"""What tests keep of Hydra's work is what Hydra composes now, or is not taken."""

from __future__ import annotations

import inspect
import shutil
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from runner.config import Config
from tests import composing

OVERRIDES = ("experiment=losing_less/mnist_ours", "scale=smoke")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where things are kept, empty."""
    monkeypatch.setattr(composing, "_folders", [])
    composing.keep_in(tmp_path / "kept")
    return tmp_path / "kept"


def again(*overrides: str) -> object:
    """What a process finds that has composed nothing yet."""
    return OmegaConf.to_container(composing._composed.__wrapped__(overrides), resolve=False)


def test_what_is_kept_is_taken_unless_it_is_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = again(*OVERRIDES)
    (path,) = folder.glob("*/*")
    for damaged in (None, b"", path.read_bytes()[:-1]):
        if damaged is not None:
            path.write_bytes(damaged)
            assert again(*OVERRIDES) == expected
        with monkeypatch.context() as patch:
            patch.setattr(composing, "compose", lambda *_, **__: pytest.fail("composed again"))
            assert again(*OVERRIDES) == expected


def test_other_files_are_composed_anew(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited config: nothing that is kept of the one before is taken, nor is it kept any longer."""
    before = again(*OVERRIDES)
    conf = tmp_path / "conf"
    shutil.copytree(composing.CONF, conf)
    experiment = conf / "experiment" / "losing_less" / "mnist_ours.yaml"
    experiment.write_text(f"{experiment.read_text()}\nseed: 7\n")
    monkeypatch.setattr(composing, "CONF", conf)
    assert again(*OVERRIDES) == before, "edited meanwhile, it is known from the next session on"
    (old,) = folder.glob("*")
    composing.keep_in(folder)
    assert not old.exists()
    assert again(*OVERRIDES) == {**before, "seed": 7}


def test_the_schema_is_among_what_is_read() -> None:
    """And all that it is made of: an edit of any of it is one of what Hydra composes."""
    classes = {each for each in vars(sys.modules[Config.__module__]).values() if inspect.isclass(each)}
    ours = {Path(inspect.getfile(kind)) for kind in classes if kind.__module__.partition(".")[0] == "runner"}
    assert Path(inspect.getfile(Config)) in ours
    assert ours <= set(composing.files_read())


def test_what_names_a_folder_is_not_kept(folder: Path, tmp_path: Path) -> None:
    again(f"runtime.results_root={tmp_path}")
    assert not list(folder.glob("*/*"))


def test_a_config_is_a_copy() -> None:
    composing.composed(OVERRIDES).seed = 5
    assert composing.composed(OVERRIDES).seed == 0

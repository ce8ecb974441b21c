"""Launchers by name: their options are typed where they are given, and none of them is a part of a run."""

from __future__ import annotations

import shutil

import pytest

from runner.cli import reproduce
from runner.launch.choice import launcher_of
from tests.tracked import tracked_options

SMOKE = ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-4"]


def test_every_file_of_the_group_makes_a_launcher(monkeypatch) -> None:
    for module in ("slurm", "ray"):
        monkeypatch.setattr(f"runner.launch.{module}.find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert (names := tracked_options("launcher")) == ["local", "ray", "slurm"]
    assert [type(launcher_of(name)).__name__.lower() for name in names] == names
    slurm = launcher_of("slurm", ["account=12", "gpus=2", "more={reservation: week}", "setup=[module load x]"])
    assert (slurm.account, slurm.gpus, slurm.more, slurm.setup) == ("12", 2, {"reservation": "week"}, ["module load x"])


@pytest.mark.parametrize(
    ("name", "installed", "said"),
    [
        ("slurm", False, "pip install -e '.[slurm]'"),
        ("ray", False, "pip install -e '.[ray]'"),
        ("slurm", True, "sbatch and srun, which are not on this machine"),
    ],
)
def test_what_a_launcher_needs_is_said(name: str, installed: bool, said: str, refusal, monkeypatch) -> None:
    monkeypatch.setattr(f"runner.launch.{name}.find_spec", lambda module: object() if installed else None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert said in refusal(reproduce.main, [*SMOKE, "--launcher", name])

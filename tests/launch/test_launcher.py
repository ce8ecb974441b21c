"""Launchers by name: their options are typed where they are given, and none of them is a part of a run."""

from __future__ import annotations

import shutil

import pytest

from runner.cli import reproduce
from runner.config import options_of
from runner.launch import launcher_of

SMOKE = ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-4"]


def test_every_file_of_the_group_makes_a_launcher(monkeypatch) -> None:
    for module in ("slurm", "ray"):
        monkeypatch.setattr(f"runner.launch.{module}.find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert options_of("launcher") == ["local", "ray", "slurm"]
    launchers = [launcher_of(name) for name in options_of("launcher")]
    assert [type(launcher).__name__.lower() for launcher in launchers] == options_of("launcher")
    slurm = launcher_of("slurm", ["gpus=2", "sbatch.account=12", "sbatch.mem=8G", "setup=[module load x]"])
    assert (slurm.gpus, slurm.sbatch, slurm.setup) == (2, {"account": 12, "mem": "8G"}, ["module load x"])
    assert launcher_of("ray", ["gpus=0.25"]).gpus == 0.25


@pytest.mark.parametrize(
    ("name", "installed", "sentence"),
    [
        ("slurm", False, "pip install -e '.[slurm]'"),
        ("ray", False, "pip install -e '.[ray]'"),
        ("slurm", True, "sbatch and srun, which are not on this machine"),
    ],
)
def test_a_missing_package_or_program_is_named(name: str, installed: bool, sentence: str, refusal, monkeypatch) -> None:
    monkeypatch.setattr(f"runner.launch.{name}.find_spec", lambda module: object() if installed else None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert sentence in refusal(reproduce.main, [*SMOKE, "--launcher", name])

"""Launchers by name: their options are typed where they are given, and none of them is a part of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runner.cli import reproduce
from runner.launch.choice import known, launcher_of
from tests.conftest import Refusal

SMOKE = ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-4"]


def test_every_file_of_the_group_makes_a_launcher(monkeypatch) -> None:
    for module in ("slurm", "ray"):
        monkeypatch.setattr(f"runner.launch.{module}.find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert known() == ["local", "ray", "slurm"]
    made = [launcher_of(name) for name in known()]
    assert [type(each).__name__.lower() for each in made] == known()
    slurm = launcher_of("slurm", ["partition=gpu", "gpus=2", "more={reservation: week}", "setup=[module load x]"])
    assert (slurm.partition, slurm.gpus, dict(slurm.more), list(slurm.setup)) == (
        "gpu", 2, {"reservation": "week"}, ["module load x"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--launcher", "pbs"], "no launcher 'pbs': choose from local, ray, slurm"),
        (["launcher.minutes=3"], "launcher.minutes=3 sets no option of the launcher local"),
        (["--launcher", "slurm", "launcher.hours=3"], "partition"),
        (["--launcher", "slurm", "launcher._target_=os.system"], "sets no option"),
        (["--launcher", "slurm", "launcher.minutes=0"], "minutes=0 has to be above 0"),
        (["--launcher", "slurm", "launcher.retries=-1"], "retries=-1 has to be 0 or more"),
        (["--launcher", "ray", "launcher.cpus=0"], "cpus=0 has to be above 0"),
        (["--wait=no"], "WAIT=no is for a cluster"),
        (["--wait=maybe"], "Expected WAIT=yes or no, got 'maybe'"),
        (["scale=smoke"], "Write --scale smoke"),
        (["--items", "fig-33"], "fig-33"),
        (["--jobs", "0"], "JOBS"),
        (["--jobs", "two"], "two"),
        (["--budget", "soon"], "BUDGET"),
        (["--scale", "large"], "Unknown scale 'large'"),
        (["optimizer.lr=1"], "optimizer.lr=1"),
        (["runtime.threads=0"], "runtime.threads=0"),
        (["--time"], "--time goes with --plan"),
    ],
)
def test_wrong_requests_are_one_sentence_and_exit_code_2(
    arguments: list[str], said: str, refusal: Refusal, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(reproduce, "estimated", lambda *_: {})
    monkeypatch.setattr(reproduce, "_check", lambda pending: None)
    monkeypatch.setattr(reproduce, "check_data", lambda pending: None)
    monkeypatch.setattr(reproduce, "_ordered", lambda jobs, pending, estimates: pending)
    assert said in refusal(reproduce.main, [*SMOKE, f"runtime.results_root={tmp_path}", *arguments])


def test_an_unknown_paper_and_none_are_refused(refusal) -> None:
    assert "tempered" in refusal(reproduce.main, ["papered-sigmoid"])
    assert "paper" in refusal(reproduce.main, [])


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

"""Launchers by name: their options are typed where they are given, and none of them is a part of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runner.cli import reproduce, search
from runner.config import ConfigError, options_of
from runner.launch import choice
from runner.launch.choice import launcher_of, split
from runner.launch.local import Local
from tests.conftest import Refusal

SMOKE = ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-4"]


def test_every_file_of_the_group_makes_a_launcher(monkeypatch) -> None:
    for module in ("slurm", "ray"):
        monkeypatch.setattr(f"runner.launch.{module}.find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert options_of("launcher") == ["local", "ray", "slurm"]
    made = [launcher_of(name) for name in options_of("launcher")]
    assert [type(each).__name__.lower() for each in made] == options_of("launcher")
    slurm = launcher_of("slurm", ["partition=gpu", "gpus=2", "more={reservation: week}", "setup=[module load x]"])
    assert (slurm.partition, slurm.gpus, dict(slurm.more), list(slurm.setup)) == (
        "gpu", 2, {"reservation": "week"}, ["module load x"],
    )  # fmt: skip


def test_overrides_of_the_launcher_are_told_from_those_of_runs() -> None:
    ours, theirs = split(["launcher.minutes=30", "runtime.device=cpu"])
    assert (ours, theirs) == (["minutes=30"], ["runtime.device=cpu"])


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


@pytest.mark.parametrize("main", [reproduce.main, search.main])
@pytest.mark.parametrize(("name", "package"), [("slurm", "submitit"), ("ray", "ray")])
def test_what_is_not_installed_is_said_with_the_command_that_installs_it(
    main, name: str, package: str, refusal: Refusal, monkeypatch
) -> None:
    monkeypatch.setattr(f"runner.launch.{name}.find_spec", lambda module: None if module == package else object())
    request = SMOKE if main is reproduce.main else ["lipschitz/fig_5a_search", "--scale", "smoke"]
    assert f"pip install -e '.[{name}]'" in refusal(main, [*request, "--launcher", name])


def test_slurm_without_slurm_is_said(refusal: Refusal, monkeypatch) -> None:
    monkeypatch.setattr("runner.launch.slurm.find_spec", lambda module: object())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "sbatch and srun, which are not on this machine" in refusal(reproduce.main, [*SMOKE, "--launcher", "slurm"])


def test_no_option_of_a_launcher_is_a_field_of_a_run() -> None:
    from runner.config import FIELDS

    assert "launcher" not in FIELDS
    with pytest.raises(ConfigError):
        choice.launcher_of("local", ["partition=gpu"])
    assert launcher_of("local") == Local()

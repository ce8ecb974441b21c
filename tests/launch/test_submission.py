"""Arguments that the real submitit gives to sbatch, which a script replaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.config import ConfigError
from runner.launch import notes, queue, run_jobs
from runner.launch.choice import launcher_of
from runner.launch.processes import Work

submitit = pytest.importorskip("submitit", reason="no submitit: pip install -e '.[slurm]'")


@pytest.fixture
def sbatch(tmp_path: Path, commands, monkeypatch):
    """`sbatch("exit 1")`: what stands in its place; the file that it was given is kept."""
    monkeypatch.setattr(queue, "states", lambda: {})

    def make(script: str) -> Path:
        commands(srun="", sbatch=f"cp $1 {tmp_path}/given\n{script}")
        return tmp_path / "given"

    return make


def test_an_array_is_handed_over_with_what_was_asked_for(sbatch, smoke_jobs, line, tmp_path: Path) -> None:
    given = sbatch("echo Submitted batch job 12")
    chosen = ["partition=gpu", "gpus=2", "cpus=4", "memory=8", "time_limit=30", "setup=[module load cuda]"]
    jobs = smoke_jobs(3)
    work = Work(jobs, at_once=2, estimates={job.run_id: 5000.0 for job in jobs})
    tally = run_jobs(launcher_of("slurm", ["wait=false", *chosen]), work, line)
    assert tally.under_way == jobs
    lines = given.read_text().splitlines()
    for option in (
        "array=0-2%2", "partition=gpu", "gpus-per-node=2", "cpus-per-task=4", "mem=8GB", "time=30", "requeue",
        "signal=USR2@90", "job-name=dp-repro-bench",
    ):  # fmt: skip
        assert f"#SBATCH --{option}" in lines
    assert "module load cuda" in lines
    folder = notes.folder_of(tmp_path)
    assert [note.job for note in notes.notes(folder)] == ["12_0", "12_1", "12_2"]
    assert (folder / "logs").stat().st_mode & 0o077 == 0, "a task is code, and a place has a key"


def test_a_task_is_what_submitit_hands_over_again(sbatch, smoke_jobs, line, tmp_path: Path) -> None:
    sbatch("echo Submitted batch job 12")
    (job,) = smoke_jobs(1)
    run_jobs(launcher_of("slurm", ["wait=false"]), Work([job]), line)
    (pickled,) = notes.folder_of(tmp_path).glob("logs/*_submitted.pkl")
    submission = submitit.core.utils.DelayedSubmission.load(pickled)
    again = submission._checkpoint_function()
    assert [each.run_id for each in again.function.work.jobs] == [job.run_id]
    assert again.function.name == submission.function.name


def test_what_slurm_refuses_is_said(sbatch, smoke_jobs, line) -> None:
    sbatch("echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    with pytest.raises(ConfigError, match=r"Slurm refuses: .*invalid partition"):
        run_jobs(launcher_of("slurm", ["wait=false", "partition=gpu"]), Work(smoke_jobs(1)), line)

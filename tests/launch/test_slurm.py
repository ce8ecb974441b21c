"""Runs on clusters: Slurm by the real submitit, with scripts for its programs, and Ray, with a list of fates."""

import pickle
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runner.config import ConfigError
from runner.launch import Work, launcher_of, processes, ray, run_jobs, slurm
from runner.launch.processes import Tally
from runner.launch.slurm import pack, queued_runs
from runner.records.disk import recorded
from tests.small import run_here

submitit = pytest.importorskip("submitit", reason="no submitit: pip install -e '.[slurm]'")


class Cluster:
    """Slurm with scripts for its programs, where one attempt at the queue passes whenever a command waits."""

    def __init__(self, root: Path, commands: Any) -> None:
        self.root, self.folder, self.commands = root, root / ".launch" / "slurm", commands
        self.deeds: list[Any] = []
        commands(srun="", sbatch=f"cp $1 {root}/batch\necho Submitted batch job 12")
        self.queue()

    def queue(self, **states: str) -> None:
        """`queue(_0="RUNNING")`: the first task of the array runs, and no other task is there."""
        lines = "\n".join(f"echo '12{place}|{state}'" for place, state in states.items())
        self.commands(squeue=lines)

    def submission(self, task: str) -> Any:
        return submitit.SlurmJob(folder=self.folder, job_id=task).submission()

    def compute(self, task: str) -> None:
        """Compute a task here, as a node would."""
        self.end(task, self.submission(task).function())

    def end(self, task: str, result: Any, outcome: str = "success") -> None:
        """Leave the result of a task, as submitit does."""
        (self.folder / f"{task}_0_result.pkl").write_bytes(pickle.dumps((outcome, result)))

    def sleep(self, seconds: float) -> None:
        """Do the next deed instead of waiting."""
        if self.deeds:
            self.deeds.pop(0)()


@pytest.fixture
def cluster(tmp_path: Path, commands, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    fake = Cluster(tmp_path, commands)
    monkeypatch.setattr(slurm, "time", SimpleNamespace(sleep=fake.sleep, monotonic=time.monotonic))
    monkeypatch.setattr(slurm, "_GONE", 0.0)
    monkeypatch.setattr(processes, "run_processes", run_here)
    return fake


def test_an_array_has_the_options_that_were_asked_for(cluster: Cluster, smoke_jobs, line, tmp_path: Path) -> None:
    """And each of its tasks is one that submitit can queue again."""
    options = ["sbatch.partition=gpu", "gpus=2", "cpus=4", "sbatch.mem=8GB", "time_limit=30", "setup=[module load x]"]
    jobs = smoke_jobs(3)
    work = Work(jobs, at_once=2, estimates={job.run_id: 5000.0 for job in jobs})
    tally = run_jobs(launcher_of("slurm", ["wait=false", *options]), work, line)
    assert tally.under_way == jobs
    lines = (tmp_path / "batch").read_text().splitlines()
    for option in (
        "array=0-2%2", "partition=gpu", "gpus-per-node=2", "cpus-per-task=4", "mem=8GB", "time=30", "requeue",
        "signal=USR2@90", "job-name=dp-repro-bench",
    ):  # fmt: skip
        assert f"#SBATCH --{option}" in lines
    assert "module load x" in lines
    assert cluster.folder.stat().st_mode & 0o077 == 0, "a task is code"
    again = cluster.submission("12_1")._checkpoint_function().function
    assert [job.run_id for job in again.work.jobs] == [jobs[1].run_id]


def test_gpus_or_cpus_set_the_runs_at_a_time(cluster: Cluster, smoke_jobs, line) -> None:
    jobs = smoke_jobs(1)
    for options, threads, at_once in (
        (["cpus=8"], 4, 2),
        (["cpus=8"], None, 1),
        (["cpus=8", "gpus=2"], 1, 2),
        (["at_once=4"], 1, 4),
    ):
        run_jobs(launcher_of("slurm", ["wait=false", *options]), Work(jobs, threads=threads), line)
        assert cluster.submission("12").function.work.at_once == at_once


def test_a_refusal_by_slurm_is_reported(cluster: Cluster, commands, smoke_jobs, line) -> None:
    commands(sbatch="echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    with pytest.raises(ConfigError, match=r"Slurm refuses: .*invalid partition"):
        run_jobs(launcher_of("slurm"), Work(smoke_jobs(1)), line)


def test_the_real_task_counts_failures_and_late_runs(cluster: Cluster, smoke_jobs, line) -> None:
    jobs = smoke_jobs(3, r0="tests.failing.RaisesInTraining")
    seconds = {job.run_id: 1.0 for job in jobs[:2]} | {jobs[2].run_id: 1000.0}
    work = Work(jobs, estimates=seconds, deadline=time.time() + 500)
    cluster.queue(_0="RUNNING", _1="PENDING")
    cluster.deeds = [partial(cluster.compute, "12_0"), partial(cluster.compute, "12_1")]
    tally = run_jobs(launcher_of("slurm", ["minutes=0.1"]), work, line)
    assert [(job.run_id, reason) for job, reason in tally.failed] == [(jobs[0].run_id, "RuntimeError: made to fail")]
    assert [job.run_id for job in tally.recorded] == [jobs[1].run_id]
    assert [job.run_id for job in tally.not_started] == [jobs[2].run_id]


def test_a_task_without_a_result_fails_what_it_did_not_record(cluster, smoke_jobs, fabricate, line) -> None:
    """While Slurm does not answer, or has the task in its queue, it is waited for."""
    first, second = jobs = smoke_jobs(2)

    def gone() -> None:
        fabricate(first, [50.0])
        cluster.queue()

    queued = partial(cluster.queue, **{"": "PENDING"})
    cluster.deeds = [queued, partial(cluster.commands, squeue="exit 1"), gone]
    tally = run_jobs(launcher_of("slurm"), Work(jobs, estimates={job.run_id: 1.0 for job in jobs}), line)
    assert not cluster.deeds, "it was not waited for"
    assert [job.run_id for job in tally.recorded] == [first.run_id]
    ((job, reason),) = tally.failed
    assert job is second
    assert reason == f"Slurm job 12 left the queue without a result; see {cluster.folder}/12_0_log.err"


def test_an_error_of_a_task_is_the_reason(cluster: Cluster, smoke_jobs, line) -> None:
    cluster.deeds = [lambda: cluster.end("12", "ModuleNotFoundError: no torch", "error")]
    tally = run_jobs(launcher_of("slurm"), Work(smoke_jobs(1)), line)
    assert "no torch" in tally.failed[0][1]


def test_runs_in_the_queue_are_followed_and_not_submitted_twice(cluster, smoke_jobs, fabricate, line, output) -> None:
    jobs = smoke_jobs(2)
    run_jobs(launcher_of("slurm", ["wait=false"]), Work(jobs[:1]), line)
    cluster.queue(**{"": "PENDING"})
    assert queued_runs(cluster.root) == {jobs[0].run_id: "12"}
    assert "--array" in (cluster.root / "asked").read_text(), "else the tasks of an array that wait are one line"
    (cluster.root / "batch").unlink()
    cluster.deeds = [lambda: cluster.end("12", Tally(recorded=jobs[:1]))]
    tally = run_jobs(launcher_of("slurm"), Work(jobs[:1]), line)
    assert "0 runs in 0 tasks handed to Slurm, 1 were under way" in output.getvalue()
    assert not (cluster.root / "batch").exists()
    assert tally.recorded == jobs[:1]
    cluster.queue()
    assert queued_runs(cluster.root) == {}


def test_earlier_tasks_keep_runs_back_while_slurm_is_silent(cluster, commands, smoke_jobs, line) -> None:
    commands(squeue="exit 1")
    assert queued_runs(cluster.root) == {}, "nothing was submitted, so Slurm is not asked"
    cluster.folder.mkdir(parents=True)
    with pytest.raises(ConfigError, match="Slurm does not answer"):
        run_jobs(launcher_of("slurm"), Work(smoke_jobs(1)), line)


@pytest.mark.parametrize(
    ("minutes", "room", "unknown", "tasks"),
    [
        ([10] * 14, 60, 240, ["0-5", "6-11", "12-13"]),
        ([10, 120, 10, 10], 60, 240, ["0-0", "1-1", "2-3"]),
        ([None] * 3, 240, 240, ["0-0", "1-1", "2-2"]),
        ([None] * 3, 60, 30, ["0-1", "2-2"]),
    ],
    ids=["six of ten minutes", "a long one", "all unknown", "unknown, but short"],
)
def test_tasks_by_hand(minutes: list[int | None], room: int, unknown: int, tasks: list[str]) -> None:
    runs = [SimpleNamespace(run_id=str(number)) for number in range(len(minutes))]
    seconds = {run.run_id: 60.0 * known for run, known in zip(runs, minutes, strict=True) if known is not None}
    packed = pack(runs, seconds, 60 * room, 60 * unknown)
    assert [f"{task[0].run_id}-{task[-1].run_id}" for task in packed] == tasks


class FakeRay(ModuleType):
    """Carries a task out when it is handed over, and loses those in `lost`, a list of their numbers."""

    def __init__(self, lost: list[int]) -> None:
        super().__init__("ray")
        self.lost, self.options_given, self.most = lost, dict[str, Any](), 0
        self.results: list[Any] = []

    def init(self, address: str, **options: Any) -> None:
        if address != "auto":
            raise ConnectionError("nobody answers")

    def remote(self, function: Any) -> Any:
        class Remote:
            @staticmethod
            def options(**options: Any) -> Any:
                self.options_given = options
                return Remote

            @staticmethod
            def remote(work: Work) -> int:
                self.results.append(None if len(self.results) in self.lost else function(work))
                return len(self.results) - 1

        return Remote

    def wait(self, references: list[Any]) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(references))
        return references[:1], references[1:]

    def get(self, reference: int) -> Any:
        if self.results[reference] is None:
            raise RuntimeError("Task failed because\nits node is dead")
        return self.results[reference]


@pytest.fixture
def fake(monkeypatch) -> FakeRay:
    module = FakeRay([1])
    monkeypatch.setattr(processes, "run_processes", run_here)
    monkeypatch.setattr(ray, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "ray", module)
    return module


def test_each_run_is_a_task_and_a_lost_one_fails(fake: FakeRay, smoke_jobs, line) -> None:
    jobs = smoke_jobs(4, r3="tests.failing.RaisesInTraining")
    tally = run_jobs(launcher_of("ray", ["gpus=0.5", "retries=2"]), Work(jobs, at_once=2), line)
    assert {job.run_id for job in tally.recorded} == {jobs[0].run_id, jobs[2].run_id}
    assert all(recorded(job.config) for job in tally.recorded)
    assert [(job.run_id, reason) for job, reason in tally.failed] == [
        (jobs[1].run_id, "RuntimeError: Task failed because its node is dead"),
        (jobs[3].run_id, "RuntimeError: made to fail"),
    ]
    assert fake.most == 2
    assert (fake.options_given["num_gpus"], fake.options_given["max_retries"]) == (0.5, 2)


def test_an_address_without_a_cluster_gives_one_sentence(fake: FakeRay, smoke_jobs, line) -> None:
    with pytest.raises(ConfigError, match="There is no Ray cluster at far:1"):
        run_jobs(launcher_of("ray", ["address=far:1"]), Work(smoke_jobs(1)), line)

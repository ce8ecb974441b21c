"""Tasks on Slurm are submitted, followed, lost and submitted again. A list of states stands in for Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.config import ConfigError
from runner.launch import notes, queue, run_jobs, slurm
from runner.launch.choice import launcher_of
from runner.launch.interface import runs_on_node
from runner.launch.notes import Heartbeat, Note
from runner.launch.processes import Work
from runner.launch.slurm import Slurm
from runner.launch.task import Task
from runner.records.files import recorded
from tests.conftest import Fabricate


class Cluster:
    """Takes tasks, and does with each what `deeds` says, in the order in which they come."""

    def __init__(self, folder: Path, fabricate: Fabricate) -> None:
        self.record = lambda job: fabricate(job, [50.0])
        self.folder, self.deeds = folder, list[Callable[[Task], str]]()
        self.states: dict[str, str] | None = {}
        self.tasks: list[Task] = []
        self.cancelled: list[str] = []

    def submitted(self, launcher: Slurm, folder: Path, tasks: Sequence[Task], at_once: int | None) -> list[str]:
        jobs = []
        for task in tasks:
            self.tasks.append(task)
            jobs.append(f"7_{len(self.tasks)}")
            state = self.deeds.pop(0)(task) if self.deeds else self.finishes(task)
            if state:
                self.states[jobs[-1]] = state
        return jobs

    def finishes(self, task: Task) -> str:
        """Records all, and leaves the queue."""
        with Heartbeat(task.folder, task.name) as heartbeat:
            for job in task.work.jobs:
                if not recorded(job.config):
                    self.record(job)
                heartbeat.ended(job, "finished", "")
        return ""

    def is_killed(self, task: Task) -> str:
        """Records its first run, and is gone from the queue in its second."""
        with Heartbeat(task.folder, task.name) as heartbeat:
            self.record(task.work.jobs[0])
            heartbeat.began(task.work.jobs[1:])
            heartbeat.epoch(task.work.jobs[1].run_id, "epoch 1/3")
        path = task.folder / f"{task.name}.beat"
        path.write_text(path.read_text().replace('"over": true', '"over": false'))
        return ""

    def hangs(self, task: Task) -> str:
        """Is called running, and says nothing."""
        return "RUNNING"

    def waits(self, task: Task) -> str:
        return "PENDING"


@pytest.fixture
def cluster(tmp_path: Path, fabricate, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    fake = Cluster(notes.folder_of(tmp_path), fabricate)
    monkeypatch.setattr(slurm, "find_spec", lambda name: object())
    monkeypatch.setattr(slurm.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(Slurm, "_submitted", lambda self, *arguments: fake.submitted(self, *arguments))
    monkeypatch.setattr(queue, "states", lambda: fake.states)
    monkeypatch.setattr(queue, "how_it_ended", lambda job: "NODE_FAIL")
    monkeypatch.setattr(queue, "cancel", lambda jobs: fake.cancelled.extend(jobs))
    monkeypatch.setattr(slurm, "_GONE", 0.0)
    return fake


def small(**options: Any) -> Any:
    chosen = {"minutes": 1, "poll": 0.01, "silence": 0.05, **options}
    return launcher_of("slurm", [f"{name}={value}" for name, value in chosen.items()])


def test_cheap_runs_share_a_task_and_recorded_ones_are_in_none(cluster: Cluster, smoke_jobs, line, said) -> None:
    jobs = smoke_jobs(4)
    cluster.record(jobs[1])
    tally = run_jobs(small(), Work(jobs, estimates={job.run_id: 25.0 for job in jobs}), line)
    assert [[job.run_id for job in task.work.jobs] for task in cluster.tasks] == [
        [jobs[0].run_id, jobs[2].run_id],
        [jobs[3].run_id],
    ]
    assert {job.run_id for job in tally.recorded} == {job.run_id for job in jobs}
    assert "3 runs in 2 tasks handed to Slurm" in said.getvalue()
    assert notes.notes(cluster.folder) == [], "tasks that are over are forgotten"


def test_what_a_killed_task_did_not_record_is_handed_over_again(cluster: Cluster, smoke_jobs, line, said) -> None:
    jobs = smoke_jobs(3)
    cluster.deeds = [cluster.is_killed]
    tally = run_jobs(small(), Work(jobs, estimates={job.run_id: 1.0 for job in jobs}), line)
    assert [[job.run_id for job in task.work.jobs] for task in cluster.tasks] == [
        [job.run_id for job in jobs],
        [job.run_id for job in jobs[1:]],
    ]
    assert all(recorded(job.config) for job in jobs)
    assert {job.run_id for job in tally.recorded} == {job.run_id for job in jobs}
    assert "Slurm job 7_1 ended without a report (NODE_FAIL): 2 runs are handed over again" in said.getvalue()


def test_a_silent_task_is_given_up_and_cancelled(cluster: Cluster, smoke_jobs, line, said) -> None:
    cluster.deeds = [cluster.hangs]
    tally = run_jobs(small(), Work(smoke_jobs(1)), line)
    assert cluster.cancelled == ["7_1"]
    assert len(tally.recorded) == 1
    assert "7_1 has been silent" in said.getvalue()


def test_runs_whose_tasks_keep_dying_fail_with_the_reason(cluster: Cluster, smoke_jobs, line) -> None:
    (job,) = smoke_jobs(1)
    cluster.deeds = [lambda task: ""] * 3
    tally = run_jobs(small(retries=2), Work([job]), line)
    assert len(cluster.tasks) == 3
    ((failed, why),) = tally.failed
    assert failed is job
    assert why.startswith("Slurm job 7_3 ended without a report (NODE_FAIL); see ")


@pytest.mark.parametrize("states", [{"7_1": "PENDING"}, None], ids=["it waits", "Slurm does not answer"])
def test_a_silent_task_that_may_go_on_is_left_alone(cluster: Cluster, smoke_jobs, line, monkeypatch, states) -> None:
    """A task that ran and was queued again writes no heartbeat either."""
    looks: list[float] = []

    def patient(seconds: float) -> None:
        looks.append(seconds)
        cluster.states = states if len(looks) < 20 else {}
        if len(looks) == 20:
            cluster.finishes(cluster.tasks[0])

    monkeypatch.setattr(slurm.time, "sleep", patient)
    cluster.deeds = [cluster.waits if states else cluster.hangs]
    tally = run_jobs(small(silence=1e-9), Work(smoke_jobs(1)), line)
    assert len(looks) >= 20
    assert len(cluster.tasks) == len(tally.recorded) == 1


def test_what_goes_on_from_before_is_followed_and_not_handed_over_twice(cluster: Cluster, smoke_jobs, line) -> None:
    jobs = smoke_jobs(2)
    cluster.deeds = [cluster.waits]
    first = run_jobs(small(wait=False), Work(jobs[:1]), line)
    assert [job.run_id for job in first.under_way] == [jobs[0].run_id]
    assert not first.recorded
    cluster.deeds = [lambda task: (cluster.states.clear(), cluster.finishes(cluster.tasks[0]), "")[2], cluster.finishes]
    tally = run_jobs(small(retries=0, minutes=1), Work(jobs), line)
    handed = [[job.run_id for job in task.work.jobs] for task in cluster.tasks]
    assert handed[:2] == [[jobs[0].run_id], [jobs[1].run_id]]
    assert jobs[0].run_id in {job.run_id for job in tally.recorded}


def test_a_note_keeps_runs_back_while_its_task_may_be_in_the_queue(cluster: Cluster, smoke_jobs, line) -> None:
    (job,) = smoke_jobs(1)
    notes.write(cluster.folder, Note(notes.new_name(), "slurm", "3_0", (job.run_id,)))
    cluster.states = None
    with pytest.raises(ConfigError, match="Slurm does not answer"):
        run_jobs(small(), Work([job]), line)
    cluster.states = {}
    assert len(run_jobs(small(), Work([job]), line).recorded) == 1
    assert len(cluster.tasks) == 1


def test_runs_that_fail_are_told_from_those_that_had_no_time(cluster: Cluster, smoke_jobs, line) -> None:
    """By the real task, in this process."""

    def carried_out(task: Task) -> str:
        task()
        return ""

    jobs = smoke_jobs(2, r0="tests.failing.RaisesInTraining")
    cluster.deeds = [carried_out, carried_out]
    seconds = {jobs[0].run_id: 1.0, jobs[1].run_id: 1000.0}
    work = Work(jobs, estimates=seconds, deadline=time.time() + 500)
    tally = run_jobs(small(minutes=0.1), work, line)
    assert [(job.run_id, why) for job, why in tally.failed] == [(jobs[0].run_id, "RuntimeError: made to fail")]
    assert [job.run_id for job in tally.not_started] == [jobs[1].run_id]


def test_gpus_or_cpus_say_how_many_runs_a_task_computes_at_a_time() -> None:
    assert [runs_on_node(0, 8, threads) for threads in (1, 4, None)] == [8, 2, 1]
    assert runs_on_node(2, 8, 1) == 2

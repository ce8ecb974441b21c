"""Many runs, a fixed number of processes at a time."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol

from runner.launch.worker import BUSY_PAUSE, Worker, received, start
from runner.records.jobs import Job
from runner.terminal import Line, duration

NOT_STARTED = "not started"  # the outcome of a run that would not have ended in time
_USERS = Counter[str | None]()  # processes by device, of all requests that this process carries out at a time


@dataclass
class Tally:
    """The outcome of jobs: recorded now or before, failed with a reason, not started, or going on elsewhere."""

    recorded: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    not_started: list[Job] = field(default_factory=list)
    under_way: list[Job] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """Jobs to carry out, with one results folder."""

    jobs: Sequence[Job]  # in the order in which they are started
    at_once: int | None = None  # runs at a time, or tasks on a cluster; None takes the launcher's default
    threads: int | None = 1  # CPU threads of each run; None leaves it to PyTorch
    estimates: dict[str, float] = field(default_factory=dict)  # seconds by run id, without runs of unknown time
    deadline: float | None = None  # time.time(): no run is started later, nor one known to end later

    @property
    def root(self) -> Path:
        """The folder of all results, which is one for all jobs of a request."""
        return Path(self.jobs[0].config.runtime.results_root).expanduser()


class Watch(Protocol):
    """Told of what happens to runs while they are carried out. What it raises ends them all."""

    def began(self, jobs: Sequence[Job]) -> None:
        """Take note that jobs are now computed."""

    def epoch(self, run_id: str, text: str) -> None:
        """Take note of an epoch of a run, which `text` describes."""

    def ended(self, job: Job, outcome: str, text: str) -> None:
        """Take note of a run's `outcome`: "failed", NOT_STARTED, or as `runner.runs.execute.execute` returns it."""


def run_processes(work: Work, line: Line, *, devices: Sequence[str] = (), watch: Watch | None = None) -> Tally:
    """Run every job in a separate process, `work.at_once` at a time, in order. A job that fails stops no other.

    The processes are spread over the GPUs in `devices`. Each process sees one alone (see `runner.launch.devices`).
    """
    jobs, estimates, workers = work.jobs, work.estimates, work.at_once or 1
    queue, tally, running = deque(jobs), Tally(), list[Worker]()
    clock = _Clock(jobs, estimates, workers)
    number = 1
    try:
        while queue or running:
            while queue and len(running) < workers:
                job = queue.popleft()
                if work.deadline is not None and time.time() + estimates.get(job.run_id, 0.0) > work.deadline:
                    tally.not_started.append(job)
                    clock.drop(job)
                    if watch is not None:
                        watch.ended(job, NOT_STARTED, "")
                    continue
                device = min(devices, key=lambda name: _USERS[name], default=None)
                _USERS[device] += 1
                running.append(start(job, work.threads, number, device=device))
                number += 1
                if watch is not None:
                    watch.began([job])
            if not running:
                continue
            for connection in wait([worker.connection for worker in running]):
                worker = next(w for w in running if w.connection is connection)
                job, (kind, content) = worker.job, received(worker)
                name = f"run {worker.number} of {len(jobs)} · {job.sweep} {job.label}"
                if kind == "epoch":
                    text, done = content
                    if watch is not None:
                        watch.epoch(job.run_id, text)
                    clock.at(job.run_id, done)
                    line.show(f"{name} · {text} · {clock.left()}")
                    continue
                running.remove(worker)
                worker.process.join()
                _USERS[worker.device] -= 1
                outcome, text = content
                if outcome == "busy":  # another process on this machine computes it: try again after the others
                    number -= 1
                    if not queue:
                        time.sleep(BUSY_PAUSE)
                    queue.append(job)
                    continue
                clock.at(job.run_id, 1.0)
                if watch is not None:
                    watch.ended(job, outcome, text)
                if outcome == "failed":
                    tally.failed.append((job, text))
                else:
                    tally.recorded.append(job)
                ending = f"{outcome} {text}".strip()
                line.keep(f"{name} · {ending} · {clock.left()}")
    finally:
        for worker in running:
            worker.process.terminate()
    return tally


class _Clock:
    """Estimates the time left: the estimates of the runs left, times the ratio of actual to estimated time so far.

    A run of unknown time counts as the mean of the others. The ratio counts one such run more, as if it had taken its
    estimate. So the start of the first run does not decide it.
    """

    def __init__(self, jobs: Sequence[Job], estimates: dict[str, float], workers: int) -> None:
        known = [estimates[job.run_id] for job in jobs if job.run_id in estimates]
        self._usual = sum(known) / len(known) if known else 0.0
        self._estimates = {job.run_id: estimates.get(job.run_id, self._usual or 1.0) for job in jobs}
        self._done = dict.fromkeys(self._estimates, 0.0)
        self._workers = workers
        self._started = time.monotonic()

    def at(self, run_id: str, done: float) -> None:
        """Set the part of a run that is done, in [0, 1]."""
        self._done[run_id] = done

    def drop(self, job: Job) -> None:
        """Leave out a job that is not started."""
        self._estimates[job.run_id] = 0.0

    def left(self) -> str:
        done = sum(seconds * self._done[run_id] for run_id, seconds in self._estimates.items())
        elapsed = (time.monotonic() - self._started) * min(self._workers, len(self._estimates))
        ratio = (elapsed + self._usual) / (done + self._usual) if done else 1.0
        seconds = (sum(self._estimates.values()) - done) * ratio / self._workers
        return f"{duration(seconds)} left for all {len(self._estimates)}"

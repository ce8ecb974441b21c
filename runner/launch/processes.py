"""This machine as a launcher: a fixed number of processes at a time, one run each, spread over its GPUs."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from multiprocessing.connection import wait
from pathlib import Path
from statistics import fmean

from pydantic.dataclasses import dataclass as options

from runner.config import register
from runner.launch.worker import BUSY_PAUSE, Worker, received, start
from runner.records.jobs import Job
from runner.speed.machine import cores, gpus, memory
from runner.terminal import Line, duration

_MOST_ON_CPU = 8  # runs at a time on a CPU by default
_MEMORY = 2 * 2**30  # bytes for each of them
_USERS = Counter[str | None]()  # processes by device, of all requests that this process carries out at a time


@dataclass
class Tally:
    """The outcome of jobs: recorded now or before, failed with a reason, not started, or going on elsewhere."""

    recorded: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    not_started: list[Job] = field(default_factory=list)
    under_way: list[Job] = field(default_factory=list)

    def add(self, other: Tally, run_ids: set[str]) -> None:
        """Add the outcomes of those runs in another tally whose ids are given."""
        self.recorded += [job for job in other.recorded if job.run_id in run_ids]
        self.failed += [(job, reason) for job, reason in other.failed if job.run_id in run_ids]
        self.not_started += [job for job in other.not_started if job.run_id in run_ids]


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


@options(frozen=True, config={"extra": "forbid"})
class Local:
    """Processes of this machine: one per GPU by default, or one per CPU core."""

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`. More runs at a time than GPUs share the GPUs evenly."""
        return run_processes(replace(work, at_once=work.at_once or workers(work.jobs)), line, gpus_of(work.jobs))


def run_on_node(work: Work) -> Tally:
    """Carry jobs out in the task of a cluster, on the GPUs that its scheduler gives it."""
    register()
    return run_processes(work, Line(sys.stderr), gpus_of(work.jobs))


def workers(jobs: Iterable[Job]) -> int:
    """Return the default number of runs at a time: one per GPU, or one per CPU core and at most eight.

    Only the cores and the memory count that this process may use, with two GiB for each run. Nine of ten recorded runs
    took at most 2.4 GiB.
    """
    if gpus():
        return max(1, len(gpus_of(jobs)))
    return max(1, min(cores(), memory() // _MEMORY, _MOST_ON_CPU))


def gpus_of(jobs: Iterable[Job]) -> list[str]:
    """List the GPUs to spread the processes of some jobs over, by their names in CUDA_VISIBLE_DEVICES.

    Each process sees one GPU alone. The list is empty if there is one GPU, which needs no name. It is also empty if a
    job names its device, because a process that sees one GPU has no `cuda:1`.
    """
    count = gpus()
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    names = names[:count] or [str(number) for number in range(count)]
    free = all(job.field("runtime.device") in ("auto", "cuda") for job in jobs)
    return names if free and len(names) > 1 else []


def run_processes(work: Work, line: Line, devices: Sequence[str] = ()) -> Tally:
    """Run every job in a separate process, `work.at_once` at a time, in order. A job that fails stops no other.

    The processes are spread over the GPUs in `devices`. Each process sees one alone (see `gpus_of`).
    """
    jobs, estimates, workers = work.jobs, work.estimates, work.at_once or 1
    queue, tally, running = deque(jobs), Tally(), list[Worker]()
    clock = _Clock(jobs, estimates, workers, work.deadline)
    number = 1
    try:
        while queue or running:
            while queue and len(running) < workers:
                job = queue.popleft()
                if work.deadline is not None and time.time() + estimates.get(job.run_id, 0.0) > work.deadline:
                    tally.not_started.append(job)
                    clock.estimates[job.run_id] = 0.0
                    continue
                device = min(devices, key=lambda name: _USERS[name], default=None)
                _USERS[device] += 1
                running.append(start(job, work.threads, number, device=device))
                number += 1
            if not running:
                continue
            for connection in wait([worker.connection for worker in running]):
                worker = next(w for w in running if w.connection is connection)
                job, (kind, content) = worker.job, received(worker)
                name = f"run {worker.number} of {len(jobs)} · {job.sweep} {job.label}"
                if kind == "epoch":
                    text, done = content
                    clock.done[job.run_id] = done
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
                clock.done[job.run_id] = 1.0
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

    Attributes:
        estimates: seconds by run id; 0 for a run that is not started.
        done: the part of each run that is done, in [0, 1].
    """

    def __init__(
        self, jobs: Sequence[Job], estimates: dict[str, float], workers: int, deadline: float | None = None
    ) -> None:
        self._usual = fmean([estimates[job.run_id] for job in jobs if job.run_id in estimates] or [0.0])
        self.estimates = {job.run_id: estimates.get(job.run_id, self._usual or 1.0) for job in jobs}
        self.done = dict.fromkeys(self.estimates, 0.0)
        self._workers = workers
        self._started = time.monotonic()
        self._deadline = deadline

    def left(self) -> str:
        done = sum(seconds * self.done[run_id] for run_id, seconds in self.estimates.items())
        elapsed = (time.monotonic() - self._started) * min(self._workers, len(self.estimates))
        ratio = (elapsed + self._usual) / (done + self._usual) if done else 1.0
        seconds = (sum(self.estimates.values()) - done) * ratio / self._workers
        if self._deadline is None or (budget := self._deadline - time.time()) >= seconds:
            return f"{duration(seconds)} left for all {len(self.estimates)}"
        left = [
            (1 - self.done[run_id]) * estimate
            for run_id, estimate in self.estimates.items()
            if self.done[run_id] < 1 and estimate
        ]
        fitting = sum(total <= budget * self._workers for total in accumulate(left))
        return f"{duration(max(0.0, budget))} of the budget left, {fitting} of {len(left)} runs fit"

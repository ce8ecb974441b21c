"""Many runs, a fixed number of processes at a time: one run each, or a group that is trained together."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from runner.runs.jobs import Job
from runner.runs.lockstep import grouped
from runner.terminal import Line, duration, epoch_text

_BUSY_PAUSE = 5.0  # seconds before a run that another process is computing is looked at again


@dataclass
class Tally:
    """What became of the jobs: those recorded now or before, those that failed with why, those not started."""

    recorded: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    not_started: list[Job] = field(default_factory=list)


@dataclass
class _Worker:
    jobs: tuple[Job, ...]
    process: BaseProcess
    connection: Connection
    number: int


def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    threads: int | None,
    estimates: dict[str, float],
    deadline: float | None,
    line: Line,
) -> Tally:
    """Run every job in a process of its own, `workers` at a time, in order; a job that fails stops no other.

    Where `runtime.lockstep` says so, jobs that can be trained together share a process, and its fate.

    Args:
        threads: CPU threads of each run; None leaves it to PyTorch.
        estimates: seconds a run will take, by run id.
        deadline: time.monotonic() after which no run is started, nor one that would not end before it; None: never.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["runner.runs.life"])  # PyTorch is imported once, and forked
    queue, tally, running = deque(grouped(jobs)), Tally(), list[_Worker]()
    clock = _Clock(jobs, estimates, workers)
    number = 1
    try:
        while queue or running:
            while queue and len(running) < workers:
                group = queue.popleft()
                if (
                    deadline is not None
                    and time.monotonic() + sum(estimates.get(j.run_id, 0.0) for j in group) > deadline
                ):
                    tally.not_started.extend(group)
                    continue
                running.append(_start(context, group, threads, number))
                number += len(group)
            if not running:
                continue
            for connection in wait([worker.connection for worker in running]):
                worker = next(w for w in running if w.connection is connection)
                message = _receive(worker)
                if message[0] == "epoch":
                    line.show(f"{_name(worker, len(jobs))} · {message[1]} · {duration(clock.left())} left in all")
                    continue
                running.remove(worker)
                worker.process.join()
                for place, (job, (outcome, text)) in enumerate(zip(worker.jobs, message[1], strict=True)):
                    if outcome == "busy":  # another process here is at it: come back when there is nothing else
                        number -= 1
                        if not queue:
                            time.sleep(_BUSY_PAUSE)
                        queue.append((job,))
                        continue
                    clock.done(job)
                    if outcome == "failed":
                        tally.failed.append((job, text))
                    else:
                        tally.recorded.append(job)
                    said = f"{outcome} {text}".strip()
                    line.keep(
                        f"run {worker.number + place} of {len(jobs)} · {job.sweep} {job.label} · {said} · "
                        f"{duration(clock.left())} left in all"
                    )
    finally:
        for worker in running:
            worker.process.terminate()
    return tally


class _Clock:
    """Time left: what the remaining runs were estimated at, corrected by how the finished ones compared."""

    def __init__(self, jobs: Sequence[Job], estimates: dict[str, float], workers: int) -> None:
        self._estimates, self._workers = estimates, workers
        self._remaining = sum(estimates.get(job.run_id, 0.0) for job in jobs)
        self._finished = 0.0
        self._started = time.monotonic()

    def done(self, job: Job) -> None:
        self._finished += self._estimates.get(job.run_id, 0.0)
        self._remaining -= self._estimates.get(job.run_id, 0.0)

    def left(self) -> float:
        elapsed = time.monotonic() - self._started
        pace = elapsed * self._workers / self._finished if self._finished else 1.0
        under_way = 0.0 if self._finished else elapsed * self._workers
        return max(0.0, (self._remaining * pace - under_way) / self._workers)


def _name(worker: _Worker, total: int) -> str:
    first, others = worker.jobs[0], len(worker.jobs) - 1
    if not others:
        return f"run {worker.number} of {total} · {first.sweep} {first.label}"
    return f"runs {worker.number} to {worker.number + others} of {total} · {first.sweep} {first.label} and others"


def _start(context: Any, jobs: tuple[Job, ...], threads: int | None, number: int) -> _Worker:
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(jobs, threads, there), daemon=True)
    process.start()
    there.close()
    return _Worker(jobs, process, here, number)


def _receive(worker: _Worker) -> tuple[str, Any]:
    """("epoch", text) or ("ended", an outcome and a text for every job)."""
    try:
        received: tuple[str, Any] = worker.connection.recv()
        return received
    except EOFError:  # the process ended without a word: killed, out of memory, crashed
        worker.process.join()
        why = f"its process ended with exit code {worker.process.exitcode}"
        return "ended", [("failed", why)] * len(worker.jobs)


def _work(jobs: tuple[Job, ...], threads: int | None, connection: Connection) -> None:
    """In the runs' own process: carry them out, and say how it goes."""
    _end_with_parent()
    from runner.config import register
    from runner.runs.identity import identify
    from runner.runs.life import live_together
    from runner.training.prepare import Run
    from runner.training.stacked import NotStackableError

    register()
    for job in jobs:
        job.config.runtime.threads = job.config.runtime.threads or threads

    def say(*message: Any) -> None:
        try:
            connection.send(message)
        except BrokenPipeError:  # the parent is gone: end as `_end_with_parent` does
            os._exit(1)

    def on_epoch(row: dict[str, float], run: Run) -> None:
        identity, _ = identify(run.config)
        last[identity] = epoch_text(row, run.epochs, run.max_accepted)
        say("epoch", last[identity])

    def carry_out(some: tuple[Job, ...]) -> list[tuple[str, str]]:
        try:
            outcomes = live_together([job.config for job in some], on_epoch)
        except NotStackableError as reason:
            print(f"lockstep: {reason}, so {len(some)} runs are trained one after the other.", file=sys.stderr)
            return [result for job in some for result in carry_out((job,))]
        except Exception as error:
            return [("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")] * len(some)
        return [(outcome, last.get(job.run_id, "")) for job, outcome in zip(some, outcomes, strict=True)]

    last: dict[str, str] = {}
    say("ended", carry_out(jobs))


def _end_with_parent() -> None:
    """End this process when its parent is gone, so that a killed sweep leaves nothing running."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

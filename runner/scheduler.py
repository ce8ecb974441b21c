"""Many runs, one process each, a fixed number at a time."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from runner.jobs import Job
from runner.progress import Line, duration, epoch_text

_BUSY_PAUSE = 5.0  # seconds before a run that another process is computing is looked at again


@dataclass
class Tally:
    """What became of the jobs: those recorded now or before, those that failed with why, those not started."""

    recorded: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    not_started: list[Job] = field(default_factory=list)


@dataclass
class _Worker:
    job: Job
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

    Args:
        threads: CPU threads of each run; None leaves it to PyTorch.
        estimates: seconds a run will take, by run id.
        deadline: time.monotonic() after which no run is started, nor one that would not end before it; None: never.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["runner.life"])  # PyTorch is imported once, and forked
    queue, tally, running = deque(jobs), Tally(), list[_Worker]()
    clock = _Clock(jobs, estimates, workers)
    number = 0
    try:
        while queue or running:
            while queue and len(running) < workers:
                job = queue.popleft()
                if deadline is not None and time.monotonic() + estimates.get(job.run_id, 0.0) > deadline:
                    tally.not_started.append(job)
                    continue
                number += 1
                running.append(_start(context, job, threads, number))
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
                if message[0] == "busy":  # another process here is at it: come back when there is nothing else
                    number -= 1
                    if not queue:
                        time.sleep(_BUSY_PAUSE)
                    queue.append(worker.job)
                    continue
                clock.done(worker.job)
                if message[0] == "failed":
                    tally.failed.append((worker.job, message[1]))
                else:
                    tally.recorded.append(worker.job)
                line.keep(f"{_name(worker, len(jobs))} · {' '.join(message)} · {duration(clock.left())} left in all")
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
    return f"run {worker.number} of {total} · {worker.job.sweep} {worker.job.label}"


def _start(context: Any, job: Job, threads: int | None, number: int) -> _Worker:
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, threads, there), daemon=True)
    process.start()
    there.close()
    return _Worker(job, process, here, number)


def _receive(worker: _Worker) -> tuple[str, ...]:
    try:
        return worker.connection.recv()
    except EOFError:  # the process ended without a word: killed, out of memory, crashed
        worker.process.join()
        return "failed", f"its process ended with exit code {worker.process.exitcode}"


def _work(job: Job, threads: int | None, connection: Connection) -> None:
    """In the run's own process: carry it out, and say how it goes."""
    _end_with_parent()
    from runner.build import Run
    from runner.config import register
    from runner.life import live

    register()
    job.config.runtime.threads = job.config.runtime.threads or threads

    def say(*message: str) -> None:
        try:
            connection.send(message)
        except BrokenPipeError:  # the parent is gone: end as `_end_with_parent` does
            os._exit(1)

    def on_epoch(row: dict[str, float], run: Run) -> None:
        last.update(text=epoch_text(row, run.epochs))
        say("epoch", last["text"])

    last: dict[str, str] = {}
    try:
        outcome = live(job.config, on_epoch)
    except Exception as error:
        say("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")
    else:
        say(outcome, *last.values())


def _end_with_parent() -> None:
    """End this process when its parent is gone, so that a killed sweep leaves nothing running."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

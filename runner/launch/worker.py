"""A process that carries out one run, or several that are trained together, and reports their epochs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from runner.records.jobs import Job
from runner.terminal import epoch_text, one_line, part_done

BUSY_PAUSE = 5.0  # seconds before another attempt at a run that another process is computing


@dataclass
class Worker:
    """A process, its jobs, and the number of its first job among all jobs."""

    jobs: tuple[Job, ...]
    process: BaseProcess
    connection: Connection
    number: int
    device: str | None = None


def start(jobs: tuple[Job, ...], threads: int | None, number: int, *, device: str | None = None) -> Worker:
    """Start a process with these jobs.

    `device` names the one GPU that the process sees, as CUDA_VISIBLE_DEVICES does. With None it sees all GPUs.
    """
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["runner.runs.execute"])  # PyTorch is imported once, and forked
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(jobs, threads, there, device), daemon=True)
    process.start()
    there.close()
    return Worker(jobs, process, here, number, device)


def received(worker: Worker) -> tuple[str, Any]:
    """Receive a report: ("epoch", (run id, text, finished part)), or ("ended", [(outcome, text) of every job])."""
    try:
        message: tuple[str, Any] = worker.connection.recv()
        return message
    except (EOFError, OSError):  # the process was killed, ran out of memory, or crashed
        worker.process.join()
        why = f"its process ended with exit code {worker.process.exitcode}"
        return "ended", [("failed", why)] * len(worker.jobs)


def _work(jobs: tuple[Job, ...], threads: int | None, connection: Connection, device: str | None) -> None:
    """Carry the jobs out in this process, and report their epochs to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes, and the parent handles it
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # read when the first tensor goes to a GPU, which is later
    _end_with_parent()
    from runner.config import register
    from runner.records.identity import identify
    from runner.runs.execute import execute_together
    from runner.training.run import Run
    from runner.training.stacked import NotStackableError

    register()
    for job in jobs:
        job.config.runtime.threads = job.config.runtime.threads or threads

    def send(*message: Any) -> None:
        try:
            connection.send(message)
        except BrokenPipeError:  # the parent is dead: end as `_end_with_parent` does
            os._exit(1)

    def on_epoch(row: dict[str, float], run: Run) -> bool:
        identity, _ = identify(run.config)
        last[identity] = epoch_text(row, run.epochs, run.paid_for)
        send("epoch", (identity, last[identity], part_done(row, run.epochs, run.paid_for)))
        goes_on = judges.get(identity)
        return goes_on is None or goes_on(row)

    def carry_out(some: tuple[Job, ...]) -> list[tuple[str, str]]:
        try:
            outcomes = execute_together([job.config for job in some], on_epoch)
        except NotStackableError as reason:
            print(f"lockstep: {reason}, so {len(some)} runs are trained one after the other.", file=sys.stderr)
            return [result for job in some for result in carry_out((job,))]
        except Exception as error:
            return [("failed", one_line(f"{type(error).__name__}: {error}"))] * len(some)
        return [(outcome, last.get(job.run_id, "")) for job, outcome in zip(some, outcomes, strict=True)]

    judges, last = {job.run_id: job.goes_on for job in jobs}, dict[str, str]()
    send("ended", carry_out(jobs))


def _end_with_parent() -> None:
    """End this process when its parent is dead, so that a killed sweep leaves nothing running."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

"""A process that carries out one run, and reports its epochs."""

from __future__ import annotations

import multiprocessing
import os
import signal
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
    """A process, its job, and the job's number among all jobs."""

    job: Job
    process: BaseProcess
    connection: Connection
    number: int
    device: str | None = None


def start(job: Job, threads: int | None, number: int, *, device: str | None = None) -> Worker:
    """Start a process with this job.

    `device` names the one GPU that the process sees, as CUDA_VISIBLE_DEVICES does. With None it sees all GPUs.
    """
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["runner.runs.execute"])  # PyTorch is imported once, and forked
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, threads, sender, device), daemon=True)
    process.start()
    sender.close()
    return Worker(job, process, receiver, number, device)


def received(worker: Worker) -> tuple[str, Any]:
    """Receive a report: ("epoch", (text, finished part)), or ("ended", (outcome, text))."""
    try:
        message: tuple[str, Any] = worker.connection.recv()
        return message
    except (EOFError, OSError):  # the process was killed, ran out of memory, or crashed
        worker.process.join()
        return "ended", ("failed", f"its process ended with exit code {worker.process.exitcode}")


def _work(job: Job, threads: int | None, connection: Connection, device: str | None) -> None:
    """Carry the job out in this process, and report its epochs to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes, and the parent handles it
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # read when the first tensor goes to a GPU, which is later
    parent = os.getppid()

    def watch() -> None:  # so that a killed sweep leaves nothing running
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    from runner.config import register
    from runner.records.files import write_progress
    from runner.runs.execute import execute
    from runner.training.run import Run

    register()
    job.config.runtime.threads = job.config.runtime.threads or threads
    last = ""

    def send(*message: Any) -> None:
        try:
            connection.send(message)
        except BrokenPipeError:  # the parent is dead
            os._exit(1)

    def report_epoch(row: dict[str, float], run: Run) -> None:
        nonlocal last
        last = epoch_text(row, run.epochs, run.paid_for)
        write_progress(run.config.runtime.results_root, job.run_id, last)
        send("epoch", (last, part_done(row, run.epochs, run.paid_for)))

    def clear_progress(run: Run) -> None:  # a run that was killed has left an epoch of then
        write_progress(run.config.runtime.results_root, job.run_id, "")

    try:
        outcome = execute(job.config, report_epoch, clear_progress, goes_on=job.goes_on)
    except Exception as error:
        send("ended", ("failed", one_line(f"{type(error).__name__}: {error}")))
    else:
        send("ended", (outcome, last))

"""This machine as a launcher: a fixed number of processes at a time, one run each, spread over its GPUs."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic.dataclasses import dataclass as options

from runner.config import register
from runner.records.jobs import Job
from runner.speed.machine import cores, gpus, memory
from runner.terminal import Line, duration, epoch_text, one_line, part_done

_MOST_ON_CPU = 8  # runs at a time on a CPU by default
_MEMORY = 2 * 2**30  # bytes for each of them
_BUSY_PAUSE = 5.0  # seconds before another attempt at a run that another process is computing
_USERS = Counter[str | None]()  # processes by device, of all requests that this process carries out at a time


@dataclass
class Tally:
    """The outcome of jobs: recorded now or before, failed with a reason, not started, or going on elsewhere."""

    recorded: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    not_started: list[Job] = field(default_factory=list)
    under_way: list[Job] = field(default_factory=list)

    def add(self, other: "Tally", run_ids: set[str]) -> None:
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
                job = worker.job
                try:  # ("epoch", (text, finished part)), or ("ended", (outcome, text))
                    kind, content = worker.connection.recv()
                except (EOFError, OSError):  # the process was killed, ran out of memory, or crashed
                    worker.process.join()
                    kind, content = "ended", ("failed", f"its process ended with exit code {worker.process.exitcode}")
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
                        time.sleep(_BUSY_PAUSE)
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
    """

    def __init__(
        self, jobs: Sequence[Job], estimates: dict[str, float], workers: int, deadline: float | None = None
    ) -> None:
        self._usual = fmean([estimates[job.run_id] for job in jobs if job.run_id in estimates] or [0.0])
        # Seconds by run id, 0 for a run that is not started, and the part of each run that is done, in [0, 1].
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
            (1 - self.done[i]) * estimate for i, estimate in self.estimates.items() if self.done[i] < 1 and estimate
        ]
        fitting = sum(total <= budget * self._workers for total in accumulate(left))
        return f"{duration(max(0.0, budget))} of the budget left, {fitting} of {len(left)} runs fit"


@dataclass
class Worker:
    """A process of one run, its job, and the job's number among all jobs."""

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
    with without_script():
        process.start()
    sender.close()
    return Worker(job, process, receiver, number, device)


@contextmanager
def without_script() -> Iterator[None]:
    """Hide the user's script from processes that start within, as each of them would run it again."""
    script = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {name: script[name] for name in ("__file__", "__spec__") if name in script}
    script.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        script.update(hidden)


def _work(job: Job, threads: int | None, connection: Connection, device: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes, and the parent handles it
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # read when the first tensor goes to a GPU, which is later
    parent, last = os.getppid(), ""

    def watch() -> None:  # so that a killed sweep leaves nothing running
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    from runner.records.disk import write_progress
    from runner.runs.execute import execute
    from runner.training.run import Run

    register()
    job.config.runtime.threads = job.config.runtime.threads or threads

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

"""This machine as a launcher: one process a run, spread over its GPUs where it has several."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from runner.config import ConfigError
from runner.launch import notes, worker
from runner.launch import processes as local
from runner.launch.devices import Devices, to_share, workers
from runner.launch.interface import Seat, Seats, Work
from runner.launch.processes import Tally
from runner.records.jobs import Job
from runner.terminal import Line

NAME = "local"


@dataclass(frozen=True)
class Local:
    """Processes of this machine."""

    def check(self, wait: bool) -> None:
        """Raise ConfigError where the command is not to stay."""
        if not wait:
            raise ConfigError("WAIT=no is for a cluster: what this machine computes ends with the command.")

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`."""
        folder, name = notes.folder_of(work.root), notes.new_name()
        at_once = work.at_once or workers(work.jobs)
        with suppress(OSError):
            runs = tuple(job.run_id for job in work.jobs)
            notes.write(folder, notes.Note(name, NAME, "", runs, host=platform.node()))
        try:
            with notes.Beat(folder, name) as beat:
                return local.run_jobs(
                    work.jobs, at_once, work.threads, work.estimates, work.deadline, line,
                    devices=to_share(work.jobs), watch=beat,
                )  # fmt: skip
        finally:
            with suppress(OSError):
                notes.remove(folder, name)

    @contextmanager
    def seats(self, root: Path, at_once: int, threads: int | None, line: Line) -> Iterator[Seats]:
        """See `Launcher`."""
        with _Seats(at_once, threads) as seats:
            yield seats


class _Seat:
    """A process of this machine."""

    def __init__(self, worker: worker.Worker, seats: _Seats) -> None:
        self._worker, self._seats = worker, seats

    @property
    def connection(self) -> Connection:
        return self._worker.connection

    def received(self) -> tuple[str, Any]:
        """See `Seat`."""
        message = worker.received(self._worker)
        if message[0] == "ended":
            self._worker.process.join()
            self._seats.left(self)
        return message

    def answer(self, goes_on: bool) -> None:
        """See `Seat`."""
        self._worker.answer(goes_on)

    def close(self) -> None:
        """See `Seat`."""
        self._worker.process.terminate()

    @property
    def device(self) -> str | None:
        """The GPU that it was given."""
        return self._worker.device


class _Seats:
    """So many processes at a time, which all end with the context."""

    def __init__(self, at_once: int, threads: int | None) -> None:
        self._at_once, self._threads = at_once, threads
        self._taken: list[_Seat] = []
        self._devices: Devices | None = None

    def __enter__(self) -> _Seats:
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self._taken:
            seat.close()

    @property
    def free(self) -> int:
        """How many more processes there may be."""
        return self._at_once - len(self._taken)

    def start(self, job: Job, number: int) -> Seat:
        """See `Seats`."""
        if self._devices is None:
            self._devices = Devices(to_share([job]))
        started = worker.start((job,), self._threads, number, judged=True, device=self._devices.taken())
        self._taken.append(_Seat(started, self))
        return self._taken[-1]

    def wait(self, taken: Sequence[Seat]) -> list[Seat]:
        """See `Seats`."""
        ready = wait([seat.connection for seat in taken])
        return [seat for seat in taken if seat.connection in ready]

    def left(self, seat: _Seat) -> None:
        """Say that a process has ended."""
        self._taken.remove(seat)
        if self._devices is not None:
            self._devices.give_back(seat.device)

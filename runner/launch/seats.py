"""Places for a search's trials on other machines: each connects to the search, and takes one trial after the other.

The search waits at a door of its own, a port that only those with its key can use. A place carries a trial out in a
process of its node, and passes on what that says, epoch by epoch, and what it is answered.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import Any

from runner.config import ConfigError, register
from runner.launch.away import delivered, parcels, sent
from runner.launch.interface import Seat, Seats
from runner.launch.worker import received, start
from runner.records.jobs import Job
from runner.terminal import Line

_LOOK = 10.0  # seconds between two looks whether places may still come


@dataclass
class Place:
    """What a node is given. Called there, it takes trials until the search says no more.

    Attributes:
        host, port, key: the search's door.
        away: whether the node does not have the results folder, so that records go back as values.
        data_root: where the node keeps images; None: where the search's machine does.
    """

    host: str
    port: int
    key: bytes
    away: bool = False
    data_root: str | None = None

    def __call__(self) -> None:
        """Take trials."""
        register()
        with Client((self.host, self.port), authkey=self.key) as search:
            while True:
                try:
                    job, number, threads = search.recv()
                except (EOFError, OSError):
                    return
                with tempfile.TemporaryDirectory(prefix="dp-repro-") as folder:
                    if self.away:
                        job = sent(job, Path(folder), self.data_root)
                    if not self._carry_out(search, job, number, threads):
                        return

    def checkpoint(self) -> Any:
        """What submitit hands over again when the time limit is near: a place that takes further trials."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _carry_out(self, search: Any, job: Job, number: int, threads: int | None) -> bool:
        """Returns whether the search is still there."""
        worker = start((job,), threads, number, judged=True)
        try:
            while True:
                ready = wait([search, worker.connection])
                if search in ready:
                    worker.answer(search.recv())
                if worker.connection in ready:
                    said, content = received(worker)
                    over = said == "ended"
                    search.send((said, content, parcels(job) if over and self.away else []))
                    if over:
                        worker.process.join()
                        return True
        except (EOFError, OSError):
            return False
        finally:
            worker.process.terminate()


@dataclass(frozen=True)
class Door:
    """Where places connect to."""

    port: int
    key: bytes


@contextmanager
def listening(
    threads: int | None, alive: Callable[[], bool], line: Line, *, away: bool = False
) -> Iterator[tuple[Door, Seats]]:
    """Open a door for places; in the end all that came are sent home.

    Args:
        threads: CPU threads of each trial.
        alive: whether any place is on its way or there.
        away: whether places do not have the results folder.
    """
    key = secrets.token_bytes(32)
    with Listener(("", 0), authkey=key) as listener:
        seats = _Seats(listener, threads, alive, line, away)
        try:
            yield Door(int(listener.address[1]), key), seats
        finally:
            seats.close()


class _Seat:
    """A place that has connected."""

    def __init__(self, connection: Connection, seats: _Seats) -> None:
        self._connection, self._seats = connection, seats
        self._job: Job | None = None

    @property
    def connection(self) -> Connection:
        return self._connection

    def begin(self, job: Job, number: int, threads: int | None) -> None:
        """Hand over a trial."""
        self._job = job
        with suppress(OSError):  # it is gone, which `received` will say
            self._connection.send((job, number, threads))

    def received(self) -> tuple[str, Any]:
        """See `Seat`."""
        assert self._job is not None
        try:
            said, content, came = self._connection.recv()
        except (EOFError, OSError):
            return "lost", "its node, or the task on it, ended without a word"
        if said == "ended":
            if self._seats.away:
                content = [delivered(came, self._job, *content[0])]
            self._seats.free_again(self)
        return said, content

    def answer(self, goes_on: bool) -> None:
        """See `Seat`."""
        with suppress(OSError):
            self._connection.send(goes_on)

    def close(self) -> None:
        """See `Seat`."""
        self._connection.close()


class _Seats:
    """The places that have connected so far."""

    def __init__(
        self, listener: Listener, threads: int | None, alive: Callable[[], bool], line: Line, away: bool
    ) -> None:
        self._listener, self._threads, self._alive, self._line = listener, threads, alive, line
        self.away = away
        self._free: list[_Seat] = []
        self._every: list[_Seat] = []
        self._bell, self._rope = Pipe(duplex=False)
        threading.Thread(target=self._let_in, daemon=True).start()

    @property
    def free(self) -> int:
        """How many trials can be started now."""
        return len(self._free)

    def start(self, job: Job, number: int) -> Seat:
        """See `Seats`."""
        seat = self._free.pop(0)
        seat.begin(job, number, self._threads)
        return seat

    def wait(self, taken: Sequence[Seat]) -> list[Seat]:
        """See `Seats`.

        Raises:
            ConfigError: nothing is under way, and no place is left that might come.
        """
        while True:
            ready = wait([self._bell, *(seat.connection for seat in taken)], _LOOK)
            if self._bell in ready:
                self._bell.recv()
            if ready:
                return [seat for seat in taken if seat.connection in ready]
            if not taken and not self._alive():
                raise ConfigError("No task of the search is left on the cluster: its logs say why.")
            self._line.show(f"{len(taken)} trials under way; {len(self._every)} places have come so far")

    def free_again(self, seat: _Seat) -> None:
        """Say that a trial is over."""
        self._free.append(seat)

    def close(self) -> None:
        """Send all home."""
        for seat in self._every:
            seat.close()

    def _let_in(self) -> None:
        while True:
            try:
                seat = _Seat(self._listener.accept(), self)
            except (AuthenticationError, EOFError, ConnectionError):
                continue
            except OSError:  # the door is closed
                return
            self._every.append(seat)
            self._free.append(seat)
            self._rope.send(None)

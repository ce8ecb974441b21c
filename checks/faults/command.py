"""The command under attack, in its own session, and its processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from runner.config import REPOSITORY
from runner.records.disk import read_record

DRIVER, FORK_SERVER, WORKER, WANDB = "driver", "fork server", "worker", "W&B's process"
_READY = 300.0  # seconds in which a command that is not done has its first run under way
_MEASURED = ("run_id", "setting_id", "status", "config", "history", "final", "diagnostics")


class Command:
    """`faults.driver` on a folder, two runs at a time, tracked offline, with output to a file."""

    def __init__(self, root: Path, log: Path, limit: Callable[[], None] = lambda: None) -> None:
        """Start it, after calling `limit` in its process, to limit its resources.

        Signals that are ignored here are not ignored there. A shell has SIGINT ignored in jobs started by "&".
        """

        def prepare() -> None:
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            limit()

        self.log, self.root = log, root
        with log.open("w", encoding="utf-8") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "checks.faults.driver", str(root)],
                cwd=REPOSITORY,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepare,
            )

    def ended_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def wait_until(self, ready: Callable[[], bool]) -> bool:
        """Return True if it becomes `ready` while it runs."""
        until = time.monotonic() + _READY
        while time.monotonic() < until and self.process.poll() is None:
            if ready():
                return True
            time.sleep(0.02)
        return False

    def has(self, kind: str) -> bool:
        return kind in self.members().values()

    def members(self) -> dict[int, str]:
        """Return the processes of its session that still run, by kind.

        W&B's processes leave the process group, but keep the session or their parent.
        """
        processes, session = running(), self.process.pid
        members = family({pid for pid, process in processes.items() if process.session == session}, processes)
        servers = {
            p
            for p in members
            if "multiprocessing.forkserver" in processes[p].command and processes[p].parent == session
        }
        kinds = {}
        for process in members:
            parent, _, line = processes[process]
            if process == session:
                kinds[process] = DRIVER
            elif process in servers:
                kinds[process] = FORK_SERVER
            elif "runner.tracking" in line or "wandb-core" in line or "gpu_stats" in line:
                kinds[process] = WANDB
            elif parent in servers or "multiprocessing.forkserver" in line:
                kinds[process] = WORKER
        return kinds

    def left_over(self) -> list[str]:
        """Return the processes that still run half a minute after its end, and kill them."""
        until = time.monotonic() + 30
        while (left := self.members()) and time.monotonic() < until:
            time.sleep(0.1)
        self.stop()
        return sorted(left.values())

    def stop(self) -> None:
        kill(self.members())
        self.process.wait()


def send(process: int, number: signal.Signals) -> bool:
    """Send a signal, and return True if there was such a process."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def kill(processes: Iterable[int]) -> None:
    for process in processes:
        send(process, signal.SIGKILL)


def records(results: Path) -> dict[Path, dict[str, Any]]:
    """Read and check the smoke records in a folder of results, by path.

    Raises:
        ValueError: a record is damaged.
    """
    return {path: read_record(path) for path in sorted((results / "smoke" / "runs").glob("*.json"))}


def measured(results: Path) -> dict[str, dict[str, Any]]:
    """Read the fields of these records that depend neither on place nor on time, by run id."""
    return {path.stem: {name: record[name] for name in _MEASURED} for path, record in records(results).items()}


class Process(NamedTuple):
    """A running process: its parent, its session, and its command line with spaces between the arguments."""

    parent: int
    session: int
    command: str


def running() -> dict[int, Process]:
    """Return all processes by number, those left out that have ended and wait for their parent."""
    processes: dict[int, Process] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we looked
            state, parent, _, session, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_text(errors="replace").replace("\0", " ")
            if state != "Z":
                processes[int(stat.parent.name)] = Process(int(parent), int(session), command)
    return processes


def family(numbers: Collection[int], among: Mapping[int, Process]) -> set[int]:
    """Return some processes and all their descendants."""
    members = set(numbers)
    while more := {number for number, process in among.items() if process.parent in members and number not in members}:
        members |= more
    return members

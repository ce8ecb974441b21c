"""The command under attack, in its own session, and its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from runner.config import REPOSITORY
from runner.records.files import read_record

DRIVER, FORK_SERVER, WORKER, WANDB = "driver", "fork server", "worker", "W&B's process"
_PAUSE = 0.02  # seconds
_MEASURED = ("run_id", "setting_id", "status", "config", "history", "final", "diagnostics")


class Command:
    """`faults.driver` on a folder, two runs at a time, tracked offline, with output to a file."""

    def __init__(self, root: Path, log: Path, prepare: Callable[[], None] | None = None) -> None:
        """Start it, after calling `prepare` in its process, to limit its resources.

        Signals that are ignored here are not ignored there. A shell has SIGINT ignored in jobs started by "&".
        """

        def prepared() -> None:
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            if prepare is not None:
                prepare()

        self.log, self.root = log, root
        self.started = time.monotonic()
        with log.open("w", encoding="utf-8") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "checks.faults.driver", str(root)],
                cwd=REPOSITORY,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=prepared,
            )

    def ended_within(self, seconds: float) -> bool:
        """Return True if it ends in that time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def members(self) -> dict[int, str]:
        """Return the processes of its session that still run, by kind."""
        return dict(_members(self.process.pid))

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Return True if it becomes `ready` while it runs, within that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if ready():
                return True
            time.sleep(_PAUSE)
        return False

    def left_over(self, seconds: float) -> list[str]:
        """Return the processes that still run some time after its end, and kill them."""
        until = time.monotonic() + seconds
        while (left := self.members()) and time.monotonic() < until:
            time.sleep(0.1)
        for process in left:
            send(process, signal.SIGKILL)
        return sorted(left.values())

    def stop(self) -> None:
        """Kill all of it."""
        for process in self.members():
            send(process, signal.SIGKILL)
        self.process.wait()


def send(process: int, number: signal.Signals) -> bool:
    """Send a signal.

    Returns:
        True if there was such a process.
    """
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def records(root: Path) -> dict[str, tuple[int, int]]:
    """Read and check the records in a folder.

    Returns:
        Inode and time of writing, by run id.

    Raises:
        ValueError: a record is damaged.
    """
    paths = sorted((root / "results" / "smoke" / "runs").glob("*.json"))
    for path in paths:
        read_record(path)
    return {path.stem: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def measured(results: Path) -> dict[str, dict[str, Any]]:
    """Read the fields of the smoke records in a folder of results that depend neither on place nor on time, by run id.

    Raises:
        ValueError: a record is damaged.
    """
    records_by_id = {path.stem: read_record(path) for path in sorted((results / "smoke" / "runs").glob("*.json"))}
    return {run_id: {name: record[name] for name in _MEASURED} for run_id, record in records_by_id.items()}


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


def _members(session: int) -> Iterator[tuple[int, str]]:
    """List the processes of a session that still run.

    W&B's processes leave the process group, but keep the session or their parent.
    """
    processes = running()
    members = family({pid for pid, process in processes.items() if process.session == session}, processes)
    servers = {
        p for p in members if "multiprocessing.forkserver" in processes[p].command and processes[p].parent == session
    }
    for process in members:
        parent, _, line = processes[process]
        if process == session:
            yield process, DRIVER
        elif process in servers:
            yield process, FORK_SERVER
        elif "runner.tracking" in line or "wandb-core" in line or "gpu_stats" in line:
            yield process, WANDB
        elif parent in servers or "multiprocessing.forkserver" in line:
            yield process, WORKER

"""Processes of this machine: daemons in their own sessions, and the descendants of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path


def daemon(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a command in its own session; its output goes to a file."""
    with log.open("ab") as said:
        return subprocess.Popen(
            command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip


def descendants(process: int) -> list[int]:
    """List a process and all its descendants."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found and each not in found}:
        found |= more
    return sorted(found)


def kill(processes: Sequence[int]) -> None:
    """Send SIGKILL to each existing process."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_until(ready: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait for a condition.

    Returns:
        The seconds that it took.

    Raises:
        TimeoutError: it did not happen in time.
    """
    started = time.monotonic()
    while not ready():
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - started

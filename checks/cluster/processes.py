"""Processes that are started, waited for and ended: daemons in their own sessions, and the descendants of each."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from checks.processes import running, with_descendants


def daemon(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a command in its own session; its output goes to a file."""
    with log.open("ab") as said:
        return subprocess.Popen(
            command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip


def descendants(process: int) -> list[int]:
    """List a process and all its descendants."""
    return sorted(with_descendants({process}, running()))


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

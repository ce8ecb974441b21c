"""The state of jobs by Slurm: `squeue` for jobs that wait or run, and `sacct`, with accounting, for ended ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

_PATIENCE = 60.0  # seconds for Slurm to answer


def states() -> dict[str, str] | None:
    """Return the states (PENDING, RUNNING, ...) of this user's jobs that are not over, by id.

    A task of an array is a separate job: 12_3. The result is None if Slurm does not answer.
    """
    printed = _output("squeue", "--noheader", "--array", f"--user={os.geteuid()}", "--format=%i|%T")
    if printed is None:
        return None
    return {job.strip(): state for job, _, state in (line.partition("|") for line in printed.splitlines()) if state}


def how_it_ended(job: str) -> str:
    """Return the final state of a job: `NODE_FAIL`, or `FAILED 0:9` with exit code and signal.

    Without accounting it is "".
    """
    printed = _output("sacct", "--allocations", "--noheader", "--parsable2", "--format=State,ExitCode", f"--jobs={job}")
    state, _, code = (printed or "").strip().partition("\n")[0].partition("|")
    return f"{state} {code}".strip() if code != "0:0" else state


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs, also if they run already."""
    if listed := list(jobs):
        _output("scancel", *listed)


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

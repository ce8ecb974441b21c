"""The state of jobs by Slurm: `squeue` for jobs that wait or run, and `sacct`, with accounting, for ended ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

_PATIENCE = 60.0  # seconds for Slurm to answer


def states() -> dict[str, str] | None:
    """The states (PENDING, RUNNING, ...) of this user's jobs that are not over, by id; None where Slurm says nothing.

    A task of an array is a job of its own: 12_3.
    """
    said = _said("squeue", "--noheader", "--array", f"--user={os.geteuid()}", "--format=%i|%T")
    if said is None:
        return None
    return {job.strip(): state for job, _, state in (line.partition("|") for line in said.splitlines()) if state}


def how_it_ended(job: str) -> str:
    """`NODE_FAIL`, or `FAILED 0:9` with the exit code and signal; "" where there is no accounting to ask."""
    said = _said("sacct", "--allocations", "--noheader", "--parsable2", "--format=State,ExitCode", f"--jobs={job}")
    state, _, code = (said or "").strip().partition("\n")[0].partition("|")
    return f"{state} {code}".strip() if code != "0:0" else state


def cancel(jobs: Iterable[str]) -> None:
    """Take jobs away, those that run included."""
    if listed := list(jobs):
        _said("scancel", *listed)


def _said(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

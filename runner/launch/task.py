"""Tasks for a cluster's scheduler: jobs that local processes of a node execute."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.config import register
from runner.launch import notes
from runner.launch.devices import to_share
from runner.launch.processes import Watch, Work, run_processes
from runner.terminal import Line

NOT_STARTED = "not started"  # the outcome of a run that would not have ended in time


@dataclass
class Task:
    """Jobs for one node. Recorded runs are skipped, so the task can be started again at any time."""

    folder: Path  # of its note and heartbeat (see `notes`)
    name: str  # in this folder
    work: Work  # without a deadline
    until: float | None  # the deadline by time.time(): no run is started that would end later

    def __call__(self) -> None:
        with notes.Heartbeat(self.folder, self.name) as heartbeat:
            carry_out(self.work, self.until, heartbeat)

    def checkpoint(self) -> Any:
        """Return the task that submitit queues again near the time limit: the same one, as runs have checkpoints."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def until(deadline: float | None) -> float | None:
    """Convert a deadline of this process's clock to the time of day, which is the same on other machines."""
    return None if deadline is None else time.time() + deadline - time.monotonic()


def carry_out(work: Work, until: float | None, watch: Watch) -> None:
    """Carry jobs out on this machine. The watch is also told of jobs that are not started."""
    register()
    work = replace(work, deadline=None if until is None else time.monotonic() + until - time.time())
    tally = run_processes(work, Line(sys.stderr), devices=to_share(work.jobs), watch=watch)
    for job in tally.not_started:
        watch.ended(job, NOT_STARTED, "")

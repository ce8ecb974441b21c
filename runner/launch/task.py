"""Tasks for a cluster's scheduler: jobs that local processes of a node execute."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.config import register
from runner.launch import notes
from runner.launch.devices import to_share
from runner.launch.processes import Watch, Work, run_processes
from runner.terminal import Line


@dataclass
class Task:
    """Jobs for one node. Recorded runs are skipped, so the task can be started again at any time."""

    folder: Path  # of its note and heartbeat (see `notes`)
    name: str  # in this folder
    work: Work

    def __call__(self) -> None:
        with notes.Heartbeat(self.folder, self.name) as heartbeat:
            carry_out(self.work, heartbeat)

    def checkpoint(self) -> Any:
        """Return the task that submitit queues again near the time limit: the same one, as runs have checkpoints."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def carry_out(work: Work, watch: Watch) -> None:
    """Carry jobs out on this machine."""
    register()
    run_processes(work, Line(sys.stderr), devices=to_share(work.jobs), watch=watch)

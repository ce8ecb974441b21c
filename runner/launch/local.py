"""This machine as a launcher: one process a run, spread over its GPUs where it has several."""

from __future__ import annotations

import platform
from dataclasses import replace

from pydantic.dataclasses import dataclass

from runner.launch import notes
from runner.launch import processes as local
from runner.launch.devices import to_share, workers
from runner.launch.processes import Tally, Work
from runner.terminal import Line

NAME = "local"


@dataclass(frozen=True, config={"extra": "forbid"})
class Local:
    """Processes of this machine."""

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`."""
        work = replace(work, at_once=work.at_once or workers(work.jobs))
        with notes.noted(work.root, NAME, work.jobs, platform.node()) as heartbeat:
            return local.run_processes(work, line, devices=to_share(work.jobs), watch=heartbeat)

"""This machine as a launcher: one process a run, spread over its GPUs where it has several."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace

from runner.config import ConfigError
from runner.launch import notes
from runner.launch import processes as local
from runner.launch.devices import to_share, workers
from runner.launch.processes import Tally, Work
from runner.terminal import Line

NAME = "local"


@dataclass(frozen=True)
class Local:
    """Processes of this machine."""

    def check(self, wait: bool) -> None:
        """Raise ConfigError if the command is not to wait."""
        if not wait:
            raise ConfigError("WAIT=no is for a cluster: what this machine computes ends with the command.")

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`."""
        work = replace(work, at_once=work.at_once or workers(work.jobs))
        with notes.noted(work.root, NAME, work.jobs, platform.node()) as heartbeat:
            return local.run_processes(work, line, devices=to_share(work.jobs), watch=heartbeat)

"""This machine as a launcher: one process a run, spread over its GPUs where it has several."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import dataclass

from runner.config import ConfigError
from runner.launch import notes
from runner.launch import processes as local
from runner.launch.devices import to_share, workers
from runner.launch.interface import Work
from runner.launch.processes import Tally
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
        folder, name = notes.folder_of(work.root), notes.new_name()
        at_once = work.at_once or workers(work.jobs)
        with suppress(OSError):
            runs = tuple(job.run_id for job in work.jobs)
            notes.write(folder, notes.Note(name, NAME, "", runs, host=platform.node()))
        try:
            with notes.Heartbeat(folder, name) as heartbeat:
                return local.run_jobs(
                    work.jobs, at_once, work.threads, work.estimates, work.deadline, line,
                    devices=to_share(work.jobs), watch=heartbeat,
                )  # fmt: skip
        finally:
            with suppress(OSError):
                notes.remove(folder, name)

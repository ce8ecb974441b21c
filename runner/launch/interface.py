"""The interface of launchers: given jobs, a launcher carries them out and returns a tally."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from runner.launch import notes
from runner.launch.processes import Tally, Work
from runner.records.files import recorded
from runner.terminal import Line


class Launcher(Protocol):
    """Carries jobs out. Its options are in its file in conf/launcher/, and are no part of a run."""

    def carry_out(self, work: Work, line: Line) -> Tally:
        """Execute jobs without records. A failed job stops no other."""


def run_jobs(launcher: Launcher, work: Work, line: Line) -> Tally:
    """Carry out the jobs without records. The tally counts the others as recorded."""
    done = [job for job in work.jobs if recorded(job.config)]
    known = {job.run_id for job in done}
    left = [job for job in work.jobs if job.run_id not in known]
    if left:
        notes.tidy(notes.folder_of(work.root))
    tally = launcher.carry_out(replace(work, jobs=left), line) if left else Tally()
    tally.recorded[:0] = done
    return tally


def runs_on_node(gpus: int, cpus: int, threads: int | None) -> int:
    """Return the number of runs that a task computes at a time, given its GPUs, its CPUs and the threads of a run."""
    return gpus or max(1, cpus // (threads or cpus))

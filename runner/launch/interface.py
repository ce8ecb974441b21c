"""The interface of launchers: given jobs, a launcher carries them out and returns a tally."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from runner.launch import notes
from runner.launch.processes import Tally
from runner.records.files import recorded
from runner.records.jobs import Job
from runner.terminal import Line


@dataclass(frozen=True)
class Work:
    """Jobs to carry out.

    Attributes:
        jobs: in the order in which they are started.
        at_once: the number of runs at a time, or of tasks on a cluster. None takes the launcher's default.
        threads: CPU threads of each run. None leaves it to PyTorch.
        estimates: seconds that a run will take, by run id. A run of unknown time is not in it.
        deadline: time.monotonic(), or None. No run is started later, nor one known to end later.
        wait: wait until all are done. If False, the tally lists the runs under way.
    """

    jobs: Sequence[Job]
    at_once: int | None = None
    threads: int | None = 1
    estimates: dict[str, float] = field(default_factory=dict)
    deadline: float | None = None
    wait: bool = True

    @property
    def root(self) -> Path:
        """The folder of all results, which is one for all jobs of a request."""
        return Path(self.jobs[0].config.runtime.results_root).expanduser()


class Launcher(Protocol):
    """Carries jobs out. Its options are in its file in conf/launcher/, and are no part of a run."""

    def check(self, wait: bool) -> None:
        """Raise ConfigError if it cannot work on this machine, or needs the command to `wait`."""

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

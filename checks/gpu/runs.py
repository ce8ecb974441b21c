"""The list of runs, and carrying them out: nothing is started that cannot end in the minutes left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from checks.gpu.pace import Pace, kind_of, measured
from runner.build.groups import Group
from runner.build.parts import build_dataset
from runner.cli.reproduce import ordered
from runner.config import ConfigError
from runner.config.yaml_file import read_yaml
from runner.data import DataError
from runner.data.originals import FOLDERS, missing
from runner.launch import Work, launcher_of, run_jobs
from runner.launch.processes import Tally
from runner.records.files import is_recorded, results_folder, stopped_path
from runner.records.jobs import Job, sweep_jobs
from runner.runs import durations
from runner.terminal import Line

LIST = Path(__file__).with_name("runs.yaml")
LEAST = 60.0  # seconds: with less left, no run of unknown time is started, and no further sweep is listed


@dataclass(frozen=True)
class Entry:
    """An entry of the list: a sweep, and the values of fields by which some of its runs are chosen."""

    sweep: str
    where: Mapping[str, Any] = field(default_factory=dict)

    def jobs(self, overrides: Sequence[str]) -> list[Job]:
        """List its runs under further overrides."""
        listed = sweep_jobs(self.sweep, overrides)
        return [job for job in listed if all(str(job.field(name)) == str(value) for name, value in self.where.items())]

    def __str__(self) -> str:
        return " ".join([self.sweep, *(f"{name}={value}" for name, value in self.where.items())])


def read_list(path: Path) -> list[Entry]:
    """Read the list of a file.

    Raises:
        ConfigError: it is no list of entries.
    """
    try:
        return [Entry(**entry) for entry in read_yaml(path).plain]
    except TypeError as error:
        raise ConfigError(f"{path} has to be a list of entries {{sweep: NAME, where: {{field: value}}}}.") from error


def unrecorded(jobs: Sequence[Job]) -> list[Job]:
    """Return the runs without a record."""
    return [job for job in jobs if not is_recorded(results_folder(job.values), job.run_id)]


def check_data(jobs: Sequence[Job]) -> None:
    """Refuse runs whose original files are not on this machine, as there may be no network to get them from.

    Raises:
        DataError: a file is missing, or is another one.
    """
    for name, job in {str(job.field("dataset.name")): job for job in jobs}.items():
        root = Path(job.config.runtime.data_root).expanduser()
        bundled = getattr(build_dataset(Group(job.config, "dataset"), job.config), "bundled", False)
        if not bundled and (absent := missing(name, root)):
            number = f" and {len(absent) - 1} more files are" if len(absent) > 1 else " is"
            raise DataError(
                f"{absent[0]}{number} missing: put {FOLDERS[name]} of {name} below the folder that DP_DATA_ROOT names."
            )


@dataclass
class Progress:
    """Runs of an entry by what a call did with them: recorded, failed or left."""

    entry: Entry
    left: list[Job]
    recorded: list[Job] = field(default_factory=list)
    failed: list[tuple[Job, str]] = field(default_factory=list)
    estimates: Mapping[str, float] = field(default_factory=dict)  # seconds of runs by run id

    def count(self, failed: Sequence[tuple[Job, str]]) -> None:
        """Count what is recorded by now, and what failed, which is not tried again."""
        ids = {job.run_id for job, _ in failed}
        tried = [job for job in self.left if job.run_id not in ids]
        self.failed += failed
        self.left = unrecorded(tried)
        left = {job.run_id for job in self.left}
        self.recorded += [job for job in tried if job.run_id not in left]


@dataclass(frozen=True)
class Lease:
    """The minutes that are left of a GPU, and how they are used.

    Attributes:
        deadline: the time.time() by which every run has to end.
        at_once: runs at a time.
        pace: the file with measured seconds of an epoch.
        code: the digest of the code that is measured.
    """

    deadline: float
    at_once: int
    pace: Path
    code: str

    def estimates(self, jobs: Sequence[Job]) -> dict[str, float]:
        """Return the seconds of runs by run id: by the pace of a run that was stopped, else by records of this GPU."""
        estimated = durations.estimated(jobs, durations.recorded(jobs[0].config)) if jobs else {}
        paces = measured(self.pace, self.code)
        paces_by_run = {job.run_id: paces[kind_of(job)] for job in jobs if kind_of(job) in paces}
        epochs = {job.run_id: int(job.values["epochs"]) for job in jobs}
        return estimated | {run_id: pace.seconds(epochs[run_id]) for run_id, pace in paces_by_run.items()}

    def carry_out(self, progress: Progress, line: Line) -> Iterator[None]:
        """Carry out the runs of an entry that can end in time, a batch with each step of the iterator.

        Of a kind of run whose seconds are unknown, `at_once` runs are started first. These measure them, and the rest
        follows if it can end. A run that turns out to be too slow is stopped after its second epoch.
        """
        while progress.left:
            estimates = progress.estimates = self.estimates(progress.left)
            seconds_left = self.deadline - time.time()
            fitting = [
                job
                for job in ordered({"": progress.left}, progress.left, estimates)
                if estimates.get(job.run_id, LEAST) <= seconds_left
            ]
            if not fitting:
                return
            first = fitting[0]
            if first.run_id in estimates:
                batch = list(takewhile(lambda job: job.run_id in progress.estimates, fitting))
            else:
                batch = [job for job in fitting if kind_of(job) == kind_of(first)][: self.at_once]
            watched = [replace(job, goes_on=Pace(job, self.deadline, self.pace, self.code)) for job in batch]
            paths = [stopped_path(results_folder(job.values), job.run_id) for job in batch]
            absent = [path for path in paths if not path.exists()]  # what a search stopped stays
            tally = Tally()
            try:
                tally = run_jobs(launcher_of("local"), Work(watched, self.at_once, 1, estimates, self.deadline), line)
            finally:
                for path in absent:
                    path.unlink(missing_ok=True)
                progress.count(tally.failed)
            yield

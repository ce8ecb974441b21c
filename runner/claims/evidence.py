"""Planned runs, paired with their records. Aggregation reads records only here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.claims.runs import PlannedRun, Runs
from runner.claims.statistics import Spread, typical
from runner.config import PAPER, RESULTS, options_of
from runner.records.files import find_record, read_record, record_path, results_folder, stopped_path
from runner.records.jobs import Job, sweep_jobs

PAPER_SCALE = PAPER


@dataclass(frozen=True)
class Evidence:
    """The planned runs of some sweeps at one scale, by sweep, and the folder of their records, if there is one."""

    scale: str
    sweeps: Mapping[str, Sequence[PlannedRun]]
    folder: Path | None = None

    def planned(self, sweeps: str | Sequence[str], experiment: str) -> Runs:
        """Return the planned runs of an experiment, recorded or not, in a sweep, or in the first of several with it."""
        for sweep in [sweeps] if isinstance(sweeps, str) else sweeps:
            if runs := Runs(run for run in self.sweeps.get(sweep, ()) if run.job.experiment == experiment):
                return runs
        return Runs()

    def recorded(self, sweeps: str | Sequence[str], experiment: str) -> Runs:
        """Return the runs of `planned` that have a record."""
        return self.planned(sweeps, experiment).recorded

    def spread(self, dataset: str) -> Spread | None:
        """Return the spread of last accuracies about a setting's mean that is typical of all settings of a data set.

        Runs that diverged are left out, and runs of one epoch, which are made to look at the first steps. None if no
        setting has two runs.
        """
        return self._spreads.get(dataset)

    @cached_property
    def _spreads(self) -> dict[str, Spread | None]:
        runs = {run.job.run_id: run for of in self.sweeps.values() for run in of if run.record is not None}
        finished = Runs(run for run in runs.values() if not run.diverged and run.field("epochs") > 1)
        return {
            str(dataset): typical(of.finals("test_accuracy") for of in its.by(lambda run: run.job.setting_id).values())
            for dataset, its in finished.by(lambda run: run.field("dataset.name")).items()
        }

    def only_in(self, folder: Path) -> Evidence:
        """Return the same plan with the records of another folder alone."""
        sweeps = {
            sweep: Runs(
                PlannedRun(
                    run.job, read_record(path) if (path := record_path(folder, run.job.run_id)).exists() else None
                )
                for run in runs
            )
            for sweep, runs in self.sweeps.items()
        }
        return Evidence(self.scale, sweeps, folder)

    def of(self, jobs: Iterable[Job]) -> Runs:
        """Pair runs that no sweep plans with their records."""
        return Runs(PlannedRun(job, None if self.folder is None else _read(self.folder, job)) for job in jobs)

    def of_trials(self, jobs: Iterable[Job]) -> Runs:
        """Pair trials with their records, or with the first epochs of those that a search stopped."""
        runs = self.of(jobs)
        return runs if self.folder is None else Runs(_with_stopped(self.folder, run) for run in runs)


def check_scale(scale: str) -> None:
    """Check that a scale exists.

    Raises:
        ValueError: there is no such scale; the message lists them.
    """
    if scale not in (known := options_of("scale")):
        raise ValueError(f"Unknown scale {scale!r}: choose from {', '.join(known)}.")


def folder_of(scale: str, results_root: Path | None = None) -> Path:
    """Return the folder of a scale's results, by the rule that the runs themselves follow.

    Raises:
        ValueError: there is no such scale.
    """
    check_scale(scale)
    root = RESULTS if results_root is None else results_root
    return results_folder({"runtime": {"results_root": str(root)}, "scale": {"name": scale}})


def collect(sweeps: Iterable[str], scale: str = PAPER_SCALE, results_root: Path | None = None) -> Evidence:
    """List the runs of these sweeps and read their records; other records are ignored.

    Raises:
        ValueError: there is no such scale, or a record is damaged; the message names the file.
    """
    folder = folder_of(scale, results_root)
    extra = (f"scale={scale}",)  # as the driver of a reproduction lists them: composed once, then cached
    return Evidence(
        scale,
        {s: Runs(PlannedRun(job, _read(folder, job)) for job in sweep_jobs(s, extra)) for s in dict.fromkeys(sweeps)},
        folder,
    )


def _read(folder: Path, job: Job) -> dict[str, Any] | None:
    path = find_record(folder, job.run_id)
    return read_record(path) if path.exists() else None


def _with_stopped(folder: Path, run: PlannedRun) -> PlannedRun:
    path = stopped_path(folder, run.job.run_id)
    return PlannedRun(run.job, read_record(path)) if run.record is None and path.exists() else run

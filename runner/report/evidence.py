"""What was planned, and what of it was recorded: the only place where aggregation reads records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from runner.config import REPOSITORY
from runner.runs.classes import check_same_classes
from runner.runs.identity import plain
from runner.runs.jobs import Job, sweep_jobs
from runner.runs.records import read_record, record_path, results_folder

PAPER_SCALE = "paper"
_SECTIONS = ("setting_id", "status", "history", "final", "diagnostics", "provenance")


@dataclass(frozen=True)
class PlannedRun:
    """One run that a sweep plans, and its record where there is one."""

    job: Job
    record: dict[str, Any] | None

    @property
    def diverged(self) -> bool:
        return self.record is not None and self.record["status"] == "diverged"

    @property
    def delta(self) -> float:
        """The delta that the run's epsilons are at."""
        return float(self.job.config.delta)

    def final(self, name: str) -> float:
        """A number of the last epoch (test_accuracy, epsilon, ...), or the best epoch's."""
        return float(self._recorded["final"][name])

    def history(self, name: str) -> list[float]:
        """A number by epoch: [epochs]."""
        return [float(value) for value in self._recorded["history"][name]]

    def diagnostic(self, name: str) -> Any:
        """A diagnostic as recorded (see runner.training.diagnostics); non-finite numbers in it are strings."""
        if name not in self._recorded["diagnostics"]:
            raise ValueError(f"Run {self.job.run_id} ({self.job.label}) recorded no {name}.")
        return self._recorded["diagnostics"][name]

    @property
    def _recorded(self) -> dict[str, Any]:
        if self.record is None:
            raise ValueError(f"Run {self.job.run_id} ({self.job.label}) has no record.")
        return self.record


@dataclass(frozen=True)
class Evidence:
    """The planned runs of some sweeps at one scale, by sweep."""

    scale: str
    sweeps: dict[str, list[PlannedRun]]

    def planned(self, sweep: str, experiment: str) -> list[PlannedRun]:
        """The planned runs of one experiment in one sweep, recorded or not."""
        return [run for run in self.sweeps.get(sweep, []) if run.job.experiment == experiment]

    def recorded(self, sweep: str, experiment: str) -> list[PlannedRun]:
        """The planned runs of an experiment in a sweep that have a record."""
        return [run for run in self.planned(sweep, experiment) if run.record is not None]

    def any_recorded(self, sweeps: Iterable[str]) -> bool:
        """Whether any run of these sweeps has a record."""
        return any(run.record is not None for sweep in sweeps for run in self.sweeps.get(sweep, []))


def scales() -> list[str]:
    """The scales there are: the options of the config group `scale`."""
    return sorted(path.stem for path in (REPOSITORY / "conf" / "scale").glob("*.yaml"))


def folder_of(scale: str, results_root: Path | None = None) -> Path:
    """Where the results of a scale belong, by the rule that the runs themselves follow.

    Raises:
        ValueError: there is no such scale.
    """
    if scale not in scales():
        raise ValueError(f"Unknown scale {scale!r}: choose from {', '.join(scales())}.")
    root = REPOSITORY / "results" if results_root is None else results_root
    return results_folder(OmegaConf.create({"runtime": {"results_root": str(root)}, "scale": {"name": scale}}))


def collect(sweeps: Iterable[str], scale: str = PAPER_SCALE, results_root: Path | None = None) -> Evidence:
    """List the runs of these sweeps and read the records that exist. Records of no planned run are not looked
    at.

    Raises:
        ValueError: no such scale, or a record is damaged; the message names the file.
    """
    folder = folder_of(scale, results_root)
    extra = (f"scale={scale}",)  # as the driver of a reproduction lists them: composed once, then cached
    return Evidence(
        scale,
        {s: [PlannedRun(job, _read(folder, job)) for job in sweep_jobs(s, extra)] for s in dict.fromkeys(sweeps)},
    )


def _read(folder: Path, job: Job) -> dict[str, Any] | None:
    path = record_path(folder, job.run_id)
    if not path.exists():
        return None
    record = read_record(path)
    check_same_classes(plain(job.config), record["config"], str(path))
    for section in _SECTIONS:
        if section not in record:
            raise ValueError(f"{path} is not a whole record: it has no {section}.")
    if not record["history"].get("epoch"):
        raise ValueError(f"{path} is not a whole record: it has no epoch.")
    return record

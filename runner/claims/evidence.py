"""Runs in aggregation: planned runs with their records, sequences of them, and the plan of some sweeps."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from runner.claims.intervals import Spread, typical
from runner.config import PAPER, RESULTS, ConfigError, options_of
from runner.records.disk import record_path, results_folder, stopped_path, upper_bound
from runner.records.jobs import Job, sweep_jobs
from runner.records.store import record_of, stored

PAPER_SCALE = PAPER
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class PlannedRun:
    """One run that a sweep plans, and its record if there is one."""

    job: Job
    record: dict[str, Any] | None

    @property
    def diverged(self) -> bool:
        return self.record is not None and self.record["status"] == "diverged"

    @property
    def delta(self) -> float:
        return float(self.field("delta"))

    @property
    def seed(self) -> int:
        return int(self.field("seed"))

    @property
    def name(self) -> str:
        """The experiment without its folder, "mnist_tanh"."""
        return str(self.job.experiment.rpartition("/")[2])

    @property
    def last_epoch(self) -> int:
        """The last recorded epoch, from 0."""
        return len(self.history("epoch")) - 1

    def last_within(self, epsilon: float, by: str = "epsilon_sound") -> int | None:
        """Return the last epoch, from 0, whose sound (or other) epsilon is within a bound, or None if none is."""
        return max((epoch for epoch, spent in enumerate(self.history(by)) if spent <= epsilon), default=None)

    @property
    def has_spent(self) -> bool:
        """True if what the recorded steps cost differs from what is guaranteed."""
        return "epsilon_spent" in self._recorded["final"]

    @property
    def updates_chosen_by_all_images(self) -> bool:
        """True if all images reported on also decided which updates to accept (see `unscreened_accuracy`)."""
        history = self._recorded["history"]
        return "unscreened_accuracy" in history and all(map(math.isnan, self.history("unscreened_accuracy")))

    def field(self, name: str) -> Any:
        """Return a field of the run's config, such as "optimizer.lr", as a JSON value; None if it has none."""
        return self.job.field(name)

    def final(self, name: str) -> float:
        """Return one of the final metrics: test_accuracy, epsilon, best_test_accuracy and so on.

        An unknown sound epsilon is infinite: nothing is guaranteed. `epsilon_spent` is the sound one where that is all.
        """
        final = self._recorded["final"]
        return upper_bound(final["epsilon_sound" if name == "epsilon_spent" and name not in final else name])

    def history(self, name: str) -> list[float]:
        """Return a metric by epoch: [epochs].

        The sound epsilon is what a run guarantees that is told beforehand to end after the epoch. Where this does not
        fix the steps, it is the guarantee of the whole run at every epoch; it is infinite if there is none.
        `epsilon_spent` is the cost of the steps until then.
        """
        history = self._recorded["history"]
        if name == "epsilon_sound" and name not in history:
            return [self.final(name)] * len(history["epoch"])
        name = "epsilon_sound" if name == "epsilon_spent" and name not in history else name
        return [upper_bound(value) for value in history[name]]

    def diagnostic(self, name: str) -> Any:
        """Return a diagnostic as recorded (see runner.training.diagnostics); non-finite numbers in it are strings."""
        if name not in self._recorded["diagnostics"]:
            raise ValueError(f"Run {self.job.run_id} ({self.job.label}) recorded no {name}.")
        return self._recorded["diagnostics"][name]

    @property
    def _recorded(self) -> dict[str, Any]:
        if self.record is None:
            raise ValueError(f"Run {self.job.run_id} ({self.job.label}) has no record.")
        return self.record


def decides(run: PlannedRun) -> bool:
    """Return True if the run, recorded or not, itself decides how much it releases.

    It may end early, because its rule or its data end it, or because a budget is spent on kept updates.
    """
    if run.record is not None:
        return "max_tries" in run.record["final"]
    if run.field("max_epsilon") is None or not run.field("screening"):
        return False
    if run.job.setting_id not in _reversible:
        from runner.build.groups import Group  # PyTorch takes a second to import
        from runner.build.parts import build_rule

        _reversible[run.job.setting_id] = build_rule(Group(run.job.config, "screening")).takes_back
    return _reversible[run.job.setting_id]


_reversible: dict[str, bool] = {}  # by setting


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by a key, in the order in which its values first occur."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def last_accuracy(run: PlannedRun) -> float:
    """Return the test accuracy in percent after the last epoch, of diverged runs, too."""
    return run.final("test_accuracy")


class Runs(tuple[PlannedRun, ...]):
    """Planned runs in the order of their sweep, recorded or not. Numbers come from the recorded ones."""

    __slots__ = ()

    @property
    def recorded(self) -> "Runs":
        return Runs(run for run in self if run.record is not None)

    @property
    def recorded_of(self) -> str:
        """How many of the planned runs are recorded: "3 of 10"."""
        return f"{len(self.recorded)} of {len(self)}"

    @property
    def diverged(self) -> int:
        return sum(run.diverged for run in self)

    @property
    def delta(self) -> float:
        """The largest delta of the runs' epsilons."""
        return max(run.delta for run in self.recorded)

    @property
    def last(self) -> "RunsAt":
        """The recorded runs, each at its last epoch."""
        return self.at(lambda run: run.last_epoch)

    def where(self, field: str, value: object) -> "Runs":
        """Return the runs whose config has this value in a field."""
        return Runs(run for run in self if run.field(field) == value)

    def by(self, key: Callable[[PlannedRun], Hashable]) -> "dict[Any, Runs]":
        """Group the runs by a key, in the order in which its values first occur."""
        return {value: Runs(runs) for value, runs in grouped(self, key).items()}

    def groups_by(self, field: str) -> "dict[float, Runs]":
        """Group the runs by the number in a field of their config, the smallest first."""
        return dict(sorted(self.by(lambda run: float(run.field(field))).items()))

    @property
    def best(self) -> PlannedRun:
        """The recorded run with the highest last accuracy, the first one in a tie."""
        return max(self.recorded, key=last_accuracy)

    def finals(self, name: str) -> list[float]:
        """Return a final metric of each recorded run."""
        return [run.final(name) for run in self.recorded]

    def largest(self, name: str) -> float:
        """Return the largest value of one of the final metrics."""
        return max(self.finals(name))

    def sample(self, number: Callable[[PlannedRun], float]) -> tuple[float, ...]:
        """Return a number of each recorded run."""
        return tuple(map(number, self.recorded))

    def at(self, epoch: Callable[[PlannedRun], int | None]) -> "RunsAt":
        """Return the recorded runs, each at its epoch, from 0, without runs for which `epoch` returns None."""
        epochs = ((run, epoch(run)) for run in self.recorded)
        return RunsAt((run, number) for run, number in epochs if number is not None)


class RunsAt(tuple[tuple[PlannedRun, int], ...]):
    """Recorded runs, each with an epoch, from 0, after which its numbers are read."""

    __slots__ = ()

    @property
    def runs(self) -> Runs:
        return Runs(run for run, _ in self)

    @property
    def epochs(self) -> str:
        """The epochs counted from 1, each once: "29", "28, 29"; empty if there are no runs."""
        return ", ".join(map(str, sorted({epoch + 1 for _, epoch in self})))

    def values(self, name: str) -> list[float]:
        """Return a metric of each run."""
        return [run.history(name)[epoch] for run, epoch in self]

    def largest(self, name: str) -> float:
        """Return the largest value of a metric."""
        return max(self.values(name))


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
        runs = {run.job.run_id: run for planned in self.sweeps.values() for run in planned if run.record is not None}
        finished = Runs(run for run in runs.values() if not run.diverged and run.field("epochs") > 1)
        spreads = {}
        for dataset, runs_of_dataset in finished.by(lambda run: run.field("dataset.name")).items():
            settings = runs_of_dataset.by(lambda run: run.job.setting_id).values()
            spreads[str(dataset)] = typical(setting.finals("test_accuracy") for setting in settings)
        return spreads

    def only_in(self, folder: Path) -> "Evidence":
        """Return the same plan with the records of another folder alone."""

        def paired(run: PlannedRun) -> PlannedRun:
            path = record_path(folder, run.job.run_id)
            return PlannedRun(run.job, stored(path) if path.exists() else None)

        return Evidence(self.scale, {sweep: Runs(map(paired, runs)) for sweep, runs in self.sweeps.items()}, folder)

    def of(self, jobs: Iterable[Job]) -> Runs:
        """Pair runs that no sweep plans with their records."""
        folder = self.folder
        return Runs(PlannedRun(job, None if folder is None else record_of(folder, job.run_id)) for job in jobs)

    def trials(self, jobs: Iterable[Job]) -> Runs:
        """Pair trials with their records, or with the first epochs of those that a search stopped."""
        runs = []
        for run in self.of(jobs):
            path = None if self.folder is None else stopped_path(self.folder, run.job.run_id)
            stopped = run.record is None and path is not None and path.exists()
            runs.append(PlannedRun(run.job, stored(path)) if path and stopped else run)
        return Runs(runs)


def check_scale(scale: str) -> None:
    """Raise a ConfigError, which lists the scales, if there is no such scale."""
    if scale not in (scales := options_of("scale")):
        raise ConfigError(f"Unknown scale {scale!r}: choose from {', '.join(scales)}.")


def folder_of(scale: str, results_root: Path | None = None) -> Path:
    """Return the folder of a scale's results, by the rule that the runs themselves follow.

    Raises:
        ConfigError: there is no such scale.
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
    plan = Evidence(scale, {}, folder)
    return replace(plan, sweeps={sweep: plan.of(sweep_jobs(sweep, extra)) for sweep in dict.fromkeys(sweeps)})

"""Runs as aggregation sees them: one that was planned, some of them, and some at an epoch each."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from runner.records.files import upper_bound
from runner.records.jobs import Job


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
        return float(self.field("delta"))

    @property
    def seed(self) -> int:
        return int(self.field("seed"))

    @property
    def name(self) -> str:
        """The experiment without its folder, "mnist_tanh"."""
        return str(self.job.experiment.rpartition("/")[2])

    def field(self, name: str) -> Any:
        """A field of the run's config ("optimizer.lr"), as a JSON value; None where there is none."""
        return self.job.field(name)

    def final(self, name: str) -> float:
        """A number of the last epoch (test_accuracy, epsilon, ...), or the best epoch's.

        A sound epsilon that is not known is infinite: nothing is guaranteed.
        """
        return upper_bound(self._recorded["final"][name])

    def history(self, name: str) -> list[float]:
        """A number by epoch: [epochs]. A sound epsilon that is not known is infinite."""
        return [upper_bound(value) for value in self._recorded["history"][name]]

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
class Sample:
    """One number a run, and the run's seed: [n] each."""

    values: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()


def last_accuracy(run: PlannedRun) -> float:
    """Test accuracy in percent after the last epoch; of a diverged run as it ended."""
    return run.final("test_accuracy")


class Runs(tuple[PlannedRun, ...]):
    """Planned runs in the order of their sweep, recorded or not. What is measured is of the recorded ones."""

    __slots__ = ()

    @property
    def recorded(self) -> Runs:
        return Runs(run for run in self if run.record is not None)

    @property
    def recorded_of(self) -> str:
        """`3 of 10`: how many are recorded, and planned."""
        return f"{len(self.recorded)} of {len(self)}"

    @property
    def diverged(self) -> int:
        """How many of the recorded runs diverged."""
        return sum(run.diverged for run in self)

    @property
    def delta(self) -> float:
        """The largest delta that the runs' epsilons are at."""
        return max(run.delta for run in self.recorded)

    @property
    def last(self) -> RunsAt:
        """The recorded runs, each at its last epoch."""
        return self.at(lambda run: len(run.history("epoch")) - 1)

    def where(self, field: str, value: object) -> Runs:
        """The runs whose config has this value in a field."""
        return Runs(run for run in self if run.field(field) == value)

    def by(self, key: Callable[[PlannedRun], Hashable]) -> dict[Any, Runs]:
        """The runs grouped by what `key` gives of each, in the order in which that first comes up."""
        groups: dict[Hashable, list[PlannedRun]] = {}
        for run in self:
            groups.setdefault(key(run), []).append(run)
        return {of: Runs(runs) for of, runs in groups.items()}

    def by_value(self, field: str) -> dict[float, Runs]:
        """The runs grouped by the number in a field of their config, the smallest first."""
        return dict(sorted(self.by(lambda run: float(run.field(field))).items()))

    @property
    def best(self) -> PlannedRun:
        """The recorded run with the highest last accuracy; of equals the first."""
        return max(self.recorded, key=last_accuracy)

    def finals(self, name: str) -> list[float]:
        """A number of the last epoch, of each run."""
        return [run.final(name) for run in self.recorded]

    def largest(self, name: str) -> float:
        """The largest of a number of the last epoch."""
        return max(self.finals(name))

    def sample(self, number: Callable[[PlannedRun], float] = last_accuracy) -> Sample:
        """A number of each run with its seed, by default its last accuracy."""
        recorded = self.recorded
        return Sample(tuple(number(run) for run in recorded), tuple(run.seed for run in recorded))

    def at(self, epoch: Callable[[PlannedRun], int | None]) -> RunsAt:
        """The recorded runs, each at its epoch, from 0; those of which `epoch` gives None are left out."""
        return RunsAt((run, found) for run in self.recorded if (found := epoch(run)) is not None)

    def last_below(self, bound: float, by: str = "epsilon") -> RunsAt:
        """The recorded runs at their last epoch with an epsilon (or epsilon_sound) below a bound, if they have one."""

        def last(run: PlannedRun) -> int | None:
            return max((epoch for epoch, spent in enumerate(run.history(by)) if spent < bound), default=None)

        return self.at(last)


class RunsAt(tuple[tuple[PlannedRun, int], ...]):
    """Recorded runs, each with an epoch, from 0: numbers are those after this epoch."""

    __slots__ = ()

    @property
    def runs(self) -> Runs:
        return Runs(run for run, _ in self)

    @property
    def delta(self) -> float:
        """The largest delta that the runs' epsilons are at."""
        return self.runs.delta

    @property
    def epochs(self) -> str:
        """The epochs counted from 1, each once: "29", "28, 29"; empty where there are no runs."""
        return ", ".join(map(str, sorted({epoch + 1 for _, epoch in self})))

    def values(self, name: str) -> list[float]:
        """A number of each run."""
        return [run.history(name)[epoch] for run, epoch in self]

    def largest(self, name: str) -> float:
        """The largest of a number."""
        return max(self.values(name))

    def best_until(self, name: str) -> list[float]:
        """The largest of a number up to the epoch, of each run."""
        return [max(run.history(name)[: epoch + 1]) for run, epoch in self]

    def sample(self, name: str = "test_accuracy") -> Sample:
        """A number of each run with its seed."""
        return Sample(tuple(self.values(name)), tuple(run.seed for run, _ in self))

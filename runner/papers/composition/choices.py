"""Choices by the searches on held-out images: a learning rate for every setting, and the best of the cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from runner.claims.contrasts import Cell
from runner.claims.evidence import Evidence
from runner.claims.runs import PlannedRun, Runs, last_accuracy
from runner.papers.composition.design import CELLS, PARTS

PAPER = "composition"
DATASETS = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}  # each data set's sweep and title
EPSILONS = (1.0, 3.0)
RATE = "optimizer.lr"
FIELDS = (  # the fields of a setting for which a rate is chosen
    "dataset.name",
    *(f"{part.group}._target_" for part in (PARTS[3], *PARTS[:3])),
    "loss.beta",  # stands for the parameters of the loss, as no two sets of them share it
    "screening.initial_temperature",
    "target_epsilon",
)
Setting: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Choice:
    """The rates searched for a setting, and the held-out accuracies (percent) of the runs so far.

    `rate` is the one with the highest accuracy, and the smallest of several. It is None until all have run.
    """

    rates: tuple[float, ...]
    accuracies: dict[float, float]

    @property
    def rate(self) -> float | None:
        if len(self.accuracies) < len(self.rates):
            return None
        return max(sorted(self.accuracies), key=self.accuracies.__getitem__)

    @property
    def accuracy(self) -> float | None:
        """Return the accuracy on held-out images, at the chosen rate."""
        return None if self.rate is None else self.accuracies[self.rate]

    @property
    def at_edge(self) -> bool:
        """Return True if a smaller or larger rate than the searched ones may be better."""
        return self.rate in (min(self.rates), max(self.rates))

    @property
    def text(self) -> str:
        """Return the choice in words: `1 (of 0.5, 1, 2)`."""
        rates = ", ".join(f"{rate:g}" for rate in self.rates)
        if self.rate is None:
            return f"not chosen yet ({len(self.accuracies)} of {rates} run)"
        return f"{self.rate:g} (of {rates}{'; at the edge' if self.at_edge else ''})"


def setting_of(run: PlannedRun) -> Setting:
    """Return the setting for which a run's rate is chosen."""
    return tuple(run.field(name) for name in FIELDS)


def searches(evidence: Evidence, sweep: str) -> list[str]:
    """Return the recorded or planned sweeps that search for the rates of this one."""
    return [name for name in evidence.sweeps if name.startswith(f"{sweep}_search")]


def choices(evidence: Evidence, sweeps: Iterable[str]) -> dict[Setting, Choice]:
    """Return the choices of these searches, by setting."""
    searched = Runs(run for sweep in sweeps for run in evidence.sweeps.get(sweep, ()))
    found = {}
    for setting, runs in searched.by(setting_of).items():
        rates = tuple(sorted({float(run.field(RATE)) for run in runs}))  # two searches may list a run
        found[setting] = Choice(rates, {float(run.field(RATE)): last_accuracy(run) for run in runs.recorded})
    return found


def at_chosen_rates(evidence: Evidence, sweep: str) -> Runs:
    """Return the planned runs of a sweep at the rate that the search chose for their setting."""
    chosen = choices(evidence, searches(evidence, sweep))
    runs = Runs(evidence.sweeps.get(sweep, ()))
    return Runs(run for run in runs if (c := chosen.get(setting_of(run))) and c.rate == float(run.field(RATE)))


def best_cell(evidence: Evidence) -> Cell | None:
    """Return the cell with the highest mean of held-out accuracies over data sets and epsilons, at chosen rates.

    It is None until the whole search has run.
    """
    accuracies: dict[Cell, list[float]] = {}
    for sweep in DATASETS:
        for setting, choice in choices(evidence, searches(evidence, f"{PAPER}/{sweep}")).items():
            if choice.accuracy is None:
                return None
            accuracies.setdefault(cell_of(setting), []).append(choice.accuracy)
    if len(accuracies) != len(CELLS) or len({len(of) for of in accuracies.values()}) != 1:
        return None
    return max(accuracies, key=lambda cell: fmean(accuracies[cell]))


def cell_of(setting: Setting) -> Cell:
    """Return the cell that a setting belongs to."""
    classes = dict(zip(FIELDS, setting, strict=True))
    return tuple(bool(part.classes.index(classes[f"{part.group}._target_"])) for part in PARTS)

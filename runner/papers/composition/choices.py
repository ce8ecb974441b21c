"""What the searches on held-out images chose: a learning rate for every setting, and the best of the cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from runner.claims.evidence import Evidence
from runner.claims.runs import PlannedRun, Runs, last_accuracy
from runner.papers.composition.design import CELLS, PARTS, Cell

PAPER = "composition"
DATASETS = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}  # the sweep of each, and its name
EPSILONS = (1.0, 3.0)
RATE = "optimizer.lr"
FIELDS = (  # what a rate is chosen for
    "dataset.name",
    *(f"{part.group}._target_" for part in (PARTS[3], *PARTS[:3])),
    "loss.beta",  # the parameters of the loss: no two of their sets have the same
    "screening.initial_temperature",
    "target_epsilon",
)
Setting: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Choice:
    """The rates that were searched for a setting, the held-out accuracy (percent) of those that have run, and the rate
    of the highest, of equals the smallest; None until all have run.
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
        """On held-out images, at the chosen rate."""
        return None if self.rate is None else self.accuracies[self.rate]

    @property
    def at_edge(self) -> bool:
        """Whether a smaller or larger rate than those searched may be better."""
        return self.rate in (min(self.rates), max(self.rates))

    @property
    def text(self) -> str:
        """`1 (of 0.5, 1, 2)`."""
        rates = ", ".join(f"{rate:g}" for rate in self.rates)
        if self.rate is None:
            return f"not chosen yet ({len(self.accuracies)} of {rates} run)"
        return f"{self.rate:g} (of {rates}{'; at the edge' if self.at_edge else ''})"


def setting_of(run: PlannedRun) -> Setting:
    """What a rate is chosen for."""
    return tuple(run.field(name) for name in FIELDS)


def searches(evidence: Evidence, sweep: str) -> list[str]:
    """The sweeps that search for the rates of this one, among those there is evidence of."""
    return [name for name in evidence.sweeps if name.startswith(f"{sweep}_search")]


def choices(evidence: Evidence, sweeps: Iterable[str]) -> dict[Setting, Choice]:
    """What these searches chose, by setting."""
    searched = Runs(run for sweep in sweeps for run in evidence.sweeps.get(sweep, ()))
    found = {}
    for setting, runs in searched.by(setting_of).items():
        rates = tuple(sorted({float(run.field(RATE)) for run in runs}))  # two searches may list a run
        found[setting] = Choice(rates, {float(run.field(RATE)): last_accuracy(run) for run in runs.recorded})
    return found


def at_chosen_rates(evidence: Evidence, sweep: str) -> Runs:
    """The planned runs of a sweep that are at the rate that the search chose for their setting."""
    chosen = choices(evidence, searches(evidence, sweep))
    runs = Runs(evidence.sweeps.get(sweep, ()))
    return Runs(run for run in runs if (c := chosen.get(setting_of(run))) and c.rate == float(run.field(RATE)))


def best_cell(evidence: Evidence) -> Cell | None:
    """The cell with the highest mean of held-out accuracies over data sets and epsilons, each at its chosen rate.

    None until the whole search has run.
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
    """The cell that a setting is of."""
    classes = dict(zip(FIELDS, setting, strict=True))
    return tuple(bool(part.classes.index(classes[f"{part.group}._target_"])) for part in PARTS)

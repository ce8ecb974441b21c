"""The factorial: four parts of a private network, each at an old and a new level, in all sixteen combinations.

With n_c runs in cell c, their accuracies y_cr independent and normal with a mean and a variance of the cell's own,
every number here is a contrast, L = sum_c w_c mean_c with sum_c w_c = 0. Its variance is sum_c w_c^2 sigma_c^2 / n_c,
estimated without bias by V = sum_c V_c, V_c = w_c^2 s_c^2 / n_c, with s_c the standard deviation of the cell's runs. So

    L plus or minus t_{f, 97.5%} sqrt(V)    with    f = V^2 / (sum_c V_c^2 / (n_c - 1))

(Welch, and Satterthwaite's f) holds L's true value in about 95% of all repetitions, from three runs a cell on. One
spread for all cells would be simpler, and is not what runs have: where all parts are old they spread two to three times
as much as where all are new, and that cell has the largest weight in what the whole is more than its parts. At such
spreads the interval from a common one holds in 85 to 90% of simulated repetitions.

The contrasts, with x_i = 1 where part i is new and -1 where it is old, and [i] the cell with part i alone new:

- the effect of the parts S: w_c = (1/8) prod_{i in S} x_i. Of one part that is the mean of the eight cells where it is
  new less the mean of the eight where it is old; of two, half of what the effect of the one gains when the other
  becomes new; of more, so on. Zero in all but single parts means that parts add up, wherever one starts.
- the gain of part i alone, mean_[i] - mean_old, and of all four together, mean_new - mean_old, from the cell where
  all are old;
- what the whole is more than its parts: (mean_new - mean_old) - sum_i (mean_[i] - mean_old)
  = mean_new - sum_i mean_[i] + 3 mean_old. Zero inside the interval: as far as these runs tell, the gains add up.

Near 100% points are harder to gain, so that what adds up need not be points. The other natural scale is the share of
errors that a part removes: with ln(100 - y_cr) in the place of y_cr the last contrast is the logarithm of the errors
that all four leave together, over those that they would leave, did each remove the share that it removes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean, stdev
from typing import TypeAlias

from runner.report.runs import PlannedRun, Runs
from runner.report.statistics import Interval, contrast

Cell: TypeAlias = tuple[bool, ...]  # by part, whether it is new
Accuracies: TypeAlias = Mapping[Cell, Sequence[float]]  # percent, a number a run


@dataclass(frozen=True)
class Part:
    """A config group of which an old and a new option are compared: their classes, and what people call them."""

    group: str
    classes: tuple[str, str]
    names: tuple[str, str]

    @property
    def step(self) -> str:
        """`tanh for ReLU`."""
        return f"{self.names[1]} for {self.names[0]}"

    def is_new(self, run: PlannedRun) -> bool | None:
        """Whether a run has the new level; None where it has neither."""
        found = run.field(f"{self.group}._target_")
        return self.classes.index(found) == 1 if found in self.classes else None


PARTS = (
    Part("activation", ("torch.nn.ReLU", "torch.nn.Tanh"), ("ReLU", "tanh")),
    Part(
        "loss",
        ("torch.nn.CrossEntropyLoss", "runner.networks.losses.LosingLess"),
        ("cross-entropy", "losing-less loss"),
    ),
    Part("clipping", ("runner.clipping.Flat", "runner.clipping.Automatic"), ("flat clipping", "automatic clipping")),
    Part("features", ("runner.data.features.Pixels", "runner.data.features.ScatterNet"), ("pixels", "ScatterNet")),
)
CELLS: tuple[Cell, ...] = tuple(product((False, True), repeat=len(PARTS)))
OLD, NEW = CELLS[0], CELLS[-1]
ALONE: tuple[Cell, ...] = tuple(tuple(i == j for j in range(len(PARTS))) for i in range(len(PARTS)))


def words(cell: Cell) -> list[str]:
    """What a cell is made of, a name a part."""
    return [part.names[new] for part, new in zip(PARTS, cell, strict=True)]


def by_cell(runs: Runs) -> dict[Cell, Runs]:
    """Runs by their cell; those that are of none are left out."""
    found = runs.by(lambda run: tuple(part.is_new(run) for part in PARTS))
    return {cell: of for cell, of in found.items() if None not in cell}


def effect_of(parts: Sequence[Part]) -> dict[Cell, float]:
    """The weights of the effect of some parts."""
    places = [PARTS.index(part) for part in parts]
    return {cell: math.prod(1 if cell[i] else -1 for i in places) * 2 / len(CELLS) for cell in CELLS}


def effects() -> list[tuple[Part, ...]]:
    """The sets of parts that have an effect, single ones first, then pairs, and so on."""
    return [parts for size in range(1, len(PARTS) + 1) for parts in combinations(PARTS, size)]


def gain_alone(part: Part) -> dict[Cell, float]:
    """The weights of the gain of one part alone, from where all are old."""
    return {ALONE[PARTS.index(part)]: 1.0, OLD: -1.0}


GAIN_OF_ALL: dict[Cell, float] = {NEW: 1.0, OLD: -1.0}
SUM_OF_GAINS: dict[Cell, float] = {**dict.fromkeys(ALONE, 1.0), OLD: -float(len(PARTS))}
MORE_THAN_PARTS: dict[Cell, float] = {NEW: 1.0, **dict.fromkeys(ALONE, -1.0), OLD: len(PARTS) - 1.0}


@dataclass(frozen=True)
class Estimate:
    """A contrast in points, or a ratio; its interval is None where one of its cells has no second run."""

    value: float
    interval: Interval | None


def estimate(accuracies: Accuracies, weights: Mapping[Cell, float]) -> Estimate | None:
    """A contrast of the cells' means; None where a cell that has a weight has no run."""
    if not all(accuracies.get(cell) for cell in weights):
        return None
    value = math.fsum(weight * fmean(accuracies[cell]) for cell, weight in weights.items())
    if min(len(accuracies[cell]) for cell in weights) < 2:
        return Estimate(value, None)
    return Estimate(value, contrast([(weight, accuracies[cell]) for cell, weight in weights.items()]))


def errors_left(accuracies: Accuracies) -> Estimate | None:
    """The errors that all parts leave together, over what independent shares of errors would leave: 1 if they are.

    None where a cell that it takes has no run, or where a run makes no error.
    """
    if any(value >= 100 for values in accuracies.values() for value in values):
        return None
    logarithms = {cell: [math.log(100 - value) for value in values] for cell, values in accuracies.items()}
    found = estimate(logarithms, MORE_THAN_PARTS)
    if found is None or found.interval is None:
        return None if found is None else Estimate(math.exp(found.value), None)
    low, high = (math.exp(end) for end in (found.interval.low, found.interval.high))
    return Estimate(math.exp(found.value), Interval(low, high))


def spreads(accuracies: Accuracies, weights: Mapping[Cell, float]) -> list[float]:
    """The standard deviations of runs within the cells that have a weight and a second run."""
    return [stdev(accuracies[cell]) for cell in weights if len(accuracies.get(cell, ())) > 1]

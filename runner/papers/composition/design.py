"""The factorial: four parts of a private network, each at an old and a new level, in all sixteen combinations.

Every number here is a contrast of the cells' mean accuracies, L = sum_c w_c mean_c with sum_c w_c = 0. All cells run
with the same seeds, and a seed is more than a label: it draws the first weights and the noise, so that the runs of one
seed go up and down together in some cells (flat and automatic clipping above all) and not in others. So L is taken
seed by seed: with y_cr the accuracy of cell c under seed r, of the n seeds that all cells of the contrast have,

    L_r = sum_c w_c y_cr,    L = mean_r L_r    plus or minus    t_{n-1, 97.5%} s / sqrt(n),

s the standard deviation of the n numbers L_r. Where the vectors (y_cr)_c of the seeds are independent draws of one
normal distribution, the L_r are independent draws of one normal number, whatever the cells' spreads and however they
hang together, so that this interval is exact. An interval that takes the cells to be independent (Welch's) is too
narrow where they are not and the weights add what goes together: where the runs of a seed are luckier with a part than
without, the interval of that part's effect. Its price is the few degrees of freedom: four, of five seeds.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean, stdev
from typing import TypeAlias, TypeVar

from runner.claims.runs import PlannedRun, Runs
from runner.claims.statistics import Interval, mean_of

Cell: TypeAlias = tuple[bool, ...]  # by part, whether it is new
Accuracies: TypeAlias = Mapping[Cell, Mapping[int, float]]  # percent, by seed
Group = TypeVar("Group")  # what runs are grouped by: a cell, or an experiment


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


def pairs_of(part: Part) -> list[tuple[Cell, Cell]]:
    """The eight pairs of cells that differ in a part alone: the one with its new level, the one with its old."""
    place = PARTS.index(part)
    return [(cell, (*cell[:place], False, *cell[place + 1 :])) for cell in CELLS if cell[place]]


GAIN_OF_ALL: dict[Cell, float] = {NEW: 1.0, OLD: -1.0}
SUM_OF_GAINS: dict[Cell, float] = {**dict.fromkeys(ALONE, 1.0), OLD: -float(len(PARTS))}
MORE_THAN_PARTS: dict[Cell, float] = {NEW: 1.0, **dict.fromkeys(ALONE, -1.0), OLD: len(PARTS) - 1.0}


@dataclass(frozen=True)
class Estimate:
    """A contrast in points, or a ratio, of the seeds that all its cells have run with, in order; its interval is None
    where that is one seed only.
    """

    value: float
    interval: Interval | None
    seeds: tuple[int, ...]

    @property
    def interval_at(self) -> Callable[[float], Interval] | None:
        """The interval at the one confidence that it is shown with."""
        found = self.interval
        return None if found is None else lambda _: found


def estimate(accuracies: Mapping[Group, Mapping[int, float]], weights: Mapping[Group, float]) -> Estimate | None:
    """A contrast, seed by seed; None where the cells that have a weight share no seed."""
    seeds = tuple(sorted(set.intersection(*(set(accuracies.get(cell, ())) for cell in weights))))
    if not seeds:
        return None
    by_seed = [math.fsum(weight * accuracies[cell][seed] for cell, weight in weights.items()) for seed in seeds]
    return Estimate(fmean(by_seed), mean_of(by_seed) if len(seeds) > 1 else None, seeds)


def errors_left(accuracies: Accuracies) -> Estimate | None:
    """The errors that all parts leave together, over what independent shares of errors would leave: 1 if they are.

    None where the cells that it takes share no seed, or where a run makes no error.
    """
    if any(value >= 100 for values in accuracies.values() for value in values.values()):
        return None
    logarithms = {
        cell: {seed: math.log(100 - value) for seed, value in values.items()} for cell, values in accuracies.items()
    }
    found = estimate(logarithms, MORE_THAN_PARTS)
    if found is None:
        return None
    interval = found.interval and Interval(math.exp(found.interval.low), math.exp(found.interval.high))
    return Estimate(math.exp(found.value), interval, found.seeds)


def spreads(accuracies: Accuracies, seeds: Sequence[int]) -> list[float]:
    """The standard deviations within cells of their runs with these seeds, two or more."""
    return [stdev(of[seed] for seed in seeds) for of in accuracies.values()]

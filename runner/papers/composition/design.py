"""The factorial design: four parts of a private network, each at an old and a new level, in all sixteen combinations.

Every number here is a contrast of the cells' mean accuracies, L = sum_c w_c mean_c with sum_c w_c = 0. All cells run
with the same seeds. A seed draws the first weights and the noise. So the runs of one seed go up and down together in
some cells (mostly flat and automatic clipping) and not in others. L is therefore computed for each seed. Let y_cr be
the accuracy of cell c under seed r, for the n seeds that all cells of the contrast have. Then

    L_r = sum_c w_c y_cr,    L = mean_r L_r    plus or minus    t_{n-1, 97.5%} s / sqrt(n),

with s the standard deviation of the n numbers L_r. Suppose the vectors (y_cr)_c of the seeds are independent draws of
one normal distribution. Then the L_r are independent draws of one normal number, for any spreads of the cells and any
correlation between them. So this interval is exact. Welch's interval assumes that the cells are independent. It is too
narrow if they are correlated and the weights add correlated cells. An example is the interval of a part's effect if the
runs of a seed are luckier with the part than without. The price of L_r is few degrees of freedom: four for five seeds.

The contrasts, with x_i = 1 if part i is new and -1 if it is old, and [i] the cell in which only part i is new:

- The effect of the parts S: w_c = (1/8) prod_{i in S} x_i. For one part this is a difference: the mean of the eight
  cells in which it is new, minus the mean of the eight in which it is old. For two parts it is half of the change in
  the effect of the one when the other becomes new. For more parts it continues so. If it is zero for all sets of more
  than one part, the parts add up from any starting point.
- The gain of part i alone, mean_[i] - mean_old, and of all four together, mean_new - mean_old, from the cell in which
  all are old.
- The excess of the whole over its parts: (mean_new - mean_old) - sum_i (mean_[i] - mean_old)
  = mean_new - sum_i mean_[i] + 3 mean_old. If zero is inside the interval, these runs do not contradict that gains add.

Near 100% points are harder to gain, so gains may add up on another scale. The other natural scale is the share of
errors that a part removes. Take ln(100 - y_cr) instead of y_cr. Then the last contrast is a logarithm of a ratio: the
errors that remain with all four, over the errors if each removed the same share as it does alone.
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

Cell: TypeAlias = tuple[bool, ...]  # by part, True if it is new
Accuracies: TypeAlias = Mapping[Cell, Mapping[int, float]]  # percent, by seed
Group = TypeVar("Group")  # the key by which runs are grouped: a cell, or an experiment


@dataclass(frozen=True)
class Part:
    """A config group with an old and a new option that are compared: their classes, and readable names."""

    group: str
    classes: tuple[str, str]
    names: tuple[str, str]

    @property
    def step(self) -> str:
        """Return the change in words: `tanh for ReLU`."""
        return f"{self.names[1]} for {self.names[0]}"

    def is_new(self, run: PlannedRun) -> bool | None:
        """Return True if a run has the new level, False for the old one, None for neither."""
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
    """Return a cell in words, a name per part."""
    return [part.names[new] for part, new in zip(PARTS, cell, strict=True)]


def by_cell(runs: Runs) -> dict[Cell, Runs]:
    """Return runs by their cell, without runs that belong to no cell."""
    found = runs.by(lambda run: tuple(part.is_new(run) for part in PARTS))
    return {cell: of for cell, of in found.items() if None not in cell}


def effect_of(parts: Sequence[Part]) -> dict[Cell, float]:
    """Return the weights of the effect of some parts."""
    places = [PARTS.index(part) for part in parts]
    return {cell: math.prod(1 if cell[i] else -1 for i in places) * 2 / len(CELLS) for cell in CELLS}


def effects() -> list[tuple[Part, ...]]:
    """Return the sets of parts that have an effect, single ones first, then pairs, and so on."""
    return [parts for size in range(1, len(PARTS) + 1) for parts in combinations(PARTS, size)]


def gain_alone(part: Part) -> dict[Cell, float]:
    """Return the weights of the gain of one part alone, from the cell in which all are old."""
    return {ALONE[PARTS.index(part)]: 1.0, OLD: -1.0}


def pairs_of(part: Part) -> list[tuple[Cell, Cell]]:
    """Return the eight pairs of cells that differ only in a part: the new cell, then the old one."""
    place = PARTS.index(part)
    return [(cell, (*cell[:place], False, *cell[place + 1 :])) for cell in CELLS if cell[place]]


GAIN_OF_ALL: dict[Cell, float] = {NEW: 1.0, OLD: -1.0}
SUM_OF_GAINS: dict[Cell, float] = {**dict.fromkeys(ALONE, 1.0), OLD: -float(len(PARTS))}
MORE_THAN_PARTS: dict[Cell, float] = {NEW: 1.0, **dict.fromkeys(ALONE, -1.0), OLD: len(PARTS) - 1.0}


@dataclass(frozen=True)
class Estimate:
    """A contrast in points, or a ratio, with the seeds that all its cells have run, in order.

    The interval is None if there is only one seed.
    """

    value: float
    interval: Interval | None
    seeds: tuple[int, ...]

    @property
    def interval_at(self) -> Callable[[float], Interval] | None:
        """Return the interval as a function that ignores the confidence, as only one is shown."""
        found = self.interval
        return None if found is None else lambda _: found


def estimate(accuracies: Mapping[Group, Mapping[int, float]], weights: Mapping[Group, float]) -> Estimate | None:
    """Return a contrast, computed for each seed; None if the cells that have a weight share no seed."""
    seeds = tuple(sorted(set.intersection(*(set(accuracies.get(cell, ())) for cell in weights))))
    if not seeds:
        return None
    by_seed = [math.fsum(weight * accuracies[cell][seed] for cell, weight in weights.items()) for seed in seeds]
    return Estimate(fmean(by_seed), mean_of(by_seed) if len(seeds) > 1 else None, seeds)


def errors_left(accuracies: Accuracies) -> Estimate | None:
    """Return the errors that all parts leave together, over the errors if their shares were independent.

    It is None if the needed cells share no seed, or if a run makes no error.
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
    """Return the standard deviations within cells of their runs with these seeds, two or more."""
    return [stdev(of[seed] for seed in seeds) for of in accuracies.values()]

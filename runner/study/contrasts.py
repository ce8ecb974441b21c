"""Contrasts of settings that run with the same seeds, and of the cells of a factorial design.

A contrast of settings is L = sum_c w_c mean_c with sum_c w_c = 0. A gain has the weights 1 and -1. A seed draws the
first weights and the noise. So the runs of one seed go up and down together in some settings and not in others. L is
therefore computed for each seed. Let y_cr be the accuracy of setting c under seed r, for the n seeds that all settings
of the contrast have. Then

    L_r = sum_c w_c y_cr,    L = mean_r L_r    plus or minus    t_{n-1, 97.5%} s / sqrt(n),

with s the standard deviation of the n numbers L_r. Suppose the vectors (y_cr)_c of the seeds are independent draws of
one normal distribution. Then the L_r are independent draws of one normal number, for any spreads of the settings and
any correlation between them. So this interval is exact. Welch's interval assumes that the settings are independent. It
is too narrow if they are correlated and the weights add correlated settings. The price of L_r is few degrees of
freedom: four for five seeds.

A factorial design has parts, each at an old and a new level, in all combinations. A cell says of each part if it is
new. Let x_i = 1 if part i is new and -1 if it is old, and let N be the number of cells. The effect of the parts S has
the weights w_c = (2/N) prod_{i in S} x_i. For one part it is the mean of the cells in which it is new, minus the mean
of those in which it is old. For two parts it is half of the change in the effect of the one when the other becomes new.
For more parts it continues so. If it is zero for all sets of more than one part, the parts add up from any start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean
from typing import TypeAlias, TypeVar

import scipy  # its modules are imported at their first use

from runner.claims.statistics import Interval, mean_of, more_runs, stdev

Cell: TypeAlias = tuple[bool, ...]  # by part, True if it is new
Group = TypeVar("Group")  # the key by which runs are grouped: a cell, an arm, or an experiment
ERROR = 0.05  # the probability that any of several null hypotheses is rejected, although all hold
POWER = 0.8  # the probability with which a number of seeds decides
_ROUNDING = 1e-9  # points
_CERTAIN = 8.0  # standard errors beyond the critical value, where SciPy's distribution function may overflow


@dataclass(frozen=True)
class Estimate:
    """A contrast with its value under each seed that all its settings have run, in the order of the seeds.

    The interval is None if there is only one seed.
    """

    value: float
    interval: Interval | None
    by_seed: tuple[float, ...]

    @property
    def spread(self) -> float:
        """The standard deviation of its values under the seeds; 0 if unknown, or if all are equal but for rounding."""
        spread = stdev(self.by_seed) if len(self.by_seed) > 1 else 0.0
        return spread if spread > _ROUNDING else 0.0

    @property
    def p(self) -> float:
        """The p-value of Student's two-sided test that the contrast is zero.

        It is 1 for one seed, and if all seeds give the same number, because then nothing is known of the spread.
        """
        n = len(self.by_seed)
        if not self.spread:
            return 1.0
        return float(2 * scipy.special.stdtr(n - 1, -abs(self.value) / self.spread * math.sqrt(n)))

    def seeds_to_decide(self, tests: int) -> int | None:
        """Find the number of seeds with which zero is rejected with probability `POWER`; None if no number would.

        The true contrast and spread are taken to be the measured ones. The test is at `ERROR` over the number of
        `tests`, which is enough for Holm's procedure, whatever the other tests give.
        """
        if not self.spread:
            return None

        def decides(seeds: int) -> bool:
            critical = scipy.stats.t.ppf(1 - ERROR / tests / 2, seeds - 1)
            shift = abs(self.value) / self.spread * math.sqrt(seeds)
            return shift > critical + _CERTAIN or bool(scipy.stats.nct.sf(critical, seeds - 1, shift) >= POWER)

        return more_runs(decides, 1)


def estimate(accuracies: Mapping[Group, Mapping[int, float]], weights: Mapping[Group, float]) -> Estimate | None:
    """Return a contrast, computed for each seed; None if the settings that have a weight share no seed.

    Accuracies are in percent, by setting and seed.
    """
    seeds = tuple(sorted(set.intersection(*(set(accuracies.get(cell, ())) for cell in weights))))
    if not seeds:
        return None
    by_seed = [math.fsum(weight * accuracies[cell][seed] for cell, weight in weights.items()) for seed in seeds]
    return Estimate(fmean(by_seed), mean_of(by_seed) if len(seeds) > 1 else None, tuple(by_seed))


def holm(values: Sequence[float]) -> list[float]:
    """Adjust p-values of several tests by the procedure of Holm (1979).

    A hypothesis is rejected if its adjusted value is at most `ERROR`. The probability that any true one is rejected is
    then at most `ERROR`, for any dependence between the tests.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, largest = [1.0] * len(values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = largest
    return adjusted


def cells_of(parts: int) -> tuple[Cell, ...]:
    """List the cells of a factorial of some parts: the one with all parts old first, the one with all new last."""
    return tuple(product((False, True), repeat=parts))


def effects_of(parts: int) -> list[tuple[int, ...]]:
    """List the sets of parts that have an effect, by their places: single ones first, then pairs, and so on."""
    return [places for size in range(1, parts + 1) for places in combinations(range(parts), size)]


def weights_of(places: Sequence[int], parts: int) -> dict[Cell, float]:
    """Return the weights of the effect of the parts at some places, in a factorial of `parts`."""
    return {cell: math.prod(1 if cell[i] else -1 for i in places) * 2 / 2**parts for cell in cells_of(parts)}


def cells_alone(parts: int) -> list[Cell]:
    """List the cells in which one part alone is new, in the order of the parts."""
    return [tuple(place == other for other in range(parts)) for place in range(parts)]


def gain_of_all(parts: int) -> dict[Cell, float]:
    """Return the weights of the gain of all parts together."""
    return {cells_of(parts)[-1]: 1.0, cells_of(parts)[0]: -1.0}


def sum_of_gains(parts: int) -> dict[Cell, float]:
    """Return the weights of the sum of the gains of each part alone."""
    return {**dict.fromkeys(cells_alone(parts), 1.0), cells_of(parts)[0]: -float(parts)}


def more_than_parts(parts: int) -> dict[Cell, float]:
    """Return the weights of the gain of all parts together minus the sum of each alone, for two parts or more."""
    return {cells_of(parts)[-1]: 1.0, **dict.fromkeys(cells_alone(parts), -1.0), cells_of(parts)[0]: parts - 1.0}


def errors_left(accuracies: Mapping[Cell, Mapping[int, float]], parts: int) -> Estimate | None:
    """Return the errors that all parts leave together, over the errors if each removed the share that it removes alone.

    Near 100% a point is harder to gain, so gains may add up on another scale. This ratio is the exponential of
    `more_than_parts` for the logarithms of errors, ln(100 - y), in the place of accuracies y.

    It is None if the needed cells share no seed, or if a run makes no error.
    """
    if any(value >= 100 for values in accuracies.values() for value in values.values()):
        return None
    logarithms = {
        cell: {seed: math.log(100 - value) for seed, value in values.items()} for cell, values in accuracies.items()
    }
    contrast = estimate(logarithms, more_than_parts(parts))
    if contrast is None:
        return None
    interval = contrast.interval and Interval(math.exp(contrast.interval.low), math.exp(contrast.interval.high))
    return Estimate(math.exp(contrast.value), interval, tuple(map(math.exp, contrast.by_seed)))

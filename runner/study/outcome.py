"""The outcome of a study: gains over a baseline, paired by seed, and the effects of a factorial design.

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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from statistics import fmean
from typing import TypeVar

import scipy  # its modules are imported at their first use

from runner.claims.evidence import grouped
from runner.claims.intervals import Interval, mean_of, more_runs, stdev
from runner.study.definition import Cell, Study
from runner.study.progress import Progress

Group = TypeVar("Group")  # the key by which runs are grouped: a cell, an arm, or an experiment
ERROR = 0.05  # the probability that any of several null hypotheses is rejected, although all hold
POWER = 0.8  # the probability with which a number of seeds decides
_ROUNDING = 1e-9  # points
_CERTAIN = 8.0  # standard errors beyond the critical value, where SciPy's distribution function may overflow
DIFFERS = "differs from 0"
ALL, SUM, LESS = "all together", "sum of each alone", "together less the sum"
LEFT = "errors left, over those of independent shares"


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
    def shown(self) -> Interval | None:
        """Its interval, which is left out if all seeds agree: then nothing is known of the spread."""
        return self.interval if self.spread else None

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


def weights_of(places: Sequence[int], parts: int) -> dict[Cell, float]:
    """Return the weights of the effect of the parts at some places, in a factorial of `parts`."""
    cells = product((False, True), repeat=parts)
    return {cell: math.prod(1 if cell[i] else -1 for i in places) * 2 / 2**parts for cell in cells}


def cells_alone(parts: int) -> list[Cell]:
    """List the cells in which one part alone is new, in the order of the parts."""
    return [tuple(place == other for other in range(parts)) for place in range(parts)]


def weights_of_sums(parts: int) -> dict[str, dict[Cell, float]]:
    """Return the weights of the gain of all parts together, of the sum of the gains of each alone, and of `LESS`."""
    none, alone, together = (False,) * parts, cells_alone(parts), (True,) * parts
    return {
        ALL: {together: 1.0, none: -1.0},
        SUM: {**dict.fromkeys(alone, 1.0), none: -float(parts)},
        LESS: {together: 1.0, **dict.fromkeys(alone, -1.0), none: parts - 1.0},  # for two parts or more
    }


def errors_left(accuracies: Mapping[Cell, Mapping[int, float]], parts: int) -> Estimate | None:
    """Return the errors that all parts leave together, over the errors if each removed the share that it removes alone.

    Near 100% a point is harder to gain, so gains may add up on another scale. This ratio is the exponential of the
    contrast `LESS` for the logarithms of errors, ln(100 - y), in the place of accuracies y.

    It is None if the needed cells share no seed, or if a run makes no error.
    """
    if any(value >= 100 for values in accuracies.values() for value in values.values()):
        return None
    logarithms = {
        cell: {seed: math.log(100 - value) for seed, value in values.items()} for cell, values in accuracies.items()
    }
    contrast = estimate(logarithms, weights_of_sums(parts)[LESS])
    if contrast is None:
        return None
    interval = contrast.interval and Interval(math.exp(contrast.interval.low), math.exp(contrast.interval.high))
    return Estimate(math.exp(contrast.value), interval, tuple(map(math.exp, contrast.by_seed)))


@dataclass(frozen=True)
class Compared:
    """An arm, and its gain over its baseline in points of test accuracy, if both have run with a common seed."""

    arm: Progress
    baseline: str  # the first arm, or the one that it names
    gain: Estimate | None = None
    adjusted: float | None = None  # its p-value by Holm's procedure for all gains of the study; None for one seed
    needed: int | None = None  # the number of seeds that would decide, or None if no number would

    @property
    def decided(self) -> bool:
        return self.adjusted is not None and self.adjusted <= ERROR

    @property
    def word(self) -> str:
        return _answer(self.gain, self.adjusted, "better", "worse")


@dataclass(frozen=True)
class Effect:
    """The effect of one part, the interaction of several, or a sum of gains, on a data set at an epsilon, in points."""

    place: tuple[str, str]  # the data set and epsilon, for people
    name: str
    estimate: Estimate | None
    adjusted: float | None = None  # the p-value of an effect, by Holm's procedure for all effects of the study
    parts: int = 0  # the number of parts of an effect; 0 for a sum of gains

    @property
    def answer(self) -> str:
        return _answer(self.estimate, self.adjusted, DIFFERS, DIFFERS)


def _answer(estimate: Estimate | None, adjusted: float | None, above: str, below: str) -> str:
    """Return the answer of a test in words; "" without one. An interval is not corrected."""
    if estimate is None or (estimate.interval and adjusted is None):
        return ""
    if estimate.interval is None or adjusted is None:
        return "one seed cannot tell"
    if adjusted <= ERROR:
        return above if estimate.value > 0 else below
    outside = estimate.spread and not estimate.interval.low <= 0 <= estimate.interval.high
    return "not decided after correction" if outside else "not decided"


def _adjusted(estimates: Sequence[Estimate | None]) -> list[float | None]:
    """Adjust p-values by Holm's procedure. An estimate of one seed has none."""
    adjusted = iter(holm([estimate.p for estimate in estimates if estimate and estimate.interval]))
    return [next(adjusted) if estimate and estimate.interval else None for estimate in estimates]


def compared(arms: Sequence[Progress]) -> list[Compared]:
    """Compare each arm with its baseline on the same data set at the same epsilon."""
    named = {(*arm.setting.pair, arm.name): arm for arm in arms}
    first = {arm.setting.pair: arm for arm in reversed(arms)}
    baselines, gains = [], []
    for arm in arms:
        over = arm.setting.arm.over
        base = named[(*arm.setting.pair, over)] if over else first[arm.setting.pair]
        accuracies = {"arm": arm.accuracies(), "base": base.accuracies()}
        baselines.append(base.name)
        gains.append(None if arm is base else estimate(accuracies, {"arm": 1.0, "base": -1.0}))
    adjusted = _adjusted(gains)
    number = sum(p is not None for p in adjusted)
    return [
        Compared(arm, base, gain, p, gain.seeds_to_decide(number) if gain and p is not None else None)
        for arm, base, gain, p in zip(arms, baselines, gains, adjusted, strict=True)
    ]


def effects(study: Study, arms: Sequence[Progress]) -> list[Effect]:
    """Compute all effects of a factorial, single parts first, and the sums of its gains. Nothing for another study.

    The gain of two parts or more together is compared with the sum of the gains of each alone. `LEFT` is the ratio of
    `errors_left`.
    """
    number, tested, sums, shares = len(study.parts), list[Effect](), list[Effect](), list[Effect]()
    for group in grouped(arms, lambda arm: arm.setting.pair).values() if study.parts else ():
        place, cells = group[0].setting.labels[:2], {arm.setting.arm.cell: arm.accuracies() for arm in group}
        for parts in (parts for size in range(1, number + 1) for parts in combinations(range(number), size)):
            name = " × ".join(study.parts[part] for part in parts)
            tested.append(Effect(place, name, estimate(cells, weights_of(parts, number)), parts=len(parts)))
        if number > 1:
            sums += [Effect(place, name, estimate(cells, w)) for name, w in weights_of_sums(number).items()]
            shares.append(Effect(place, LEFT, errors_left(cells, number)))
    adjusted = _adjusted([effect.estimate for effect in tested])
    return [*(replace(e, adjusted=p) for e, p in zip(tested, adjusted, strict=True)), *sums, *shares]


def sums_of(effects: Sequence[Effect]) -> dict[tuple[str, str], dict[str, Estimate | None]]:
    """Return the sums of gains among some effects, by data set and epsilon, and by name."""
    groups = grouped([effect for effect in effects if not effect.parts], lambda effect: effect.place)
    return {place: {effect.name: effect.estimate for effect in group} for place, group in groups.items()}


def additions(study: Study, arms: Sequence[Progress]) -> list[list[Effect]]:
    """Return what each part of a factorial adds to each part alone, a row for each part on each data set and epsilon.

    The first of a row is what it adds to the first arm. What a part would add to itself has no estimate.
    """
    number, rows = len(study.parts), list[list[Effect]]()
    alone = dict(zip(("", *study.parts), ((False,) * number, *cells_alone(number)), strict=True))
    for group in grouped(arms, lambda arm: arm.setting.pair).values():
        place, cells = group[0].setting.labels[:2], {arm.setting.arm.cell: arm.accuracies() for arm in group}
        for part in study.parts:
            both = {start: tuple(map(max, zip(alone[part], cell, strict=True))) for start, cell in alone.items()}
            added = {s: None if s == part else estimate(cells, {both[s]: 1.0, alone[s]: -1.0}) for s in alone}
            rows.append([Effect(place, part, added[start]) for start in alone])
    return rows

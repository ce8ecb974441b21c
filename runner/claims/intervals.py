"""The interval of a claim and its measurement, with the same statistic on both sides."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runner.claims import statistics
from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.measurement import Measured
from runner.claims.statistics import LEVEL, Interval, Mean

FEWEST_RUNS = 3  # of a setting, below which a claim can be contradicted but not confirmed
_AGREEING = 5  # equal runs, from which on their spread is taken to be zero


def interval_of(claim: Claim, measured: Measured, level: float = LEVEL) -> Interval | None:
    """Compute the interval of measured minus claimed; for an order, of the claim's setting minus the other.

    A mean of k is compared with a mean of k, and a best of k with the best of k further runs. For a difference of
    bests, k further runs of each setting are taken. A setting with fewer than `FEWEST_RUNS` runs gets the spread of its
    data set's settings, if that is known.

    None without runs, without a spread, or for a ratio of numbers that are not all positive.
    """
    if claim.direction not in ORDERS and claim.aim is None:
        return None
    aim = 0.0 if claim.direction in ORDERS else claim.aim or 0.0
    if measured.interval_at is not None:
        return measured.interval_at(level).less(aim)
    means = _means(measured)
    if not means:
        return None
    if measured.runs is not None:
        means = [mean.of(measured.runs) for mean in means]
    runs = None if claim.direction in (*ORDERS, *THRESHOLDS) else claim.runs  # None: the claim is exact
    if measured.comparison == "ratio":
        logarithm = statistics.less_claim(means, 0.0, runs, level)
        interval = Interval(math.exp(logarithm.low), math.exp(logarithm.high)).less(aim)
    elif measured.statistic == "best" and len(means) == 1:
        interval = statistics.best_less_claim(means[0], aim, claim.runs, level)
    elif measured.statistic == "best":
        interval = statistics.bests_less_claim(means[0], means[1], aim, claim.runs, level)
    else:
        interval = statistics.less_claim(means, aim, runs, level)
    return Interval(interval.low, math.inf) if measured.at_least else interval


def enough_runs(claim: Claim, measured: Measured) -> bool:
    """Return True if there are enough runs to confirm a claim: three of each setting, and k for a best of k."""
    if measured.interval_at is not None:
        return not measured.lacks or (measured.runs or 0) >= FEWEST_RUNS
    sizes = [measured.runs or len(sample) for sample in measured.samples]
    least = max(FEWEST_RUNS, claim.runs) if measured.statistic == "best" else FEWEST_RUNS
    return bool(sizes) and min(sizes) >= least


def own_precision(claim: Claim, measured: Measured) -> float | None:
    """Compute half the 95% interval of the paper's own mean of k runs, with the measured spread; None if unknown."""
    means = _means(measured)
    unknown = not means or measured.at_least or measured.comparison == "ratio"
    if unknown or not claim.of.is_mean or claim.runs < 2:
        return None
    exact = [Mean(mean.value, claim.runs, mean.spread) for mean in means]
    return statistics.less_claim(exact, 0.0, None).half_width


def spreads_of(measured: Measured) -> list[float]:
    """Return the standard deviation of a run of each setting, of its logarithm for a ratio; empty if one has none."""
    return [mean.spread.std for mean in _means(measured)]


def _means(measured: Measured) -> list[Mean]:
    """Return the mean of each sample, of its logarithms for a ratio; empty if one has no finite spread."""
    means = []
    for sample in measured.samples:
        values: Sequence[float] = sample
        if measured.comparison == "ratio":
            if min(values) <= 0:
                return []
            values = [math.log(value) for value in values]
        if not all(map(math.isfinite, values)):
            return []
        if len(values) < FEWEST_RUNS and measured.typical is not None:
            means.append(Mean(sum(values) / len(values), len(values), measured.typical))
        elif len(values) < 2 or (len(values) < _AGREEING and len(set(values)) == 1):
            return []
        else:
            means.append(statistics.measured_mean(values))
    return means

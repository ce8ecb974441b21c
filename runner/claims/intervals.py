"""The interval that belongs to a claim and its measurement: like is compared with like."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runner.claims import statistics
from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.measured import Measured
from runner.claims.statistics import EQUIVALENCE, LEVEL, Interval, Mean

FEWEST_RUNS = 3  # of a setting, below which a claim can be contradicted but not confirmed
_AGREEING = 5  # runs that all came out the same before their spread is taken to be zero


def interval_of(claim: Claim, measured: Measured, level: float = LEVEL, runs: int | None = None) -> Interval | None:
    """The interval of measured minus claimed; of an order, of the claim's setting minus the other.

    A best of k is compared with the best of k further runs, a mean of k with a mean of k. Of a claimed difference of
    bests, the interval is that of single runs, which is too wide rather than too narrow. A setting with fewer than
    `FEWEST_RUNS` runs is taken to spread as the settings of its data set do, where that is known.

    Args:
        level: the confidence.
        runs: as if so many runs of each setting had the present mean and spread; None for those there are.

    Returns:
        None where there is none: no runs, no spread, or a ratio of numbers that are not all positive.
    """
    if claim.direction not in ORDERS and claim.aim is None:
        return None
    aim = 0.0 if claim.direction in ORDERS else claim.aim or 0.0
    if measured.interval_at is not None:
        return measured.interval_at(level).less(aim)
    means = _means(measured)
    if not means:
        return None
    if runs is not None:
        means = [mean.of(runs) for mean in means]
    found = _interval(claim, measured, means, aim, level)
    return Interval(found.low, math.inf) if measured.at_least else found


def _interval(claim: Claim, measured: Measured, means: Sequence[Mean], aim: float, level: float) -> Interval:
    exact = claim.direction in (*ORDERS, *THRESHOLDS)
    if measured.comparison == "ratio":
        found = statistics.less_claim(means, 0.0, None if exact else claim.runs, level)
        return Interval(math.exp(found.low), math.exp(found.high)).less(aim)
    if measured.statistic == "best" and not exact:
        if len(means) == 1:
            return statistics.best_less_claim(means[0], aim, claim.runs, level)
        return statistics.less_claim(means, aim, 1, level)
    return statistics.less_claim(means, aim, None if exact else claim.runs, level)


def enough_runs(claim: Claim, measured: Measured, runs: int | None = None) -> bool:
    """Check that there are runs enough to confirm a claim: three of each setting, and k where a best of k is claimed.

    Args:
        runs: as if there were so many of each setting; None for those there are.
    """
    if measured.interval_at is not None:
        return True
    sizes = [runs or len(sample.values) for sample in measured.samples]
    least = max(FEWEST_RUNS, claim.runs) if measured.statistic == "best" else FEWEST_RUNS
    return bool(sizes) and min(sizes) >= least


def can_be_reproduced(claim: Claim, measured: Measured) -> bool | None:
    """Check that the planned runs could show claim and measurement to be equal within the margin, if they are.

    Returns:
        None where that is not known, or where the claim is a threshold, an order or not judged.
    """
    if claim.margin is None or claim.direction not in ("higher", "lower", "match") or not measured.planned_each:
        return None
    runs = min(measured.planned_each)
    found = interval_of(claim, measured, EQUIVALENCE, max(runs, 2))
    if found is None or measured.interval_at is not None:
        return None
    return enough_runs(claim, measured, runs) and found.half_width <= claim.margin


def own_precision(claim: Claim, measured: Measured) -> float | None:
    """Half the 95% interval of the paper's own mean of k runs, if they spread as those measured; None if unknown."""
    means = _means(measured)
    if not means or not claim.of.startswith("mean of ") or claim.runs < 2 or measured.comparison == "ratio":
        return None
    exact = [Mean(mean.value, claim.runs, mean.spread) for mean in means]
    return statistics.less_claim(exact, 0.0, None).half_width


def spreads_of(measured: Measured) -> list[float]:
    """The standard deviation of a run of each setting, of its logarithm for a ratio; none if one has none."""
    return [mean.spread.std for mean in _means(measured)]


def _means(measured: Measured) -> list[Mean]:
    """The mean of each sample, of its logarithms where a ratio is compared; none where one has no finite spread."""
    means = []
    for sample in measured.samples:
        values: Sequence[float] = sample.values
        if measured.comparison == "ratio":
            if min(values) <= 0:
                return []
            values = [math.log(value) for value in values]
        if not all(map(math.isfinite, values)):
            return []
        if len(values) < FEWEST_RUNS and measured.pooled is not None:
            means.append(Mean(sum(values) / len(values), len(values), measured.pooled))
        elif len(values) < 2 or (len(values) < _AGREEING and len(set(values)) == 1):
            return []
        else:
            means.append(statistics.measured_mean(values))
    return means

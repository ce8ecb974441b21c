"""Which interval belongs to a claim and what was measured for it: like is compared with like."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runner.claims import statistics
from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.measured import Measured
from runner.claims.statistics import LEVEL, Interval

_ENOUGH = 5  # runs that agree before a spread of zero is taken for one


def interval_of(claim: Claim, measured: Measured, runs: int | None = None, level: float = LEVEL) -> Interval | None:
    """Where measured minus claimed lies (of an order: the claim's setting minus the other) with a confidence `level`.

    The best of k runs is judged by k runs or more, a mean with a mean. Of a claimed difference of bests, each spreads
    at most as single runs do, and the interval is that of single runs: too wide rather than too narrow.

    Args:
        runs: as if so many runs of each setting had the present mean and spread; None for those there are.
        level: 95% unless told; an interval that a measure has its own way to find is always at that.

    Returns:
        None where there is none: no sample, fewer than two runs, or few that all came out the same; fewer than the
        claimed best is of; a ratio of numbers that are not all positive.
    """
    if claim.direction not in ORDERS and claim.aim is None:
        return None
    if measured.interval is not None:
        return measured.interval.less(_aim(claim))
    samples = [sample.values for sample in (measured.sample, measured.against) if sample is not None]
    if not samples or any(_without_spread(sample) for sample in samples):
        return None
    values, *others = [statistics.like(sample, runs) if runs else sample for sample in samples]
    if not others:
        found = _of_one(claim, measured, values, level)
    elif claim.direction in ORDERS:
        found = statistics.difference(values, others[0], level)
    elif measured.comparison == "ratio":
        runs_of_each = None if claim.direction in THRESHOLDS else claim.runs
        positive = min(*values, *others[0]) > 0
        found = statistics.ratio(values, others[0], runs_of_each, level).less(_aim(claim)) if positive else None
    elif claim.direction in THRESHOLDS:
        found = statistics.difference(values, others[0], level).less(_aim(claim))
    else:
        of_each = 1 if measured.statistic == "best" else claim.runs
        found = statistics.difference_less_claim(values, others[0], _aim(claim), of_each, level)
    return Interval(found.low, float("inf")) if found and measured.at_least else found


def more_runs_for(claim: Claim, measured: Measured, decides: Callable[[Interval], bool]) -> int | None:
    """How many more runs of each setting would decide, if they came out like those there are (see `statistics`)."""
    sizes = [len(sample.values) for sample in (measured.sample, measured.against) if sample is not None]
    if not sizes or min(sizes) < 2 or measured.at_least:
        return None

    def decided(runs: int) -> bool:
        found = interval_of(claim, measured, runs)
        return found is not None and decides(found)

    return statistics.more_runs(decided, min(sizes))


def _without_spread(values: Sequence[float]) -> bool:
    """Two to four runs that came out the same (a share of 0, say) show no spread, rather than that there is none."""
    return len(values) < 2 or (len(values) < _ENOUGH and len(set(values)) == 1)


def _of_one(claim: Claim, measured: Measured, values: Sequence[float], level: float) -> Interval | None:
    if claim.direction in THRESHOLDS:
        return statistics.mean_of(values, level).less(_aim(claim))
    if measured.statistic == "best":
        enough = len(values) >= claim.runs
        return statistics.best_less_claim(values, _aim(claim), claim.runs, level) if enough else None
    return statistics.mean_less_claim(values, _aim(claim), claim.runs, level)


def _aim(claim: Claim) -> float:
    assert claim.aim is not None
    return claim.aim

"""Measurements of this paper's own claims (see runner.report.measures for the shared ones)."""

from __future__ import annotations

from scipy.stats import binomtest

from runner.claims.claim import Claim
from runner.claims.measure import of_runs
from runner.claims.measured import Measured
from runner.claims.runs import Runs
from runner.claims.statistics import Interval


@of_runs
def violations(_: Claim, runs: Runs) -> Measured:
    """See `share_beyond`."""
    return share_beyond(runs)


def share_beyond(runs: Runs) -> Measured:
    """In how many of the runs (percent) a recorded norm, the largest of an epoch and a tensor, passes its bound.

    With Clopper and Pearson's interval of a share.
    """
    passing = [above_bound(Runs([run]))[0] > 0 for run in runs.recorded]
    test = binomtest(sum(passing), len(passing))

    def share_at(level: float) -> Interval:
        share = test.proportion_ci(level, method="exact")
        return Interval(100 * share.low, 100 * share.high)

    above, tried = above_bound(runs.recorded)
    largest = max(largest_ratios(runs.recorded))
    words = f"{above} of {tried:,} pairs of an epoch and a tensor, on 2,048 training images each"
    return Measured(
        100 * sum(passing) / len(passing),
        explanation=f"{words}; the largest norm is {largest:.4f} of its bound",
        interval_at=share_at,
    )


def above_bound(runs: Runs) -> tuple[int, int]:
    """How many ratios are above 1, or no number, and of how many."""
    ratios = largest_ratios(runs)
    return sum(not ratio <= 1 for ratio in ratios), len(ratios)


def largest_ratios(runs: Runs) -> list[float]:
    """Of every run, tensor and epoch: the largest norm of an example's gradient over its bound."""
    recorded = (run.diagnostic("bound_ratios")["largest"] for run in runs)
    return [float(ratio) for by_tensor in recorded for by_epoch in by_tensor.values() for ratio in by_epoch]

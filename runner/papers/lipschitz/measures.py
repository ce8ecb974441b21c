"""Measurements of this paper's own claims (see runner.report.measures for the shared ones)."""

from __future__ import annotations

from scipy.stats import binomtest

from runner.papers.lipschitz.fronts import BUDGET
from runner.report.claims import Claim
from runner.report.measured import Measured, of_two
from runner.report.measures import against_others, of_runs
from runner.report.runs import Runs
from runner.report.statistics import LEVEL, Interval

_ROUNDING = 1e-9  # records are rounded up


@of_runs
def violations(_: Claim, runs: Runs) -> Measured:
    """See `share_beyond`."""
    return share_beyond(runs)


def share_beyond(runs: Runs) -> Measured:
    """In how many of the runs (percent) a recorded norm, the largest of an epoch and a tensor, passes its bound.

    With Clopper and Pearson's interval of a share.
    """
    passing = [above_bound(Runs([run]))[0] > 0 for run in runs.recorded]
    share = binomtest(sum(passing), len(passing)).proportion_ci(LEVEL, method="exact")
    above, tried = above_bound(runs.recorded)
    largest = max(largest_ratios(runs.recorded))
    words = f"{above} of {tried:,} pairs of an epoch and a tensor, on 2,048 training images each"
    return Measured(
        100 * sum(passing) / len(passing),
        explanation=f"{words}; the largest norm is {largest:.4f} of its bound",
        interval=Interval(100 * share.low, 100 * share.high),
    )


def above_bound(runs: Runs) -> tuple[int, int]:
    """How many ratios are above 1, or no number, and of how many."""
    ratios = largest_ratios(runs)
    return sum(not ratio <= 1 for ratio in ratios), len(ratios)


def largest_ratios(runs: Runs) -> list[float]:
    """Of every run, tensor and epoch: the largest norm of an example's gradient over its bound."""
    recorded = (run.diagnostic("bound_ratios")["largest"] for run in runs)
    return [float(ratio) for by_tensor in recorded for by_epoch in by_tensor.values() for ratio in by_epoch]


@of_runs
def best_within_budget(_: Claim, runs: Runs) -> Measured:
    """The largest accuracy (percent) of the runs' last epochs within a sound epsilon of 3: a maximum, of a search."""
    reached = runs.last_below(BUDGET + _ROUNDING, by="epsilon_sound")
    if not reached:
        return Measured(explanation=f"no epoch within a sound ε of {BUDGET:g}")
    accuracy, epsilon = max(zip(reached.values("test_accuracy"), reached.values("epsilon_sound"), strict=True))
    words = f"the largest of {len(reached)} trials, on held-out images, at a sound ε of at most {BUDGET:g}"
    return Measured(accuracy, explanation=f"{words}; its own is {epsilon:.4g}").charged(reached)


@of_runs
def largest_image_norm(_: Claim, runs: Runs) -> Measured:
    """The largest L2 norm of an image that the runs recorded."""
    found = {f"{run.diagnostic('norm_histograms')['inputs']['largest']:.4g}": run for run in runs.recorded}
    words = ", ".join(f"{norm} ({run.job.label.partition(' ')[2]})" for norm, run in found.items())
    return Measured(max(map(float, found)), explanation=words)


@against_others
def order(_: Claim, runs: Runs, others: Runs) -> Measured:
    """Last-epoch accuracy (percent) of the claim's first experiment beside its second, means over the runs."""
    return of_two("order", "mean", runs.sample(), others.sample())

"""Measures of the gain of the paper's loss over cross-entropy, and of the gap to training without privacy."""

from __future__ import annotations

from statistics import fmean

from runner.report.claims import Claim
from runner.report.measured import Measured, of_two
from runner.report.measures import bound_of, of_experiments
from runner.report.runs import PlannedRun, Runs, RunsAt


@of_experiments
def order_within_epsilon(claim: Claim, one: Runs, other: Runs) -> Measured:
    """Mean accuracy of the first experiment beside the second's, at the last epoch below the claimed epsilon."""
    at = [runs.last_below(bound_of(claim)) for runs in (one, other)]
    if not all(at):
        return Measured()
    own, others = (runs.sample() for runs in at)
    text = f"mean after epoch {at[0].epochs}: {fmean(own.values):.2f} beside {fmean(others.values):.2f}"
    return of_two("order", "mean", own, others, text).charged(RunsAt([*at[0], *at[1]]))


@of_experiments
def gain_early_above_late(_: Claim, one: Runs, other: Runs) -> Measured:
    """The first experiment's lead over the second after a quarter of the epochs less that at the end, in points.

    Of every run the accuracy after a quarter less that at the end; of the means of these, first less second.
    """
    recorded = one.recorded, other.recorded
    if not all(recorded):
        return Measured()
    own, others = (runs.sample(_quarter_less_end) for runs in recorded)
    text = f"after a quarter less at the end: {fmean(own.values):.2f} of ours, {fmean(others.values):.2f} of CE"
    return of_two("difference", "mean", own, others, text)


def _quarter_less_end(run: PlannedRun) -> float:
    accuracies = run.history("test_accuracy")
    return accuracies[max(1, len(accuracies) // 4) - 1] - accuracies[-1]


@of_experiments
def gap_to_no_privacy(claim: Claim, without: Runs, private: Runs) -> Measured:
    """Last-epoch accuracy without privacy less that at the last epoch below the claimed epsilon, in points."""
    at = private.last_below(bound_of(claim))
    if not at or not without.recorded:
        return Measured()
    return of_two("difference", "mean", without.recorded.sample(), at.sample()).charged(at)

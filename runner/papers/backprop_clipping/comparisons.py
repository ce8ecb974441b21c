"""Measures of what figure 5 is said to show."""

from __future__ import annotations

from statistics import fmean

from runner.report.claims import Claim
from runner.report.measured import Measured, of_two
from runner.report.measures import bound_of, made_of, of_experiments
from runner.report.runs import Runs


@of_experiments
def order_at_epsilon(claim: Claim, one: Runs, other: Runs) -> Measured:
    """Mean last-epoch accuracy of the first experiment beside the second's, of runs made for the claimed epsilon."""
    planned = [runs.where("target_epsilon", bound_of(claim)) for runs in (one, other)]
    both = [runs.recorded for runs in planned]
    if not all(both):
        return Measured()
    own, others = (runs.sample() for runs in both)
    text = f"{both[0][0].name} {fmean(own.values):.2f} beside {both[1][0].name} {fmean(others.values):.2f}"
    return made_of(of_two("order", "mean", own, others, text), *planned).charged(Runs([*both[0], *both[1]]))

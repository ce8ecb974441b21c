"""Measures of this paper only: gains on several data sets, distances of classes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import fmean

import numpy as np

from runner.claims.claim import Claim
from runner.claims.diagnostics import class_accuracies, confusion
from runner.claims.formulas import Formula
from runner.claims.measure import counted, planned_for
from runner.claims.measurement import Measured, charged, of_two
from runner.claims.runs import Evidence, PlannedRun, Runs, last_accuracy
from runner.records.jobs import sweep_jobs

SENSITIVITY = {  # by sweep of figure 10: the field that it varies, and its name
    "fig_10_threshold_epoch": ("loss.threshold_epoch", "threshold epoch"),
    "fig_10_beta": ("loss.beta", "divisor of the regulariser β"),
    "fig_10_gamma": ("loss.gamma", "focal exponent γ"),
}


def values_tried(sweep: str, field: str) -> list[float]:
    """Return the values of a field in a sweep at the paper's scale, the smallest first."""
    return sorted({float(job.field(field)) for job in sweep_jobs(f"losing_less/{sweep}")})


@Formula
def gain_beyond_the_others(claim: Claim, evidence: Evidence) -> Measured:
    """Return the gain of the claim's first pair, by seed, minus the gain of each other pair; all must be positive."""
    planned = [Runs(run for name in pair for run in planned_for(claim, evidence, name)) for pair in claim.pairs]
    together = Runs(run for runs in planned for run in runs)
    first, *others = ((pair[0], runs, _gains(runs)) for pair, runs in zip(claim.pairs, planned, strict=True))
    every = tuple(
        replace(of_two("difference", "mean", first[2], gains), reference=0.0, n=len(first[1].recorded + runs.recorded))
        for _, runs, gains in others
        if first[2] and gains
    )
    if not every:
        return counted(together, Measured())
    texts = (f"{name.rpartition('/')[2]} {fmean(of):.2f}" for name, _, of in (first, *others) if of)
    least = min(every, key=lambda found: found.value or 0.0)
    found = replace(least, every=every, explanation=f"mean gains: {', '.join(texts)}; the least favourable counts")
    return counted(together, charged(found, together.last))


def _gains(runs: Runs) -> tuple[float, ...]:
    """Return, for each seed with both losses, the accuracy of the first minus the accuracy of the second."""
    both = (of for of in runs.recorded.by(lambda run: run.seed).values() if len(of) == 2)
    return tuple(last_accuracy(one) - last_accuracy(other) for one, other in both)


@Formula
def class_accuracy_distance(claim: Claim, evidence: Evidence) -> Measured:
    """Return the distance of the classes' training accuracies from non-private ones, for both losses.

    For one run it is the mean absolute difference from the mean of the non-private runs, in points, over the classes
    and the recorded epochs. The claim's experiments are the proposed loss, cross-entropy, and no privacy.
    """
    planned = [planned_for(claim, evidence, name) for name in claim.experiments]
    ours, ce, without = (runs.recorded for runs in planned)
    if not (ours and ce and without):
        return counted(Runs(run for runs in planned for run in runs), Measured())
    own, others = (runs.sample(partial(_distance, others=without)) for runs in (ours, ce))
    text = f"mean distance per class in points: {fmean(own):.3g} and {fmean(others):.3g}"
    return counted(Runs([*planned[0], *planned[1]]), of_two("order", "mean", own, others, text))


def _distance(run: PlannedRun, others: Runs) -> float:
    """Return the mean absolute difference of diagonals to the others' mean, over the epochs that all recorded."""
    every = [run, *others]
    both = [
        epoch for epoch in run.diagnostic("confusion")["epoch"] if all(confusion(of, epoch) is not None for of in every)
    ]
    own, *without = ([np.array(class_accuracies(of, epoch)) for epoch in both] for of in every)
    return float(np.abs(np.array(own) - np.mean(without, axis=0)).mean())

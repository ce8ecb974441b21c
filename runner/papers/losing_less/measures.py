"""What this paper's claims need beside the shared readers: how far classes are from training without privacy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import fmean

import numpy as np
from omegaconf import OmegaConf

from runner.claims.claim import Claim
from runner.claims.costs import charged
from runner.claims.diagnostics import class_accuracies, confusion
from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.measure import Formula, counted
from runner.claims.measured import Measured, of_two
from runner.claims.runs import PlannedRun, Runs
from runner.runs.jobs import sweep_jobs

FIELDS = {
    "fig_10_threshold_epoch": "loss.threshold_epoch",
    "fig_10_beta": "loss.beta",
    "fig_10_gamma": "loss.gamma",
    "fig_15_huber": "loss.threshold",
}


def values_tried(sweep: str) -> list[float]:
    """The values of its field that a sweep of `FIELDS` has at the paper's scale, the smallest first."""
    jobs = sweep_jobs(f"losing_less/{sweep}", (f"scale={PAPER_SCALE}",))
    return sorted({float(OmegaConf.select(job.config, FIELDS[sweep])) for job in jobs})


@Formula
def class_accuracy_distance(claim: Claim, evidence: Evidence) -> Measured:
    """How far the classes' training accuracies are from those without privacy: ours beside cross-entropy's.

    Of a run, the mean of the absolute differences to the mean of the runs without privacy, in points, over the classes
    and the recorded epochs. The experiments come in threes, a data set each: ours, cross-entropy, without privacy. All
    have to hold; the value is that where ours is the least closer.
    """
    planned = {name: evidence.planned(claim.sweep, name) for name in claim.experiments}
    every, used, texts = [], [], []
    for names in claim.pairs:
        ours, ce, without = (planned[name] for name in names)
        if ours.recorded and ce.recorded and without.recorded:
            own, others = (runs.sample(partial(_distance, others=without.recorded)) for runs in (ours, ce))
            n, of = len(ours.recorded) + len(ce.recorded), len(ours) + len(ce)
            every.append(replace(of_two("order", "mean", own, others), n=n, planned=of))
            used += [*ours.recorded, *ce.recorded]
            texts.append(f"{ours[0].name} {fmean(own.values):.3g}, {ce[0].name} {fmean(others.values):.3g}")
    together = Runs(run for runs in planned.values() for run in runs)
    if not every:
        return counted(together, Measured())
    least = max(every, key=lambda found: (found.value or 0.0) - (found.reference or 0.0))
    explanation = f"mean distance per class in points: {'; '.join(texts)}; the verdict is on the order"
    lacking = tuple(name.rpartition("/")[2] for name, runs in planned.items() if not runs.recorded)
    found = replace(least, every=tuple(every), lacking=lacking, explanation=explanation)
    return counted(together, charged(found, Runs(used).last))


def _distance(run: PlannedRun, others: Runs) -> float:
    """Mean absolute difference of the diagonals to the mean of the others', over the epochs that all recorded."""
    every = [run, *others]
    both = [
        epoch for epoch in run.diagnostic("confusion")["epoch"] if all(confusion(of, epoch) is not None for of in every)
    ]
    own, *without = ([np.array(class_accuracies(of, epoch)) for epoch in both] for of in every)
    return float(np.abs(np.array(own) - np.mean(without, axis=0)).mean())

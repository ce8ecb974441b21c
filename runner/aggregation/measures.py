"""Measurements that every paper needs. A measurement turns records into the one number a claim is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from runner.aggregation.claims import Claim
from runner.aggregation.evidence import Evidence, PlannedRun


@dataclass(frozen=True)
class Measured:
    """What was measured for a claim.

    value: the number compared with the claim; None where it could not be measured.
    values: the runs' own numbers that it summarises, empty where it does not summarise runs.
    n, planned, diverged: runs recorded, planned, and of the recorded ones diverged. All 0 where `computed`.
    epsilon, epsilon_sound: at the point that was measured, the largest over the runs.
    best: mean over the runs of the best epoch's accuracy (percent), chosen on the evaluation data; for comparison.
    reference: the other experiment's value, for claims about an order.
    """

    value: float | None = None
    values: Sequence[float] = ()
    n: int = 0
    planned: int = 0
    diverged: int = 0
    epsilon: float | None = None
    epsilon_sound: float | None = None
    best: float | None = None
    reference: float | None = None
    computed: bool = False
    explanation: str = ""


Measure: TypeAlias = Callable[[Claim, Evidence], Measured]


def counts(planned: Sequence[PlannedRun]) -> dict[str, int]:
    """n, planned and diverged of some planned runs, as arguments of `Measured`."""
    recorded = [run for run in planned if run.record is not None]
    return {"n": len(recorded), "planned": len(planned), "diverged": sum(run.diverged for run in recorded)}


def final_epsilons(recorded: Sequence[PlannedRun]) -> dict[str, float]:
    """epsilon and epsilon_sound after the last epoch, as arguments of `Measured`."""
    return {name: max(run.final(name) for run in recorded) for name in ("epsilon", "epsilon_sound")}


def test_accuracy(claim: Claim, evidence: Evidence) -> Measured:
    """Last-epoch accuracy in percent of one experiment, mean over its runs; a diverged run counts as it ended."""
    planned = evidence.planned(claim.sweep, claim.experiment)
    recorded = evidence.recorded(claim.sweep, claim.experiment)
    if not recorded:
        return Measured(**counts(planned))
    values = [run.final("test_accuracy") for run in recorded]
    return Measured(
        value=fmean(values),
        values=values,
        **counts(planned),
        **final_epsilons(recorded),
        best=fmean(run.final("best_test_accuracy") for run in recorded),
        explanation="mean of the seeds at one setting" if claim.aggregation.startswith("best of search") else "",
    )


def accuracy_within_epsilon(claim: Claim, evidence: Evidence) -> Measured:
    """Accuracy in percent at the last epoch whose epsilon, as the paper counts, is below the claimed one.

    Mean over the runs. A run that was set up for a larger budget may do worse there than one set up for this budget.
    """
    planned = evidence.planned(claim.sweep, claim.experiment)
    recorded = evidence.recorded(claim.sweep, claim.experiment)
    assert claim.epsilon is not None
    bound = claim.epsilon[0]
    last = [
        max((e for e, spent in enumerate(run.history("epsilon")) if spent < bound), default=None) for run in recorded
    ]
    reached = [(run, epoch) for run, epoch in zip(recorded, last, strict=True) if epoch is not None]
    if not reached:
        return Measured(**counts(planned))
    values = [run.history("test_accuracy")[epoch] for run, epoch in reached]
    epochs = sorted({epoch + 1 for _, epoch in reached})
    whole = max(run.final("epsilon") for run in recorded)
    return Measured(
        value=fmean(values),
        values=values,
        **{**counts(planned), "n": len(reached)},
        epsilon=max(run.history("epsilon")[epoch] for run, epoch in reached),
        epsilon_sound=max(run.history("epsilon_sound")[epoch] for run, epoch in reached),
        explanation=f"after epoch {', '.join(map(str, epochs))}, the last below {bound:g}; the whole run ends at {whole:.3g}",
    )

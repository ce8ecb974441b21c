"""Measurements that every paper needs. A measurement turns records into the one number a claim is about."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TypeAlias

from runner.report.claims import Claim
from runner.report.evidence import Evidence, PlannedRun
from runner.report.summary import summarise


@dataclass(frozen=True)
class Measured:
    """What was measured for a claim.

    value: the number compared with the claim; None where it could not be measured.
    values: the runs' own numbers that it summarises, empty where it does not summarise runs.
    n, planned, diverged: runs recorded, planned, and of the recorded ones diverged. All 0 where `computed`.
    epsilon, epsilon_sound: at the point that was measured, the largest over the runs; delta: what they are at, the
        largest too.
    best: the best epoch's accuracy (percent), chosen on the evaluation data; to compare.
    reference: the other experiment's value, for claims about an order; reference_partial: it lacks planned runs.
    at_least: whether no more is known than that the value is at least `value`, as runs ended before showing it.
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
    reference_partial: bool = False
    at_least: bool = False
    delta: float | None = None

    @property
    def partial(self) -> bool:
        """Whether there is a value and planned runs are missing from it, or from what it is compared with."""
        return self.value is not None and (self.n < self.planned or self.reference_partial)


Measure: TypeAlias = Callable[[Claim, Evidence], Measured]


def unmeasured(planned: Sequence[PlannedRun], explanation: str = "") -> Measured:
    """No value, but how many of the planned runs are recorded."""
    n, diverged = _counts(planned)
    return Measured(n=n, planned=len(planned), diverged=diverged, explanation=explanation)


def measured(
    planned: Sequence[PlannedRun],
    value: float,
    values: Sequence[float] = (),
    *,
    charged: Sequence[PlannedRun] | None = None,
    best: float | None = None,
    reference: float | None = None,
    explanation: str = "",
) -> Measured:
    """A value, with the counts of the planned runs and the epsilons after the last epoch of the recorded
    ones.

    `charged`: the recorded runs whose epsilons count, where they are not all of `planned`.
    """
    n, diverged = _counts(planned)
    mean = summarise(values).mean
    if mean is not None and math.isclose(value, mean, rel_tol=1e-12):  # however it was summed
        value = mean
    recorded = [run for run in (planned if charged is None else charged) if run.record is not None]
    epsilon, sound = (max(run.final(name) for run in recorded) for name in ("epsilon", "epsilon_sound"))
    return Measured(
        value=value,
        values=values,
        n=n,
        planned=len(planned),
        diverged=diverged,
        epsilon=epsilon,
        epsilon_sound=sound,
        delta=max(run.delta for run in recorded),
        best=best,
        reference=reference,
        explanation=explanation,
    )


def _counts(planned: Sequence[PlannedRun]) -> tuple[int, int]:
    """How many are recorded, and how many of those diverged."""
    return sum(run.record is not None for run in planned), sum(run.diverged for run in planned)


def test_accuracy(claim: Claim, evidence: Evidence) -> Measured:
    """Last-epoch accuracy (percent), mean over an experiment's runs; a diverged one counts as it ended."""
    planned = evidence.planned(claim.sweep, claim.experiment)
    recorded = evidence.recorded(claim.sweep, claim.experiment)
    if not recorded:
        return unmeasured(planned)
    values = [run.final("test_accuracy") for run in recorded]
    best = fmean(run.final("best_test_accuracy") for run in recorded)
    search = claim.aggregation.startswith("best of search")
    explanation = "mean of the seeds at one setting" if search else ""
    return measured(planned, fmean(values), values, best=best, explanation=explanation)


def accuracy_within_epsilon(claim: Claim, evidence: Evidence) -> Measured:
    """Accuracy in percent at the last epoch whose epsilon, by the accountant configured, is below the claimed one.

    Mean over the runs. A run set up for a larger budget may do worse there than one set up for this budget.
    """
    planned, bound = evidence.planned(claim.sweep, claim.experiment), _bound(claim)
    reached = last_below(planned, bound)
    if not reached:
        return never_below(planned, bound)
    values = accuracies_at(reached)
    whole = max(run.final("epsilon") for run, _ in reached)
    explanation = f"after {epochs_text(reached)}, the last below {bound:g}; the whole run ends at {whole:.3g}"
    return charged_at(reached, measured(planned, fmean(values), values, explanation=explanation))


def best_within_epsilon(claim: Claim, evidence: Evidence) -> Measured:
    """The same, of the best run there: a maximum over the seeds, chosen on test data.

    The explanation has their mean and median, and the same at the last epoch whose sound epsilon is below the claimed
    one. `best`: mean over the runs of the best epoch below the claimed epsilon.
    """
    planned, bound = evidence.planned(claim.sweep, claim.experiment), _bound(claim)
    reached = last_below(planned, bound)
    if not reached:
        return never_below(planned, bound)
    values = accuracies_at(reached)
    best = fmean(max(run.history("test_accuracy")[: epoch + 1]) for run, epoch in reached)
    sound = last_below(planned, bound, "epsilon_sound")
    parts = [f"the best of the runs after {epochs_text(reached)}, the last below {bound:g} ({_middle(values)})"]
    if sound:
        parts.append(f"by the sound ε after {epochs_text(sound)}: {_spread(accuracies_at(sound))}")
    parts.append(f"after the last epoch: {_spread([run.final('test_accuracy') for run, _ in reached])}")
    return charged_at(reached, measured(planned, max(values), values, best=best, explanation="; ".join(parts)))


def _bound(claim: Claim) -> float:
    assert claim.epsilon is not None
    return claim.epsilon[0]


def _middle(values: Sequence[float]) -> str:
    return f"mean {fmean(values):.2f}, median {median(values):.2f}"


def _spread(values: Sequence[float]) -> str:
    return f"best {max(values):.2f}, {_middle(values)}"


def last_below(runs: Sequence[PlannedRun], bound: float, epsilon: str = "epsilon") -> list[tuple[PlannedRun, int]]:
    """The recorded runs with an epoch whose `epsilon` (or epsilon_sound) is below the bound; the last such, from 0."""
    last = []
    for run in (run for run in runs if run.record is not None):
        below = [epoch for epoch, spent in enumerate(run.history(epsilon)) if spent < bound]
        last += [(run, below[-1])] if below else []
    return last


def accuracies_at(reached: Sequence[tuple[PlannedRun, int]]) -> list[float]:
    """Test accuracy in percent of each run after the epoch beside it."""
    return [run.history("test_accuracy")[epoch] for run, epoch in reached]


def epochs_text(reached: Sequence[tuple[PlannedRun, int]]) -> str:
    """`epoch 29`, counted from 1."""
    return "epoch " + ", ".join(map(str, sorted({epoch + 1 for _, epoch in reached})))


def never_below(planned: Sequence[PlannedRun], bound: float, without: Sequence[PlannedRun] | None = None) -> Measured:
    """No value: not run, or above the claimed epsilon from the first epoch. `without`: the runs that this is about."""
    recorded = any(run.record is not None for run in (planned if without is None else without))
    return unmeasured(planned, f"no epoch of these runs stays below {bound:g}" if recorded else "")


def charged_at(reached: Sequence[tuple[PlannedRun, int]], value: Measured, n: int | None = None) -> Measured:
    """A measurement of whole runs as one of their first epochs: the epsilons there, after the epoch beside each run.

    `n`: how many count as run, where it is not those that reached it.
    """
    return replace(
        value,
        n=len(reached) if n is None else n,
        epsilon=max(run.history("epsilon")[epoch] for run, epoch in reached),
        epsilon_sound=max(run.history("epsilon_sound")[epoch] for run, epoch in reached),
        delta=max(run.delta for run, _ in reached),
    )


def one_each(claim: Claim, evidence: Evidence) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """The planned runs of the claim's experiments, and the first recorded of each; none if one has none."""
    planned = [run for name in claim.experiments for run in evidence.planned(claim.sweep, name)]
    recorded = [evidence.recorded(claim.sweep, name)[:1] for name in claim.experiments]
    return planned, [runs[0] for runs in recorded] if all(recorded) else []

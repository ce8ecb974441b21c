"""Measurements of this paper's own claims (see runner.report.measures for the shared ones)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from runner.accounting import RdpClassic, sound_epsilon
from runner.report.charges import prepared
from runner.report.claims import Claim
from runner.report.measured import Measured, of_sample, of_two
from runner.report.measures import Measure, against_others, computed, made_of, of_experiments, of_runs
from runner.report.runs import PlannedRun, Runs
from runner.report.statistics import mean_less_claim

LEAST_TRIPLES = 10  # a tenth of fewer is not one run
NormsByStep: TypeAlias = Callable[[PlannedRun], tuple[list[int], list[float]]]  # steps, norms: [measurements] each


@of_runs
def best_of_sweep(_: Claim, runs: Runs) -> Measured:
    """The highest last-epoch accuracy (percent) of the triples run; chosen on test data, as in the paper.

    The paper does not say of how many its own is the best, so that there is nothing to compare an interval with.
    """
    explanation = "the best triple, chosen on test data, of a number that the paper does not give; the spread is theirs"
    accuracies = runs.sample().values
    best = runs.largest("best_test_accuracy")
    return Measured(max(accuracies), accuracies, best=best, chosen_on_test=True, explanation=explanation)


def top_triples(runs: Runs) -> Runs:
    """The tenth of the runs (rounded up) with the highest last-epoch accuracy; ties by the order of draws."""
    return Runs(sorted(runs, key=lambda run: -run.final("test_accuracy"))[: math.ceil(len(runs) / 10)])


def enough_triples(recorded: int, planned: int) -> bool:
    """Whether a sweep is complete enough to speak of its best tenth: half of it, and ten runs."""
    return recorded >= max(LEAST_TRIPLES, planned / 2)


def mean_of_best_tenth(field: str) -> Measure:
    """A measure: the mean of a config field over the best tenth of the triples."""

    @of_runs
    def mean(_: Claim, runs: Runs) -> Measured:
        recorded = runs.recorded
        if not enough_triples(len(recorded), len(runs)):
            needed = math.ceil(max(LEAST_TRIPLES, len(runs) / 2))
            why = f"too few of the triples have run to speak of the best tenth: {needed} are needed"
            return Measured(explanation=why)
        top = top_triples(recorded)
        explanation = f"over the best {len(top)} of {len(recorded)} triples, and so is the spread"
        found = of_sample("mean", top.sample(lambda run: float(run.field(field))), explanation=explanation)
        # As many more triples in the best tenth are ten times as many runs: no number of seeds is proposed.
        found = replace(found, interval=mean_less_claim(found.values, 0.0) if len(top) > 1 else None)
        return replace(found, n=len(top), planned=math.ceil(len(runs) / 10)).charged(recorded)

    return mean


top_scale = mean_of_best_tenth("activation.scale")
top_inverse_temperature = mean_of_best_tenth("activation.inverse_temperature")
top_offset = mean_of_best_tenth("activation.offset")


def triangular_average(values: Sequence[float]) -> list[float]:
    """Moving average with the weights 1, 2, 1 (window 3); at either end over the two values there are."""
    padded: list[float | None] = [None, *values, None]
    smooth = []
    for i in range(1, len(padded) - 1):
        pairs = [(w, v) for w, v in zip((1, 2, 1), padded[i - 1 : i + 2], strict=True) if v is not None]
        smooth.append(sum(w * v for w, v in pairs) / sum(w for w, _ in pairs))
    return smooth


def level(steps: Sequence[int], values: Sequence[float]) -> float:
    """The level a norm ends at: mean of its triangular moving average over the last quarter of the steps."""
    smooth = triangular_average(values)
    return statistics.fmean(v for step, v in zip(steps, smooth, strict=True) if step >= 0.75 * steps[-1])


def gradient_norms(run: PlannedRun) -> tuple[list[int], list[float]]:
    """Steps and mean L2 norm of the batch's per-example gradients before clipping: [measurements] each."""
    columns = run.diagnostic("gradient_norms")
    return list(columns["step"]), [float(v) for v in columns["mean"]]


def first_activation_norms(run: PlannedRun) -> tuple[list[int], list[float]]:
    """Steps and mean L2 norm of an example's output of the first hidden activation: [measurements] each."""
    columns = run.diagnostic("activation_norms")
    first = next(name for name in columns if name != "step")
    return list(columns["step"]), [float(v) for v in columns[first]]


@of_experiments
def gradient_norm_ratio(_: Claim, one: Runs, other: Runs) -> Measured:
    """Level of the gradient norm of the claim's first experiment over that of its second (see `level`)."""
    return _level_ratio(gradient_norms, one, other)


@of_experiments
def activation_norm_ratio(_: Claim, one: Runs, *others: Runs) -> Measured:
    """Level of the first activation's norm of the first experiment over the others': over each, the smallest counts."""
    ratios = [_level_ratio(first_activation_norms, one, other) for other in others]
    if any(found.value is None for found in ratios):
        return Measured()
    smallest = min(ratios, key=lambda found: found.value or 0.0)
    explanation = f"{'; '.join(found.explanation for found in ratios)}; the smaller one counts"
    return replace(smallest, every=tuple(ratios), explanation=explanation)


def _level_ratio(norms: Callable[[PlannedRun], tuple[list[int], list[float]]], one: Runs, other: Runs) -> Measured:
    """Of the geometric means over the runs; charged is the first's cost."""
    if not one.recorded or not other.recorded:
        return Measured()
    own, others = (runs.sample(lambda run: level(*norms(run))) for runs in (one, other))
    means = [statistics.geometric_mean(sample.values) for sample in (own, others)]
    explanation = f"last quarter of training: {means[0]:.4g} over {means[1]:.4g} of {other[0].name}"
    return made_of(of_two("ratio", "geometric", own, others, explanation), one, other).charged(one)


def class_std(run: PlannedRun) -> float:
    """Standard deviation of the last epoch's per-class accuracies, in percentage points.

    With n in the denominator: the classes are all there are, not a sample.
    """
    return statistics.pstdev(float(v) for v in run.diagnostic("per_class_accuracy")[-1])


@against_others
def class_accuracy_std(_: Claim, own: Runs, other: Runs) -> Measured:
    """Mean over the runs of `class_std`, of the claim's first experiment; the second's is the reference."""
    one, reference = own.sample(class_std), other.sample(class_std)
    explanation = (
        f"in percentage points; {other[0].name} has {statistics.fmean(reference.values):.3g} (n = {len(other)}); "
        "the verdict is on the order"
    )
    return of_two("order", "mean", one, reference, explanation)


@computed
def standard_setting_epsilon(claim: Claim) -> Measured:
    """Epsilon of all epochs of the MNIST runs' setting (they end before, at the claimed epsilon), with their batches of
    256 and with 250.

    The value is that of classic RDP, the accounting of the paper's time, with their own batches.
    """
    run = prepared("tempered_sigmoid/fig_3", "tempered_sigmoid/mnist_tanh")
    own, other, epochs, delta = run.config.batch_size, 250, run.config.epochs, run.config.delta
    ledgers = {batch: replace(run.mechanism, batch_size=batch).charges_of_epochs(epochs) for batch in (own, other)}
    epsilon = {batch: RdpClassic().epsilon(ledger.claimed, delta) for batch, ledger in ledgers.items()}
    sound = {batch: sound_epsilon(ledger.actual, delta) for batch, ledger in ledgers.items()}
    return Measured(
        value=epsilon[own],
        epsilon=epsilon[own],
        epsilon_sound=sound[own],
        delta=delta,
        explanation=f"{claim.claimed_value} is not what {epochs} epochs cost: classic RDP gives {epsilon[own]:.3f} "
        f"with batches of {own} and {epsilon[other]:.3f} with {other}, the sound value is {sound[own]:.3f} and "
        f"{sound[other]:.3f}",
    )

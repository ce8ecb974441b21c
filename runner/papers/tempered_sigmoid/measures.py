"""Measurements of this paper's own claims (see runner.report.measures for the shared ones)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from omegaconf import OmegaConf

from runner.accounting import RdpClassic, Releases, sound_epsilon
from runner.report.claims import Claim
from runner.report.evidence import Evidence, PlannedRun
from runner.report.measures import Measured, measured, one_each, unmeasured

LEAST_TRIPLES = 10  # a tenth of fewer is not one run
EXAMPLES, DELTA = 60_000, 1e-5


def best_of_sweep(claim: Claim, evidence: Evidence) -> Measured:
    """The highest last-epoch accuracy (percent) of the triples run; chosen on test data, as in the paper."""
    planned = evidence.planned(claim.sweep, claim.experiment)
    recorded = evidence.recorded(claim.sweep, claim.experiment)
    if not recorded:
        return unmeasured(planned)
    values = [run.final("test_accuracy") for run in recorded]
    best = max(run.final("best_test_accuracy") for run in recorded)
    explanation = "the best triple, chosen on test data; the spread is over the triples"
    return measured(planned, max(values), values, best=best, explanation=explanation)


def top_triples(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The tenth of the runs (rounded up) with the highest last-epoch accuracy; ties by the order of draws."""
    return sorted(runs, key=lambda run: -run.final("test_accuracy"))[: math.ceil(len(runs) / 10)]


def enough_triples(recorded: int, planned: int) -> bool:
    """Whether a sweep is complete enough to speak of its best tenth: half of it, and ten runs."""
    return recorded >= max(LEAST_TRIPLES, planned / 2)


def top_scale(claim: Claim, evidence: Evidence) -> Measured:
    """Mean scale s of the best tenth of the triples."""
    return _top(claim, evidence, "activation.scale")


def top_inverse_temperature(claim: Claim, evidence: Evidence) -> Measured:
    """Mean inverse temperature T of the best tenth of the triples."""
    return _top(claim, evidence, "activation.inverse_temperature")


def top_offset(claim: Claim, evidence: Evidence) -> Measured:
    """Mean offset o of the best tenth of the triples."""
    return _top(claim, evidence, "activation.offset")


def _top(claim: Claim, evidence: Evidence, field: str) -> Measured:
    planned = evidence.planned(claim.sweep, claim.experiment)
    recorded = evidence.recorded(claim.sweep, claim.experiment)
    if not enough_triples(len(recorded), len(planned)):
        needed = math.ceil(max(LEAST_TRIPLES, len(planned) / 2))
        explanation = f"too few of the triples have run to speak of the best tenth: {needed} are needed"
        return unmeasured(planned, explanation if recorded else "")
    top = top_triples(recorded)
    values = [float(OmegaConf.select(run.job.config, field)) for run in top]
    explanation = f"over the best {len(top)} of {len(recorded)} triples, and so is the spread"
    return measured(planned, statistics.fmean(values), values, explanation=explanation)


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


def gradient_norm_ratio(claim: Claim, evidence: Evidence) -> Measured:
    """Level of the gradient norm of the claim's first experiment over that of its second (see `level`)."""
    planned, runs = one_each(claim, evidence)
    if not runs:
        return unmeasured(planned)
    one, other = (level(*gradient_norms(run)) for run in runs)
    explanation = f"mean per-example norm, last quarter of training: {one:.4g} over {other:.4g}"
    return measured(planned, one / other, charged=runs[:1], explanation=explanation)


def activation_norm_ratio(claim: Claim, evidence: Evidence) -> Measured:
    """Level of the first activation's norm of the first experiment over the larger of the others'."""
    planned, runs = one_each(claim, evidence)
    if not runs:
        return unmeasured(planned)
    one, *others = (level(*first_activation_norms(run)) for run in runs)
    names = [name.rpartition("/")[2] for name in claim.experiments[1:]]
    ratios = ", ".join(f"{one / other:.3g} times {name}" for name, other in zip(names, others, strict=True))
    explanation = f"last quarter of training: {ratios}; the smaller one counts"
    return measured(planned, one / max(others), charged=runs[:1], explanation=explanation)


def class_std(run: PlannedRun) -> float:
    """Standard deviation of the last epoch's per-class accuracies, in percentage points.

    With n in the denominator: the classes are all there are, not a sample.
    """
    return statistics.pstdev(float(v) for v in run.diagnostic("per_class_accuracy")[-1])


def class_accuracy_std(claim: Claim, evidence: Evidence) -> Measured:
    """Mean over the runs of `class_std`, of the claim's first experiment; the second's is the reference."""
    own, other = (evidence.planned(claim.sweep, name) for name in claim.experiments)
    values, others = ([class_std(run) for run in runs if run.record is not None] for runs in (own, other))
    if not values or not others:
        return unmeasured(own)
    reference = statistics.fmean(others)
    name = claim.experiments[1].rpartition("/")[2]
    explanation = f"in percentage points; {name} has {reference:.3g} (n = {len(others)}); the verdict is on the order"
    compared = measured(own, statistics.fmean(values), values, reference=reference, explanation=explanation)
    return replace(compared, reference_partial=len(others) < len(other))


def standard_setting_epsilon(claim: Claim, evidence: Evidence) -> Measured:
    """Epsilon of 60 epochs at noise multiplier 1.1 with batches of 256 (and of 250), computed, no run needed.

    The value is that of classic RDP with B = 256, the accounting of the paper's time.
    """
    by_batch = {batch: epochs_at(batch, 60) for batch in (256, 250)}
    epsilon = {batch: RdpClassic().epsilon(releases, DELTA) for batch, releases in by_batch.items()}
    sound = {batch: sound_epsilon(releases, DELTA) for batch, releases in by_batch.items()}
    return Measured(
        value=epsilon[256],
        epsilon=epsilon[256],
        epsilon_sound=sound[256],
        delta=DELTA,
        computed=True,
        explanation=f"2.93 is not what 60 epochs cost: classic RDP gives {epsilon[256]:.3f} with batches of "
        f"256 and {epsilon[250]:.3f} with 250, the sound value is {sound[256]:.3f} and {sound[250]:.3f}",
    )


def epochs_at(batch: int, epochs: int, noise_multiplier: float = 1.1) -> Releases:
    """The releases of DP-SGD on 60,000 examples: floor(N/B) Poisson-sampled steps an epoch."""
    event = PoissonSampledDpEvent(batch / EXAMPLES, GaussianDpEvent(noise_multiplier))
    return ((event, epochs * (EXAMPLES // batch)),)

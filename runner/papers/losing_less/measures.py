"""Measurements of this paper's own claims (see runner.report.measures for the shared ones).

Where a claim compares the two losses, its experiments come in pairs: first and second, a pair a data set. The verdict
is on the pair that supports the claim least, so that no data set is averaged away.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from statistics import fmean, geometric_mean, median

import numpy as np
from omegaconf import OmegaConf
from scipy.stats import spearmanr

from runner.papers.losing_less import recorded
from runner.papers.losing_less.recorded import PRE_ACTIVATIONS, WEIGHTS
from runner.report.claims import Claim
from runner.report.evidence import PAPER_SCALE
from runner.report.measured import Measured, of_sample, of_two
from runner.report.measures import Measure, bound_of, made_of, never_below, of_experiments, of_runs
from runner.report.runs import PlannedRun, Runs, RunsAt, last_accuracy
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


Numbers = Callable[[PlannedRun], Sequence[float]]
Read = Callable[[PlannedRun], tuple[recorded.Array, recorded.Array]]  # steps, and a number at each


@of_experiments
def accuracy_gain(claim: Claim, *experiments: Runs) -> Measured:
    """Best run of the first experiment minus best run of the second, in points, at the last epoch below the budget."""
    bound = bound_of(claim)
    one, other = (runs.last_below(bound) for runs in experiments)
    if not one or not other:
        above = any(runs.recorded and not runs.last_below(bound) for runs in experiments)
        return Measured(explanation=never_below(bound) if above else "")
    own, others = one.sample(), other.sample()
    explanation = (
        f"best of the runs, {max(own.values):.2f} after epoch {one.epochs} less {max(others.values):.2f} after epoch "
        f"{other.epochs}, the last below {bound:g}; of the medians {median(own.values) - median(others.values):.2f}, "
        f"of the means {fmean(own.values) - fmean(others.values):.2f}"
    )
    gain = of_two("difference", "best", own, others, explanation)
    return replace(gain.charged(RunsAt([*one, *other])), n=len(one) + len(other))


@of_runs
def class_train_accuracy(claim: Claim, runs: Runs) -> Measured:
    """Training accuracy (percent, mean of the runs) of the class of CIFAR-10 and the epoch that the quantity names."""
    named = re.fullmatch(r"train_accuracy_class_(\w+)_epoch_(\d+)", claim.quantity)
    assert named is not None
    which, epoch = recorded.CLASSES["cifar10"].index(named[1]), int(named[2])
    reached = runs.at(lambda run: None if recorded.confusion(run, epoch) is None else epoch - 1)
    if not reached:
        return Measured()
    sample = reached.runs.sample(lambda run: recorded.class_accuracies(run, epoch)[which])
    return replace(of_sample("mean", sample).charged(reached), n=len(reached))


def ratio_of(numbers: Numbers, what: str, *, first_epoch: bool = False) -> Measure:
    """A measure: the smallest ratio of first to second over the pairs and, where there are several, their `numbers`.

    Of geometric means over the runs. The numbers are of whole runs, or of their first epoch only. Every ratio has to
    hold what is claimed.
    """

    @of_experiments
    def smallest_ratio(_: Claim, *experiments: Runs) -> Measured:
        ratios: list[Measured] = []
        charged, texts = [], []
        for one, other in _pairs(experiments):
            of_pair = [_ratio(one, other, numbers, index) for index in range(len(numbers(one.recorded[0])))]
            ratios += of_pair
            charged += [*one.recorded, *other.recorded]
            texts.append(_ratios_text(one, other, of_pair))
        if not ratios:
            return Measured()
        smallest = min(ratios, key=lambda found: -math.inf if math.isnan(found.value or 0.0) else found.value or 0.0)
        counts = "; the smallest ratio counts" if len(ratios) > 1 else ""
        found = replace(smallest, every=tuple(ratios), explanation=f"{what}: {'; '.join(texts)}{counts}")
        return found.charged(RunsAt((run, 0) for run in charged) if first_epoch else Runs(charged))

    return smallest_ratio


def _ratio(one: Runs, other: Runs, numbers: Numbers, index: int) -> Measured:
    own, others = (runs.sample(lambda run: numbers(run)[index]) for runs in (one, other))
    return made_of(of_two("ratio", "geometric", own, others), one, other)


def _ratios_text(one: Runs, other: Runs, ratios: Sequence[Measured]) -> str:
    values = [found.value or 0.0 for found in ratios]
    names = f"{one[0].name} over {other[0].name} (n = {len(one.recorded)} and {len(other.recorded)})"
    if len(values) == 1:
        return f"{names} {values[0]:.3g}"
    above = sum(value > 1 for value in values)
    return f"{names} {min(values):.3g} to {max(values):.3g}, {above} of {len(values)} above 1"


def _pairs(experiments: Sequence[Runs]) -> list[tuple[Runs, Runs]]:
    """The planned runs of every two experiments of which both have some recorded."""
    found = zip(experiments[::2], experiments[1::2], strict=True)
    return [(one, other) for one, other in found if one.recorded and other.recorded]


def last_norms(*kinds: str) -> Numbers:
    """Norms of all layers after the last epoch."""
    return lambda run: [values[-1] for kind in kinds for values in recorded.layer_norms(run, kind)]


def last_layer(kind: str) -> Numbers:
    """The last layer's norm after the last epoch: of its weights, or of the logits."""
    return lambda run: [recorded.layer_norms(run, kind)[-1][-1]]


logit_norm_ratio = ratio_of(last_layer(PRE_ACTIVATIONS), "norm of the logits after the last epoch")
last_weight_norm_ratio = ratio_of(last_layer(WEIGHTS), "norm of the last layer's weights after the last epoch")
layer_norm_ratio = ratio_of(
    last_norms(WEIGHTS, PRE_ACTIVATIONS), "weights and pre-activations of all layers after the last epoch"
)
weight_norm_ratio = ratio_of(last_norms(WEIGHTS), "weights of all layers after the last epoch")
pre_activation_norm_ratio = ratio_of(last_norms(PRE_ACTIVATIONS), "pre-activations of all layers after the last epoch")
first_gradient_norm_ratio = ratio_of(
    lambda run: recorded.gradient_norms(run)["mean"][:1],
    "mean norm of the per-example gradients of epoch 1",
    first_epoch=True,
)
gradient_norm_ratio = ratio_of(
    lambda run: [fmean(recorded.gradient_norms(run)["mean"])], "mean norm of the per-example gradients of all epochs"
)


def _first_spread(run: PlannedRun) -> list[float]:
    norms = recorded.gradient_norms(run)
    return [norms["p90"][0] - norms["median"][0]]


first_gradient_spread_ratio = ratio_of(
    _first_spread, "90th percentile less median of the norms of epoch 1", first_epoch=True
)


def gain_of(read: Read, what: str, *, first_epoch: bool = False) -> Measure:
    """A measure: mean cosine over the steps that `read` gives, first less second: the smallest over the pairs."""

    @of_experiments
    def smallest_gain(_: Claim, *experiments: Runs) -> Measured:
        pairs = _pairs(experiments)
        number = _mean_of(read)
        gains = [
            made_of(of_two("difference", "mean", one.sample(number), other.sample(number)), one, other)
            for one, other in pairs
        ]
        if not gains:
            return Measured()
        texts = [
            f"{one[0].name} less {other[0].name} {gain.value:+.3f} (n = {gain.sizes.replace('+', 'and')})"
            for (one, other), gain in zip(pairs, gains, strict=True)
        ]
        smallest = min(gains, key=lambda gain: gain.value or 0.0)
        found = replace(smallest, every=tuple(gains), explanation=f"mean over {what}: {'; '.join(texts)}")
        charged = [run for pair in pairs for runs in pair for run in runs.recorded]
        return found.charged(RunsAt((run, 0) for run in charged) if first_epoch else Runs(charged))

    return smallest_gain


def _mean_of(read: Read) -> Callable[[PlannedRun], float]:
    return lambda run: float(np.mean(read(run)[1]))


cosine_gain = gain_of(recorded.cosines, "steps at equal distances")
first_cosine_gain = gain_of(recorded.first_epoch_cosines, "the steps of epoch 1", first_epoch=True)


@of_experiments
def eigenvalue_ratio(_: Claim, one: Runs, other: Runs) -> Measured:
    """Ratio of the largest singular values, first to second: of geometric means over the epochs and the runs."""
    return _of_eigenvalues(one.recorded, other.recorded, _geometric_mean, "all epochs")


@of_experiments
def early_eigenvalue_ratio(_: Claim, one: Runs, other: Runs) -> Measured:
    """The ratio of the largest singular values, first to second, in the first quarter of the epochs over that in the
    others.
    """
    return _of_eigenvalues(one.recorded, other.recorded, _early_over_late, "the first quarter over the others")


def _of_eigenvalues(one: Runs, other: Runs, number: Callable[[recorded.Array], float], what: str) -> Measured:
    if not one or not other:
        return Measured()
    own, others = (runs.sample(lambda run: number(recorded.eigenvalues(run)[1])) for runs in (one, other))
    means = f"{geometric_mean(own.values):.3g} and {geometric_mean(others.values):.3g}"
    return of_two("ratio", "geometric", own, others, f"geometric means, {what}: {means}").charged(one)


def _early_over_late(values: recorded.Array) -> float:
    quarter = 1 + (len(values) - 1) // 4  # epoch 0 is before training
    return _geometric_mean(values[:quarter]) / _geometric_mean(values[quarter:])


def _geometric_mean(values: recorded.Array) -> float:
    return float(np.exp(np.mean(np.log(values))))


@of_experiments
def class_accuracy_distance(_: Claim, *experiments: Runs) -> Measured:
    """How far the classes' training accuracies are from those without privacy: ours beside cross-entropy's.

    Of a run, the mean of the absolute differences to the mean of the runs without privacy, in points, over the classes
    and the recorded epochs. The experiments come in threes, a data set each: ours, cross-entropy, without privacy. All
    have to hold; the value is that where ours is the least closer.
    """
    every, used, texts = [], [], []
    for ours, ce, without in zip(experiments[::3], experiments[1::3], experiments[2::3], strict=True):
        if ours.recorded and ce.recorded and without.recorded:
            own, others = (runs.sample(partial(_distance, others=without.recorded)) for runs in (ours, ce))
            every.append(made_of(of_two("order", "mean", own, others), ours, ce))
            used += [*ours.recorded, *ce.recorded]
            texts.append(f"{ours[0].name} {fmean(own.values):.3g}, {ce[0].name} {fmean(others.values):.3g}")
    if not every:
        return Measured()
    least = max(every, key=lambda found: (found.value or 0.0) - (found.reference or 0.0))
    explanation = f"mean distance per class in points: {'; '.join(texts)}; the verdict is on the order"
    return replace(least, every=tuple(every), explanation=explanation).charged(Runs(used))


def _distance(run: PlannedRun, others: Runs) -> float:
    """Mean absolute difference of the diagonals to the mean of the others', over the epochs that all recorded."""
    every = [run, *others]
    both = [
        epoch
        for epoch in run.diagnostic("confusion")["epoch"]
        if all(recorded.confusion(of, epoch) is not None for of in every)
    ]
    own, *without = ([np.array(recorded.class_accuracies(of, epoch)) for epoch in both] for of in every)
    return float(np.abs(np.array(own) - np.mean(without, axis=0)).mean())


def lead_after(epoch: Callable[[PlannedRun], int], when: str) -> Measure:
    """A measure: mean accuracy after an epoch, first less second, in points: the smallest over the pairs."""

    def reached(run: PlannedRun) -> int:
        """The epoch asked for, from 0, or the run's last where it diverged before."""
        return min(epoch(run), len(run.history("epoch")) - 1)

    @of_experiments
    def smallest_lead(claim: Claim, *experiments: Runs) -> Measured:
        # "Best of all" says something of a data set only once all of them have run on it.
        pairs = _pairs(experiments)
        asked, ran = Counter(claim.experiments[::2]), Counter(one[0].job.experiment for one, _ in pairs)
        whole = [pair for pair in pairs if ran[pair[0][0].job.experiment] == asked[pair[0][0].job.experiment]]
        if not whole:
            return Measured()
        leads, used, texts = [], [], []
        for pair in whole:
            one, other = (runs.at(reached) for runs in pair)
            lead = made_of(of_two("difference", "mean", one.sample(), other.sample()), *pair)
            leads.append(lead)
            used += [*one, *other]
            texts.append(f"{one[0][0].name} − {other[0][0].name} {lead.value:+.2f}")
        explanation = f"means of the runs after {when}, in points: {', '.join(texts)}; the smallest counts"
        smallest = min(leads, key=lambda lead: lead.value or 0.0)
        found = replace(smallest, every=tuple(leads), reference=0.0, explanation=explanation)
        return found.charged(RunsAt(used))

    return smallest_lead


lead_at_the_end = lead_after(lambda run: len(run.history("epoch")) - 1, "the last epoch")
lead_at_a_quarter = lead_after(lambda run: max(1, int(run.field("epochs")) // 4) - 1, "a quarter of the epochs")


def of_swept(measure: Callable[[Mapping[str, Mapping[float, float]]], Measured]) -> Measure:
    """A measure of last-epoch accuracy by a parameter's value: for each experiment half of whose runs are recorded.

    It is of several settings, one run each: no sample of one setting.
    """

    @wraps(measure)
    def of_all(claim: Claim, *experiments: Runs) -> Measured:
        field = FIELDS[claim.sweep.rpartition("/")[2]]
        enough = [runs for runs in experiments if len(runs.recorded) >= max(2, len(runs) / 2)]
        if not enough:
            return Measured(explanation="less than half of the values have run on any data set")
        groups = {runs[0].name: runs.recorded.by_value(field) for runs in enough}
        return measure({name: {at: last_accuracy(of[0]) for at, of in by.items()} for name, by in groups.items()})

    return of_experiments(of_all)


@of_swept
def sensitivity(swept: Mapping[str, Mapping[float, float]]) -> Measured:
    """Best less worst last-epoch accuracy over one parameter's values, in points: the largest over the data sets."""
    ranges = {name: max(accuracy.values()) - min(accuracy.values()) for name, accuracy in swept.items()}
    texts = [f"{name} {span:.2f} over {len(swept[name])} values" for name, span in ranges.items()]
    explanation = f"best less worst, in points: {', '.join(texts)}; the largest counts; of one seed, so partly noise"
    return Measured(max(ranges.values()), explanation=explanation)


@of_swept
def rank_correlation(swept: Mapping[str, Mapping[float, float]]) -> Measured:
    """Spearman's rank correlation of a parameter and the last-epoch accuracy: the smallest over the data sets."""
    found = {name: float(spearmanr(list(a), list(a.values())).statistic) for name, a in swept.items()}
    explanation = f"{', '.join(f'{name} {value:.2f}' for name, value in found.items())}; the smallest counts"
    return Measured(min(found.values()), explanation=explanation)

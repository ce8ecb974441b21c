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
from functools import wraps
from statistics import fmean, median

import numpy as np
from omegaconf import OmegaConf
from scipy.stats import spearmanr

from runner.papers.losing_less import recorded
from runner.papers.losing_less.recorded import PRE_ACTIVATIONS, WEIGHTS
from runner.report.claims import Claim
from runner.report.evidence import PAPER_SCALE
from runner.report.measured import Measured, of_sample, of_two
from runner.report.measures import Measure, bound_of, never_below, of_experiments, of_one_run_each, of_runs
from runner.report.runs import PlannedRun, Runs, RunsAt, Sample, last_accuracy, of_one_run
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

    These are of whole runs, or of their first epoch only.
    """

    @of_experiments
    def smallest_ratio(_: Claim, *experiments: Runs) -> Measured:
        ratios: list[tuple[float, Measured]] = []
        charged, texts = [], []
        for one, other in ((one[0], other[0]) for one, other in _recorded_pairs(experiments)):
            values = list(zip(numbers(one), numbers(other), strict=True))
            of_pair = [a / b if b else math.inf for a, b in values]
            samples = [(of_one_run(one, a), of_one_run(other, b)) for a, b in values]
            ratios += zip(of_pair, (of_two("ratio", "single", *both) for both in samples), strict=True)
            charged += [one, other]
            texts.append(_ratios_text(one.name, other.name, values, of_pair))
        if not ratios:
            return Measured()
        smallest = min(ratios, key=lambda found: -math.inf if math.isnan(found[0]) else found[0])[1]
        counts = "; the smallest ratio counts" if len(ratios) > 1 else ""
        found = replace(smallest, explanation=f"{what}: {'; '.join(texts)}{counts}")
        return found.charged(RunsAt((run, 0) for run in charged) if first_epoch else Runs(charged))

    return smallest_ratio


def _ratios_text(one: str, other: str, values: Sequence[tuple[float, float]], ratios: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{one} {values[0][0]:.4g} over {other} {values[0][1]:.4g}"
    above = sum(ratio > 1 for ratio in ratios)
    return f"{one} over {other} {min(ratios):.3g} to {max(ratios):.3g}, {above} of {len(ratios)} above 1"


def _recorded_pairs(experiments: Sequence[Runs]) -> list[tuple[Runs, Runs]]:
    """The recorded runs of every two experiments of which both have some."""
    found = [runs.recorded for runs in experiments]
    return [pair for pair in zip(found[::2], found[1::2], strict=True) if all(pair)]


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


@of_one_run_each
def cosine_gain(_: Claim, one: PlannedRun, other: PlannedRun) -> Measured:
    """Mean cosine over steps at equal distances, first experiment minus second."""
    return _cosine_gain(one, other, recorded.cosines, "steps at equal distances")


@of_one_run_each
def first_cosine_gain(_: Claim, one: PlannedRun, other: PlannedRun) -> Measured:
    """Mean cosine over the steps of the first epoch, first experiment minus second."""
    gain = _cosine_gain(one, other, recorded.first_epoch_cosines, "the steps of epoch 1")
    return gain.charged(RunsAt([(one, 0)]))


def _cosine_gain(
    one: PlannedRun, other: PlannedRun, read: Callable[[PlannedRun], tuple[recorded.Array, recorded.Array]], steps: str
) -> Measured:
    own, reference = (float(np.mean(read(run)[1])) for run in (one, other))
    explanation = f"mean over {steps}: {own:.3f} less {reference:.3f}"
    return of_two("difference", "single", of_one_run(one, own), of_one_run(other, reference), explanation)


@of_one_run_each
def eigenvalue_ratio(_: Claim, one: PlannedRun, other: PlannedRun) -> Measured:
    """Geometric mean over the measured epochs of the ratio of the largest singular values, first to second."""
    first, second = _eigenvalues(one, other)
    below = int((first < second).sum())
    explanation = f"geometric mean over the epochs 0 to {len(first) - 1}; below 1 in {below} of them"
    own, others = of_one_run(one, _geometric_mean(first)), of_one_run(other, _geometric_mean(second))
    return of_two("ratio", "single", own, others, explanation)


@of_one_run_each
def early_eigenvalue_ratio(_: Claim, one: PlannedRun, other: PlannedRun) -> Measured:
    """Geometric mean of the ratio of the largest singular values over the first quarter of the epochs; the reference is
    that over the others.
    """
    first, second = _eigenvalues(one, other)
    ratios, quarter = first / second, 1 + (len(first) - 1) // 4  # epoch 0 is before training
    early, late = _geometric_mean(ratios[:quarter]), _geometric_mean(ratios[quarter:])
    explanation = f"first quarter of the epochs; {late:.3g} in the others; the verdict is on the order"
    return _order_of(of_one_run(one, early), of_one_run(one, late), explanation)


def _order_of(own: Sample, reference: Sample, explanation: str) -> Measured:
    """The order of one number a seed each, which several runs of that seed have together: no run's own `values`."""
    return replace(of_two("order", "single", own, reference, explanation), values=())


def _eigenvalues(one: PlannedRun, other: PlannedRun) -> tuple[recorded.Array, recorded.Array]:
    """The largest singular values of both runs, at the epochs that both have: one may have diverged."""
    (_, first), (_, second) = recorded.eigenvalues(one), recorded.eigenvalues(other)
    epochs = min(len(first), len(second))
    return first[:epochs], second[:epochs]


def _geometric_mean(values: recorded.Array) -> float:
    return float(np.exp(np.mean(np.log(values))))


@of_experiments
def class_accuracy_distance(_: Claim, *experiments: Runs) -> Measured:
    """How far the classes' training accuracies are from those without privacy: ours; the reference is cross-entropy's.

    Mean of the absolute differences, in points, over the classes, the recorded epochs and the data sets of which all
    three runs are recorded. The experiments come in threes: ours, cross-entropy, without privacy.
    """
    own: list[float] = []
    reference: list[float] = []
    charged, texts = [], []
    firsts = [runs.recorded[:1] for runs in experiments]
    for runs in (runs for runs in zip(firsts[::3], firsts[1::3], firsts[2::3], strict=True) if all(runs)):
        (ours,), (ce,), (without,) = runs
        of_ours, of_ce = _distances(ours, without), _distances(ce, without)
        if of_ours and of_ce:
            own += of_ours
            reference += of_ce
            charged += [ours, ce]
            texts.append(f"{ours.name} {fmean(of_ours):.3g}, {ce.name} {fmean(of_ce):.3g}")
    if not charged:
        return Measured()
    explanation = f"mean distance per class in points: {'; '.join(texts)}; the verdict is on the order"
    found = _order_of(of_one_run(charged[0], fmean(own)), of_one_run(charged[1], fmean(reference)), explanation)
    return found.charged(Runs(charged))


def _distances(run: PlannedRun, other: PlannedRun) -> list[float]:
    """Mean absolute difference of the diagonals, by epoch that both recorded."""
    both = [e for e in run.diagnostic("confusion")["epoch"] if recorded.confusion(other, e) is not None]
    diagonals = ([np.array(recorded.class_accuracies(of, epoch)) for of in (run, other)] for epoch in both)
    return [float(np.abs(one - two).mean()) for one, two in diagonals]


def lead_after(epoch: Callable[[PlannedRun], int], when: str) -> Measure:
    """A measure: median accuracy after an epoch, first less second, in points: the smallest over the pairs."""

    def reached(run: PlannedRun) -> int:
        """The epoch asked for, from 0, or the run's last where it diverged before."""
        return min(epoch(run), len(run.history("epoch")) - 1)

    @of_experiments
    def smallest_lead(claim: Claim, *experiments: Runs) -> Measured:
        # "Best of all" says something of a data set only once all of them have run on it.
        pairs = _recorded_pairs(experiments)
        asked, ran = Counter(claim.experiments[::2]), Counter(one[0].job.experiment for one, _ in pairs)
        whole = [pair for pair in pairs if ran[pair[0][0].job.experiment] == asked[pair[0][0].job.experiment]]
        if not whole:
            return Measured()
        leads, used, texts = [], [], []
        for one, other in ((one.at(reached), other.at(reached)) for one, other in whole):
            lead = of_two("difference", "median", one.sample(), other.sample())
            leads.append(lead)
            used += [*one, *other]
            texts.append(f"{one[0][0].name} − {other[0][0].name} {lead.value:+.2f}")
        explanation = f"medians of the runs after {when}, in points: {', '.join(texts)}; the smallest counts"
        smallest = min(leads, key=lambda lead: lead.value or 0.0)
        return replace(smallest, reference=0.0, explanation=explanation).charged(RunsAt(used))

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

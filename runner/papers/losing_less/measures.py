"""Measurements of this paper's own claims (see runner.report.measures for the shared ones).

Where a claim compares the two losses, its experiments come in pairs: first and second, a pair a data set. The verdict
is on the pair that supports the claim least, so that no data set is averaged away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

import numpy as np
from omegaconf import OmegaConf
from scipy.stats import spearmanr

from runner.papers.losing_less import recorded
from runner.papers.losing_less.recorded import PRE_ACTIVATIONS, WEIGHTS
from runner.report.claims import Claim
from runner.report.evidence import Evidence, PlannedRun
from runner.report.measures import (
    Measured,
    accuracies_at,
    charged_at,
    epochs_text,
    last_below,
    measured,
    never_below,
    one_each,
    unmeasured,
)

CLASSES = {"car": 1, "cat": 3, "truck": 9}  # of CIFAR-10
FIELDS = {
    "fig_10_threshold_epoch": "loss.threshold_epoch",
    "fig_10_beta": "loss.beta",
    "fig_10_gamma": "loss.gamma",
    "fig_15_huber": "loss.threshold",
}
Pair = tuple[PlannedRun, PlannedRun]
Numbers = Callable[[PlannedRun], Sequence[float]]


def accuracy_gain(claim: Claim, evidence: Evidence) -> Measured:
    """Best run of the first experiment minus best run of the second, in points, at the last epoch below the budget."""
    assert claim.epsilon is not None
    bound = claim.epsilon[0]
    each = [evidence.planned(claim.sweep, name) for name in claim.experiments]
    planned = [run for runs in each for run in runs]
    reached = [last_below(runs, bound) for runs in each]
    if not all(reached):
        return never_below(
            planned, bound, [run for runs, of in zip(each, reached, strict=True) if not of for run in runs]
        )
    one, other = (accuracies_at(runs) for runs in reached)
    explanation = (
        f"best of the runs, {max(one):.2f} after {epochs_text(reached[0])} less {max(other):.2f} after "
        f"{epochs_text(reached[1])}, the last below {bound:g}; of the medians {median(one) - median(other):.2f}, "
        f"of the means {fmean(one) - fmean(other):.2f}"
    )
    gain = measured(planned, max(one) - max(other), explanation=explanation)
    return charged_at([*reached[0], *reached[1]], gain)


def class_train_accuracy(claim: Claim, evidence: Evidence) -> Measured:
    """Training accuracy in percent of the class and epoch that the claim's quantity names, mean over the runs."""
    named = re.fullmatch(r"train_accuracy_class_(\w+)_epoch_(\d+)", claim.quantity)
    assert named is not None
    name, epoch = named[1], int(named[2])
    planned = evidence.planned(claim.sweep, claim.experiment)
    matrices = [(run, recorded.confusion(run, epoch)) for run in evidence.recorded(claim.sweep, claim.experiment)]
    values = [float(matrix[CLASSES[name], CLASSES[name]]) for _, matrix in matrices if matrix is not None]
    if not values:
        return unmeasured(planned)
    reached = [(run, epoch - 1) for run, matrix in matrices if matrix is not None]
    return charged_at(reached, measured(planned, fmean(values), values))


def ratio_of(numbers: Numbers, what: str, *, first_epoch: bool = False) -> Callable[[Claim, Evidence], Measured]:
    """A measure: the smallest ratio of first to second over the pairs and, where there are several, their `numbers`.

    These are of whole runs, or of their first epoch only.
    """

    def smallest_ratio(claim: Claim, evidence: Evidence) -> Measured:
        planned, pairs = _pairs(claim, evidence)
        ratios, texts = [], []
        for one, other in pairs:
            values = list(zip(numbers(one), numbers(other), strict=True))
            of_pair = [_ratio(a, b) for a, b in values]
            ratios += of_pair
            if len(values) == 1:
                texts.append(f"{_name(one)} {values[0][0]:.4g} over {_name(other)} {values[0][1]:.4g}")
            else:
                above = sum(ratio > 1 for ratio in of_pair)
                span = f"{min(of_pair):.3g} to {max(of_pair):.3g}"
                texts.append(f"{_name(one)} over {_name(other)} {span}, {above} of {len(of_pair)} above 1")
        if not ratios:
            return unmeasured(planned)
        counts = "; the smallest ratio counts" if len(ratios) > 1 else ""
        smallest = math.nan if any(map(math.isnan, ratios)) else min(ratios)
        charged = [run for pair in pairs for run in pair]
        value = measured(planned, smallest, charged=charged, explanation=f"{what}: {'; '.join(texts)}{counts}")
        return charged_at([(run, 0) for run in charged], value, value.n) if first_epoch else value

    return smallest_ratio


def _ratio(one: float, other: float) -> float:
    return one / other if other else math.inf


def _name(run: PlannedRun) -> str:
    return run.job.experiment.rpartition("/")[2]


def _pairs(claim: Claim, evidence: Evidence) -> tuple[list[PlannedRun], list[Pair]]:
    """The planned runs of all pairs, and the first recorded run of either of a pair, where both have one."""
    planned = _planned(claim, evidence)
    found = []
    for names in _in_twos(claim.experiments):
        one, other = (evidence.recorded(claim.sweep, name)[:1] for name in names)
        found += list(zip(one, other, strict=False))
    return planned, found


def _in_twos(names: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(names[::2], names[1::2], strict=True))


def _planned(claim: Claim, evidence: Evidence) -> list[PlannedRun]:
    """Of every experiment that the claim names, once."""
    return [run for name in dict.fromkeys(claim.experiments) for run in evidence.planned(claim.sweep, name)]


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


def cosine_gain(claim: Claim, evidence: Evidence) -> Measured:
    """Mean cosine over steps at equal distances, first experiment minus second."""
    return _cosine_gain(claim, evidence, recorded.cosines, "steps at equal distances")


def first_cosine_gain(claim: Claim, evidence: Evidence) -> Measured:
    """Mean cosine over the steps of the first epoch, first experiment minus second."""
    gain = _cosine_gain(claim, evidence, recorded.first_epoch_cosines, "the steps of epoch 1")
    _, runs = one_each(claim, evidence)
    return charged_at([(runs[0], 0)], gain, gain.n) if runs else gain


def _cosine_gain(
    claim: Claim,
    evidence: Evidence,
    read: Callable[[PlannedRun], tuple[recorded.Array, recorded.Array]],
    steps: str,
) -> Measured:
    planned, runs = one_each(claim, evidence)
    if not runs:
        return unmeasured(planned)
    one, other = (float(np.mean(read(run)[1])) for run in runs)
    explanation = f"mean over {steps}: {one:.3f} less {other:.3f}"
    return measured(planned, one - other, charged=runs[:1], explanation=explanation)


def eigenvalue_ratio(claim: Claim, evidence: Evidence) -> Measured:
    """Geometric mean over the measured epochs of the ratio of the largest singular values, first to second."""
    planned, pairs = _pairs(claim, evidence)
    if not pairs:
        return unmeasured(planned)
    early, late = _early_and_late(*pairs[0])
    ratios = np.concatenate([early, late])
    explanation = f"geometric mean over the epochs 0 to {len(ratios) - 1}; below 1 in {int((ratios < 1).sum())} of them"
    return measured(planned, _geometric_mean(ratios), charged=pairs[0][:1], explanation=explanation)


def early_eigenvalue_ratio(claim: Claim, evidence: Evidence) -> Measured:
    """The same over the first quarter of the epochs; the reference is that over the others."""
    planned, pairs = _pairs(claim, evidence)
    if not pairs:
        return unmeasured(planned)
    early, late = (_geometric_mean(part) for part in _early_and_late(*pairs[0]))
    explanation = f"first quarter of the epochs; {late:.3g} in the others; the verdict is on the order"
    return measured(planned, early, charged=pairs[0][:1], reference=late, explanation=explanation)


def _early_and_late(one: PlannedRun, other: PlannedRun) -> tuple[recorded.Array, recorded.Array]:
    (_, first), (_, second) = recorded.eigenvalues(one), recorded.eigenvalues(other)
    epochs = min(len(first), len(second))  # one may have diverged
    ratios = first[:epochs] / second[:epochs]
    quarter = 1 + (epochs - 1) // 4  # epoch 0 is before training
    return ratios[:quarter], ratios[quarter:]


def _geometric_mean(ratios: recorded.Array) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def class_accuracy_distance(claim: Claim, evidence: Evidence) -> Measured:
    """How far the classes' training accuracies are from those without privacy: ours; the reference is cross-entropy's.

    Mean of the absolute differences, in points, over the classes, the recorded epochs and the data sets of which all
    three runs are recorded. The experiments come in threes: ours, cross-entropy, without privacy.
    """
    planned = _planned(claim, evidence)
    distances: tuple[list[float], list[float]] = ([], [])
    charged, texts = [], []
    for names in zip(*(claim.experiments[i::3] for i in range(3)), strict=True):
        runs = [evidence.recorded(claim.sweep, name)[:1] for name in names]
        if not all(runs):
            continue
        ours, ce, without = (run[0] for run in runs)
        pair = [_distances(run, without) for run in (ours, ce)]
        if not pair[0] or not pair[1]:
            continue
        for every, some in zip(distances, pair, strict=True):
            every += some
        charged += [ours, ce]
        texts.append(f"{_name(ours)} {fmean(pair[0]):.3g}, {_name(ce)} {fmean(pair[1]):.3g}")
    if not charged:
        return unmeasured(planned)
    own, reference = map(fmean, distances)
    explanation = f"mean distance per class in points: {'; '.join(texts)}; the verdict is on the order"
    return measured(planned, own, charged=charged, reference=reference, explanation=explanation)


def _distances(run: PlannedRun, other: PlannedRun) -> list[float]:
    """Mean absolute difference of the diagonals, by epoch that both recorded."""
    found = []
    for epoch in run.diagnostic("confusion")["epoch"]:
        one, two = recorded.confusion(run, epoch), recorded.confusion(other, epoch)
        if one is not None and two is not None:
            found.append(float(np.abs(np.diag(one) - np.diag(two)).mean()))
    return found


def lead_at_the_end(claim: Claim, evidence: Evidence) -> Measured:
    """Median accuracy after the last epoch, first less second, in points: the smallest over the pairs."""
    return _lead(claim, evidence, lambda _: -1, "the last epoch")


def lead_at_a_quarter(claim: Claim, evidence: Evidence) -> Measured:
    """The same after a quarter of the epochs."""
    return _lead(claim, evidence, lambda run: max(1, int(run.job.config.epochs) // 4) - 1, "a quarter of the epochs")


def _lead(claim: Claim, evidence: Evidence, at: Callable[[PlannedRun], int], when: str) -> Measured:
    planned, leads, texts = _planned(claim, evidence), [], []
    used: list[tuple[PlannedRun, int]] = []
    twos = _in_twos(claim.experiments)
    # "Best of all" says something of a data set only once all of them have run on it.
    waiting = {one for one, other in twos if not all(evidence.recorded(claim.sweep, name) for name in (one, other))}
    for names in (names for names in twos if names[0] not in waiting):
        runs = [evidence.recorded(claim.sweep, name) for name in names]
        reached = [[(run, _until(run, at(run))) for run in of] for of in runs]
        one, other = (median(accuracies_at(of)) for of in reached)
        used += [*reached[0], *reached[1]]
        leads.append(one - other)
        texts.append(f"{_name(runs[0][0])} − {_name(runs[1][0])} {one - other:+.2f}")
    if not leads:
        return unmeasured(planned)
    explanation = f"medians of the runs after {when}, in points: {', '.join(texts)}; the smallest counts"
    lead = measured(planned, min(leads), reference=0.0, explanation=explanation)
    return charged_at(used, lead, lead.n)


def _until(run: PlannedRun, epoch: int) -> int:
    """The epoch, from 0, or the run's last: the last one for -1, and where it diverged before."""
    last = len(run.history("epoch")) - 1
    return last if epoch < 0 else min(epoch, last)


def sensitivity(claim: Claim, evidence: Evidence) -> Measured:
    """Best less worst last-epoch accuracy over one parameter's values, in points: the largest over the data sets."""
    planned, swept = _swept(claim, evidence)
    if not swept:
        return unmeasured(planned, "less than half of the values have run on any data set")
    ranges = {name: max(accuracy.values()) - min(accuracy.values()) for name, accuracy in swept.items()}
    texts = [f"{name} {span:.2f} over {len(swept[name])} values" for name, span in ranges.items()]
    explanation = f"best less worst, in points: {', '.join(texts)}; the largest counts; of one seed, so partly noise"
    return measured(planned, max(ranges.values()), explanation=explanation)


def rank_correlation(claim: Claim, evidence: Evidence) -> Measured:
    """Spearman's rank correlation of a parameter and the last-epoch accuracy: the smallest over the data sets."""
    planned, swept = _swept(claim, evidence)
    if not swept:
        return unmeasured(planned, "less than half of the values have run on any data set")
    found = {name: float(spearmanr(list(a), list(a.values())).statistic) for name, a in swept.items()}
    explanation = f"{', '.join(f'{name} {value:.2f}' for name, value in found.items())}; the smallest counts"
    return measured(planned, min(found.values()), explanation=explanation)


def _swept(claim: Claim, evidence: Evidence) -> tuple[list[PlannedRun], dict[str, dict[float, float]]]:
    """The planned runs; last-epoch accuracy by the parameter's value, of each experiment half of whose runs are in."""
    field = FIELDS[claim.sweep.rpartition("/")[2]]
    found = {}
    for name in claim.experiments:
        runs = evidence.recorded(claim.sweep, name)
        if len(runs) >= max(2, len(evidence.planned(claim.sweep, name)) / 2):
            found[name.rpartition("/")[2]] = accuracy_by_value(runs, field)
    return _planned(claim, evidence), found


def accuracy_by_value(runs: Iterable[PlannedRun], field: str) -> dict[float, float]:
    """Last-epoch accuracy in percent by the value of a config field, in the order of the values."""
    return dict(sorted((float(OmegaConf.select(r.job.config, field)), r.final("test_accuracy")) for r in runs))

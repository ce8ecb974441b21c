"""Measures of this paper only: gains on several data sets, distances of classes, the smoothness of lemma 1."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from runner.claims.claim import Claim
from runner.claims.measure import Formula, computed, counted, planned_for, prepared
from runner.claims.measurement import Measured, charged, compare_samples, measure_sample
from runner.claims.numbers import WEIGHTS, class_accuracies, confusion, layer_norms
from runner.claims.runs import Evidence, PlannedRun, Runs, last_accuracy
from runner.records.jobs import sweep_jobs

if TYPE_CHECKING:
    from torch import Tensor

SENSITIVITY = {  # by sweep of figure 10: the field that it varies, and its name
    "fig_10_threshold_epoch": ("loss.threshold_epoch", "threshold epoch"),
    "fig_10_beta": ("loss.beta", "divisor of the regulariser β"),
    "fig_10_gamma": ("loss.gamma", "focal exponent γ"),
}
_INPUTS, _HIDDEN, _CLASSES, _EXAMPLES = 4, 5, 3, 20
_PAIRS, _POINTS, _APART = 20, 17, 0.3  # pairs of weights, points between them for the Hessian, distance


def values_tried(sweep: str, field: str) -> list[float]:
    """Return the values of a field in a sweep at the paper's scale, the smallest first."""
    return sorted({float(job.field(field)) for job in sweep_jobs(f"losing_less/{sweep}")})


def noise_norms(run: PlannedRun) -> list[list[float]]:
    """Return the L2 norms that a run's layers would have by their first weights and the noise alone: [layers][epochs].

    s is the standard deviation of a step's noise in a weight, d the number of weights, m the momentum. The squared norm
    after t steps has the mean |w_0|^2 + d s^2 sum_{j=1..t} ((1 - m^j) / (1 - m))^2. By the momentum, the noise of a
    step goes on to act in later ones, j in all with its own.
    """
    from runner.networks.objective import layers_with_parameters  # here, because plans need no PyTorch

    momentum = float(run.field("optimizer.momentum") or 0)
    std = float(run.field("optimizer.lr")) * run.final("noise_multiplier") * float(run.field("clipping.norm"))
    std /= float(run.field("batch_size"))
    steps = np.arange(1, int(run.history("steps")[-1]) + 1)
    grown = np.concatenate([[0.0], np.cumsum(((1 - momentum**steps) / (1 - momentum)) ** 2)])
    ends = [0, *map(int, run.history("steps"))]
    first = [values[0] for values in layer_norms(run, WEIGHTS)]
    layers = layers_with_parameters(prepared(run.job.sweep, run.job.experiment).initial.network)
    sizes = [layers[name].get_parameter("weight").numel() for name in run.diagnostic("layer_norms")[WEIGHTS]]
    return [
        [math.sqrt(norm**2 + size * std**2 * grown[end]) for end in ends]
        for norm, size in zip(first, sizes, strict=True)
    ]


@Formula
def over_noise(claim: Claim, evidence: Evidence) -> Measured:
    """Return the norm of the weights after the last epoch over that of the noise alone: `hidden`, or `last` layer.

    For the hidden layers it is the mean over the layers.
    """
    planned = planned_for(claim, evidence, claim.experiment)

    def over(run: PlannedRun) -> float:
        pairs = zip(layer_norms(run, WEIGHTS), noise_norms(run), strict=True)
        *hidden, last = (norms[-1] / noise[-1] for norms, noise in pairs)
        return last if claim.number.argument == "last" else fmean(hidden)

    return counted(planned, measure_sample("mean", planned.sample(over)))


@Formula
def gain_beyond_the_others(claim: Claim, evidence: Evidence) -> Measured:
    """Return the gain of the claim's first pair, by seed, minus the gain of each other pair; all must be positive.

    A gain is the accuracy with the first loss minus that with the second, for each seed with both.
    """
    planned = [Runs(run for name in pair for run in planned_for(claim, evidence, name)) for pair in claim.pairs]
    together = Runs(run for runs in planned for run in runs)
    by_seed = [[pair for pair in runs.recorded.by(lambda run: run.seed).values() if len(pair) == 2] for runs in planned]
    gains = [tuple(last_accuracy(ours) - last_accuracy(ce) for ours, ce in pairs) for pairs in by_seed]
    differences = tuple(
        replace(
            compare_samples("difference", "mean", gains[0], other),
            reference=0.0,
            n=len(planned[0].recorded + runs.recorded),
        )
        for runs, other in zip(planned[1:], gains[1:], strict=True)
        if gains[0] and other
    )
    if not differences:
        return counted(together, Measured())
    by_pair = zip(claim.pairs, gains, strict=True)
    texts = (f"{pair[0].rpartition('/')[2]} {fmean(sample):.2f}" for pair, sample in by_pair if sample)
    least = min(differences, key=lambda difference: difference.value or 0.0)
    text = f"mean gains: {', '.join(texts)}; the least favourable counts"
    return counted(together, charged(replace(least, statements=differences, explanation=text), together.last))


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

    def distance(run: PlannedRun) -> float:
        runs = [run, *without]
        recorded = run.diagnostic("confusion")["epoch"]
        epochs = [epoch for epoch in recorded if all(confusion(other, epoch) is not None for other in runs)]
        private, *without_privacy = ([np.array(class_accuracies(other, epoch)) for epoch in epochs] for other in runs)
        return float(np.abs(np.array(private) - np.mean(without_privacy, axis=0)).mean())

    proposed, plain = ours.sample(distance), ce.sample(distance)
    text = f"mean distance per class in points: {fmean(proposed):.3g} and {fmean(plain):.3g}"
    return counted(Runs([*planned[0], *planned[1]]), compare_samples("order", "mean", proposed, plain, text))


@computed
def smoothness_ratio(_: Claim) -> Measured:
    """Return the largest of ||grad L(w) - grad L(w')|| over sigma_max ||w - w'||, over pairs of weights w and w'.

    L is the proposed loss on a network with one tanh layer. It has the parameters of CIFAR-10, at its threshold epoch,
    so that each part has weight. w is random, and w' lies in the direction in which the gradient changes fastest.
    sigma_max is the largest singular value of the Hessian at points between the two.
    """
    import torch

    from runner.networks.losses import LosingLess

    torch.manual_seed(0)
    x = torch.randn(_EXAMPLES, _INPUTS, dtype=torch.float64)
    targets = torch.arange(_EXAMPLES) % _CLASSES
    loss = LosingLess(threshold_epoch=7.0, beta=11.0, gamma=5.0)
    loss.start_epoch(7)

    def value(weights: Tensor) -> Tensor:
        first, last = weights.split((_INPUTS * _HIDDEN, _HIDDEN * _CLASSES))
        hidden = x @ first.reshape(_INPUTS, _HIDDEN)
        losses: Tensor = loss(hidden.tanh() @ last.reshape(_HIDDEN, _CLASSES), targets, [hidden])
        return losses.mean()

    hessians, gradient = torch.vmap(torch.func.hessian(value)), torch.func.grad(value)
    ratios = []
    for weights in torch.randn(_PAIRS, _HIDDEN * (_INPUTS + _CLASSES), dtype=torch.float64):
        step = _APART * torch.linalg.svd(hessians(weights[None])[0]).Vh[0]
        between = weights + torch.linspace(0, 1, _POINTS, dtype=torch.float64)[:, None] * step
        largest = torch.linalg.matrix_norm(hessians(between), ord=2).max()
        ratios.append(float((gradient(weights + step) - gradient(weights)).norm() / (largest * _APART)))
    return Measured(max(ratios), explanation=f"the largest of {_PAIRS} pairs of weights")

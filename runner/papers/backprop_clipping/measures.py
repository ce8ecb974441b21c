"""Measures of this paper only: the cost of settings and noises, and a layer's sensitivity."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from runner.accounting import Pld
from runner.accounting.ledger import gaussian_epsilon
from runner.build.prepare import prepare
from runner.claims.claim import Claim
from runner.claims.formulas import Formula, charged_epsilon, computed, ledger_of
from runner.claims.measurement import Measured
from runner.claims.runs import Evidence
from runner.terminal import bound_text

_SEEDS = 10  # of the runs
_LARGE = 1_000_000  # weights
_RADIUS = 0.12  # of the disc, of the image's height
STATED = ("3", "1", "02", "01")  # the epsilons of the authors' script, as in the names of experiments


@computed
def layer_sensitivity(claim: Claim) -> Measured:
    """Return the largest norm of one example's contribution to a layer, for the claim's experiment."""
    run = ledger_of(claim.sweep, claim.experiment)[0]
    return Measured(max(group.sensitivity for group in run.mechanism.noise_groups))


@Formula
def epsilon_of_rho(claim: Claim, evidence: Evidence) -> Measured:
    """Return E L rho as an epsilon (zCDP), with the experiment's epochs and layers and the rho in brackets.

    The sound epsilon is that of the steps by PLD. Statistics that standardise pixels are no part of the algorithm.
    """
    run = ledger_of(claim.sweep, claim.experiment)[0]
    rho = run.epochs * len(run.mechanism.noise_groups) * float(claim.number.argument)
    epsilon = rho + 2 * math.sqrt(rho * math.log(1 / run.config.delta))
    measured = charged_epsilon(claim, evidence)
    sound = measured.epsilon_sound if measured.epsilon_spent is None else measured.epsilon_spent
    text = f"ρ = {claim.number.argument} a layer and epoch, {rho:.4g} in all"
    return replace(measured, value=epsilon, epsilon=epsilon, epsilon_sound=sound, epsilon_spent=None, explanation=text)


@Formula
def counted_by_pld(claim: Claim, evidence: Evidence) -> Measured:
    """Return the PLD epsilon of the releases that the experiment counts by another accountant; and the sound one."""
    run, claimed, _ = ledger_of(claim.sweep, claim.experiment)
    measured = charged_epsilon(claim, evidence)
    epsilon = Pld().epsilon(claimed, run.config.delta)
    text = f"by the script's own accountant {bound_text(measured.value)}; the ε of all steps is an upper bound"
    return replace(measured, value=epsilon, epsilon=epsilon, explanation=text)


def white_disc(shape: Sequence[int]) -> Tensor:
    """Return an image [1, channels, height, width] with a small white disc in its middle."""
    channels, height, width = shape
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    disc = (rows - height / 2).square() + (columns - width / 2).square() < (_RADIUS * height) ** 2
    return disc.float().expand(1, channels, height, width)


@lru_cache
def first_update_epsilon(sweep: str, experiment: str) -> float | None:
    """Return a lower bound on epsilon with the bug: the exact epsilon of the first update, the least of ten seeds.

    It is for one pair of data sets for each seed. One has a white disc in its first batch, in the other this example
    counts as zero. The first weights and the batches are public, as in theorem 1. So the disc moves the sum of group g
    by a known vector v_g. The two releases are Gaussians whose means are sqrt(sum_g (|v_g| / std_g)^2) standard
    deviations apart. Later updates only add to that. The disc has the label that moves the sums the most, and its size
    was chosen for these seeds. Both are allowed, as epsilon holds for all pairs. None for a large network: it takes a
    minute.
    """
    run = ledger_of(sweep, experiment)[0]
    if run.parameters > _LARGE:
        return None
    images = run.features(white_disc(run.dataset.shape)).double()
    clipping = run.mechanism.applied(run.clipping, run.config.batch_size)
    noise = {name: run.mechanism.noise_std(group) for group in run.mechanism.noise_groups for name in group.parameters}
    least = math.inf
    for seed in range(_SEEDS):
        config = copy.deepcopy(run.config)
        config.seed = seed
        engine, largest = run.engine(prepare(config).new_objective().double()), 0.0
        for label in range(run.dataset.classes):
            moved = clipping.sum_contributions(engine, images, torch.tensor([label])).gradients
            largest = max(largest, math.hypot(*(float(moved[name].norm()) / std for name, std in noise.items())))
        least = min(least, gaussian_epsilon(largest, config.delta))
    return least

"""Measures of this paper only: the cost of settings and noises, and a layer's sensitivity."""

from __future__ import annotations

import math
from dataclasses import replace

from runner.accounting import Pld
from runner.accounting.mechanisms import gaussian_epsilon
from runner.claims.charges import charged_epsilon, ledger_of
from runner.claims.claim import Claim
from runner.claims.evidence import Evidence
from runner.claims.measure import Formula, computed
from runner.claims.measured import Measured
from runner.training.prepare import Run

STATED = ("3", "1", "02", "01")  # the epsilons of the authors' script, as in the names of experiments


@computed
def layer_sensitivity(claim: Claim) -> Measured:
    """Return the largest norm of one example's contribution to a layer, for the claim's experiment."""
    run = ledger_of(claim.sweep, claim.experiment)[0]
    return Measured(max(group.sensitivity for group in run.mechanism.noise_groups))


@Formula
def epsilon_of_rho(claim: Claim, evidence: Evidence) -> Measured:
    """Return E L rho as an epsilon (zCDP), with the experiment's epochs and layers and the rho in brackets.

    The sound epsilon and the lower bound belong to the experiment with the bug, calibrated to the claimed epsilon.
    """
    run = ledger_of(claim.sweep, claim.experiment)[0]
    rho = run.epochs * len(run.mechanism.noise_groups) * float(claim.reader[1])
    epsilon = rho + 2 * math.sqrt(rho * math.log(1 / run.config.delta))
    found = charged_epsilon(claim, evidence)
    least = last_layer_epsilon(run)
    text = (
        f"ρ = {claim.reader[1]} a layer and epoch, {rho:.4g} in all; the sound ε is an upper bound, and from the last "
        f"layer alone one crafted example an epoch shows at least {math.floor(100 * least) / 100:g}"
    )
    return replace(found, value=epsilon, epsilon=epsilon, epsilon_least=least, explanation=text)


@Formula
def counted_by_pld(claim: Claim, evidence: Evidence) -> Measured:
    """Return the PLD epsilon of the releases that the experiment counts by another accountant; and the sound one."""
    run, claimed, _ = ledger_of(claim.sweep, claim.experiment)
    found = charged_epsilon(claim, evidence)
    epsilon = Pld().epsilon(claimed, run.config.delta)
    text = f"by the script's own accountant {found.value:.4g}; the sound ε is an upper bound"
    return replace(found, value=epsilon, epsilon=epsilon, explanation=text)


def last_layer_epsilon(run: Run) -> float:
    """Return a lower bound on epsilon with the bug, from one crafted example per epoch.

    Its row of the last layer is sqrt(2) / B. This is the largest gradient of the mean cross-entropy with respect to an
    example's logits, so `upstream_bound` does not clip it. With an input of norm a it moves the layer's gradient by
    a sqrt(2) / B, in each of the E epochs.
    """
    mechanism = run.mechanism
    row = min(math.sqrt(2) / run.config.batch_size, run.config.clipping.upstream_bound)
    shift = run.config.clipping.input_bound * row / mechanism.noise_std(mechanism.noise_groups[-1])
    return float(gaussian_epsilon(math.sqrt(run.epochs) * shift, run.config.delta))

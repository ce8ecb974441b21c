"""Measures of screening's gain, and of the value that the paper's equations have as they are printed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from opacus.accountants.analysis.rdp import compute_rdp

from runner.papers.noise_screening.measures import most_guaranteed, screened, within
from runner.papers.noise_screening.settings import kept_steps, screened_run
from runner.report.claims import Claim
from runner.report.measured import Measured, of_two
from runner.report.measures import bound_of, computed, of_experiments
from runner.report.runs import Runs

_ORDERS = range(2, 65)  # those of the paper's accountant


@of_experiments
def gain_at_epsilon(claim: Claim, one: Runs, other: Runs) -> Measured:
    """Accuracy of the first experiment less that of the second, in points, after the last epoch within the claimed
    epsilon as the paper counts; of the means of the seeds.
    """
    at = [runs.recorded.at(lambda run: within(run, bound_of(claim))) for runs in (one, other)]
    if not all(at):
        return Measured()
    text = f"n = {len(at[0])} and {len(at[1])}"
    found = of_two("difference", "mean", at[0].sample(), at[1].sample(), text)
    sound = most_guaranteed(at[0].runs) if screened(at[0][0][0]) else at[0].largest("epsilon_sound")
    return replace(found.charged(at[0], sound), n=len(at[0]) + len(at[1]))


@computed
def printed_epsilon(claim: Claim) -> Measured:
    """Epsilon by equation 4 (equation 9 converted), as printed, at the steps of table 2.

    Both give the Renyi divergence of T steps as T / (a - 1) A_a, where A_a is the a-th moment of the likelihood ratio;
    it is T / (a - 1) ln A_a (Mironov et al., 2019, section 3.3). As A_a is at least 1, the printed one is never small.
    """
    run = screened_run(claim.dataset)
    steps, delta = kept_steps(claim.dataset), run.config.delta
    rate, sigma = run.mechanism.sampling_rate, run.mechanism.noise_multiplier
    with np.errstate(over="ignore"):  # of large orders infinite, and so not the smallest
        values = {order: steps / (order - 1) * float(np.exp(log_moment(rate, sigma, order))) for order in _ORDERS}
    epsilons = {order: value + math.log(1 / delta) / (order - 1) for order, value in values.items()}
    best = min(epsilons, key=lambda order: epsilons[order])
    with_logarithm = min(
        steps / (order - 1) * log_moment(rate, sigma, order) + math.log(1 / delta) / (order - 1) for order in _ORDERS
    )
    text = f"as printed, at order {best}; with the logarithm that is missing {with_logarithm:.4g}"
    return Measured(epsilons[best], explanation=text)


def log_moment(rate: float, sigma: float, order: int) -> float:
    """ln A_a of a sampled Gaussian at a whole order a: of the Renyi divergence, ln A_a / (a - 1)."""
    return (order - 1) * float(compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=float(order)))

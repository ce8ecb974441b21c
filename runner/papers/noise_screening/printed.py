"""The value of the paper's equations as they are printed."""

from __future__ import annotations

import math

import numpy as np

from runner.accounting.accountants import rdp_analysis
from runner.claims.claim import Claim
from runner.claims.measure import computed
from runner.claims.measured import Measured
from runner.papers.noise_screening.settings import kept_steps, screened_run

_ORDERS = range(2, 65)  # the orders of the paper's accountant


@computed
def printed_epsilon(claim: Claim) -> Measured:
    """Return epsilon by equation 4 (equation 9 converted), as printed, at the steps of table 2.

    Both give the Renyi divergence of T steps as T / (a - 1) A_a, with A_a the a-th moment of the likelihood ratio. It
    is T / (a - 1) ln A_a (Mironov et al., 2019, section 3.3). As A_a is at least 1, the printed value is never small.
    """
    run = screened_run(claim.dataset)
    steps, delta = kept_steps(claim.dataset), run.config.delta
    rate, sigma = run.mechanism.sampling_rate, run.mechanism.noise_multiplier
    with np.errstate(over="ignore"):  # large orders are infinite, and so not the smallest
        values = {order: steps / (order - 1) * float(np.exp(log_moment(rate, sigma, order))) for order in _ORDERS}
    epsilons = {order: value + math.log(1 / delta) / (order - 1) for order, value in values.items()}
    best = min(epsilons, key=lambda order: epsilons[order])
    with_logarithm = min(
        steps / (order - 1) * log_moment(rate, sigma, order) + math.log(1 / delta) / (order - 1) for order in _ORDERS
    )
    text = f"as printed, at order {best}; with the logarithm that is missing {with_logarithm:.4g}"
    return Measured(epsilons[best], explanation=text)


def log_moment(rate: float, sigma: float, order: int) -> float:
    """Return ln A_a of a sampled Gaussian at a whole order a, from its Renyi divergence ln A_a / (a - 1)."""
    return (order - 1) * float(rdp_analysis().compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=float(order)))

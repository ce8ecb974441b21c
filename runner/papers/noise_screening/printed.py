"""The value of the paper's equations 4 and 9 as they are printed: a misprint, by the paper's own proof."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from runner.accounting.accountants import rdp_analysis
from runner.claims.claim import Claim, dataset_name
from runner.claims.formulas import computed
from runner.claims.measurement import Measured
from runner.papers.noise_screening.settings import DATASETS, kept_steps, screened_run

_ORDERS = range(2, 65)  # the orders of the paper's accountant


@computed
def printed_epsilon(_: Claim) -> Measured:
    """Return the smallest epsilon by equation 4, as printed, at the settings of table 2 of any data set.

    Equation 9 has T / (a - 1) A_a for the Renyi divergence of order a of T kept steps. Equation 4 converts it, adding
    ln(1 / delta) / (a - 1). Here A_a is the sum of equation 8, the a-th moment of the likelihood ratio mu / mu_0 of a
    step under mu_0.

    That is a misprint of T / (a - 1) ln A_a, for the paper proves the latter. By equation 6 (Mironov et al., 2019,
    section 3.3) a step is (a, 1 / (a - 1) ln A_a)-RDP, and by its lemma 1 the T divergences of order a add up.

    The authors cannot have computed with the printed equation. The mean of mu / mu_0 under mu_0 is 1, so A_a >= 1 by
    Jensen's inequality. At every order a <= 64 of theirs the printed value is therefore at least T / 63. With the 1,157
    steps or more that epsilon = 3 pays for, this is more than 18. With the logarithm the same orders give the
    claimed 3 on all three data sets. The printed value is never too small, as ln A < A.
    """
    printed = {name: _epsilon(name, np.exp) for name in DATASETS.values()}
    texts = [
        f"{value:.4g} on {dataset_name(name)} ({_epsilon(name, lambda log: log):.4g} with the logarithm)"
        for name, value in printed.items()
    ]
    return Measured(min(printed.values()), explanation=", ".join(texts))


def _epsilon(dataset: str, of_step: Callable[[float], float]) -> float:
    """Return the smallest epsilon over the orders, a step's divergence of order a being `of_step(ln A_a) / (a - 1)`."""
    run, steps = screened_run(dataset), kept_steps(dataset)
    rate, sigma = run.mechanism.sampling_rate, run.mechanism.noise_multiplier
    allowed = math.log(1 / run.config.delta)
    moments = {order: log_moment(rate, sigma, order) for order in _ORDERS}
    with np.errstate(over="ignore"):  # moments of large orders are infinite, and so not the smallest
        return min((steps * float(of_step(log)) + allowed) / (order - 1) for order, log in moments.items())


def log_moment(rate: float, sigma: float, order: int) -> float:
    """Return ln A_a of a sampled Gaussian at a whole order a, from its Renyi divergence ln A_a / (a - 1)."""
    return (order - 1) * float(rdp_analysis().compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=float(order)))

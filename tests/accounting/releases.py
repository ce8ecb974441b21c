"""Releases for tests of the accountants."""

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from scipy import optimize, stats

from runner.accounting.ledger import Releases

DELTA = 1e-5
MNIST = (512 / 60000, 1.23, 4680)


def sampled(q: float, noise_multiplier: float, times: int) -> Releases:
    return ((PoissonSampledDpEvent(q, GaussianDpEvent(noise_multiplier)), times),)


def unsampled(noise_multiplier: float, times: int = 1) -> Releases:
    return ((GaussianDpEvent(noise_multiplier), times),)


def closed_form(mu: float, delta: float) -> float:
    """Return the epsilon of Gaussians that compose to mu (Balle and Wang, 2018, theorem 8)."""

    def excess(epsilon: float) -> float:
        upper = stats.norm.cdf(mu / 2 - epsilon / mu)
        return float(upper - np.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)) - delta)

    return 0.0 if excess(0.0) <= 0 else float(optimize.brentq(excess, 0.0, mu * mu / 2 + 10 * mu, xtol=1e-13))

"""Numerical composition of privacy loss distributions, on a grid that always fits in memory."""

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

from runner.accounting.mechanisms import SampledGaussian, counting_epsilon

_FINEST_INTERVAL = 1e-5  # below it, rounding in the second differences of delta(eps) is no longer negligible
_COARSEST_INTERVAL = 1.0
_RELEASE_POINTS = 100_000  # points of the grid of one release
_COMPOSED_POINTS = 3_000_000
_SURELY_DENSE = 10  # releases: of two points or more, they have over 1000, at which dp_accounting changes the form
SMALLEST_DELTA = 1e-10  # the FFT's rounding and the 1e-15 tails it cuts stay far below this

Question: TypeAlias = tuple[tuple[SampledGaussian, ...], float, float]
ANSWERS: dict[Question, float] = {}
"""What `pld_epsilon` has returned in this process, by its arguments. `runner.records.answers` keeps them in a file."""


def pld_epsilon(mechanisms: tuple[SampledGaussian, ...], delta: float, interval: float) -> float:
    """Return an upper bound on epsilon from composed privacy loss distributions, tight if the grid is fine.

    Connect-the-dots discretisation (Doroshenko et al., PETS 2022), add-or-remove-one neighbours, both
    directions, composed by FFT. The discretisation is pessimistic: on any grid the composed distribution
    dominates the true one. Changing the grid therefore only changes how tight the bound is.

    - The grid is finer than `interval`, by powers of 2 and down to 1e-5, if the loss of one release is below
      ten times `interval`.
    - It is coarser, by powers of 2, if one release would need more than 100,000 points or the composition more
      than 3 million. Memory stays near 1 GB, and time is seconds up to 1e12 releases.
    - Past an interval of 1 (epsilon in the hundreds of thousands), the result is `counting_epsilon`. The same
      holds for delta < 1e-10, for which floating point is too coarse.

    The result is never above `counting_epsilon`, which is itself a bound. Unsampled Gaussians are merged exactly
    into one. If there are no other releases, the result is the closed form.
    """
    question = mechanisms, delta, interval
    if question not in ANSWERS:
        ANSWERS[question] = _computed_epsilon(*question)
    return ANSWERS[question]


def _computed_epsilon(mechanisms: tuple[SampledGaussian, ...], delta: float, interval: float) -> float:
    bound = counting_epsilon(mechanisms, delta)
    if all(m.q == 1 for m in mechanisms) or delta < SMALLEST_DELTA:
        return bound
    merged = _merge_unsampled(mechanisms)
    grid = _grid_interval(merged, bound, interval)
    if grid > _COARSEST_INTERVAL:
        return bound
    composed = None
    for m in merged:
        part = _one_release(m.q, m.noise_multiplier, grid)
        part = _dense(part) if m.times >= _SURELY_DENSE else part
        part = part.self_compose(m.times) if m.times > 1 else part
        composed = part if composed is None else composed.compose(part)
    return bound if composed is None else min(bound, max(0.0, float(composed.get_epsilon_for_delta(delta))))


def _merge_unsampled(mechanisms: tuple[SampledGaussian, ...]) -> list[SampledGaussian]:
    """Merge T_i Gaussians with multipliers sigma_i into one with 1/sigma^2 = sum_i T_i/sigma_i^2."""
    precision = sum(m.times / m.noise_multiplier**2 for m in mechanisms if m.q == 1)
    sampled = [m for m in mechanisms if m.q < 1]
    return [*sampled, SampledGaussian(1.0, precision**-0.5, 1)] if precision else sampled


def _grid_interval(mechanisms: list[SampledGaussian], bound: float, interval: float) -> float:
    """Return `interval` times a power of 2 such that both grids fit; `bound` is the scale of the composed loss."""
    finest = interval
    coarsest_needed = 2 * bound / _COMPOSED_POINTS
    for m in mechanisms:
        # The largest loss of one release, ln(1 - q + q e^x): noise is cut 10 standard deviations out.
        x = 0.5 / m.noise_multiplier**2 + 10 / m.noise_multiplier
        span = float(np.logaddexp(math.log1p(-m.q), math.log(m.q) + x)) if m.q < 1 else x
        coarsest_needed = max(coarsest_needed, span / _RELEASE_POINTS)
        # Standard deviation of the likelihood ratio, which equals the loss's deviation if the loss is small.
        deviation = m.q * math.sqrt(math.expm1(min(1 / m.noise_multiplier**2, 100.0)))
        finest = min(finest, max(deviation / 10, _FINEST_INTERVAL))
    grid = interval
    while grid > finest:
        grid /= 2
    while grid < coarsest_needed:
        grid *= 2
    return grid


def _dense(
    part: privacy_loss_distribution.PrivacyLossDistribution,
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Return a distribution in the form that its composition has anyway.

    `self_compose` would decide on the form by a whole number of as many digits as there are releases, which takes
    minutes for ten million of them.
    """
    removed, added = part._pmf_remove.to_dense_pmf(), part._pmf_add.to_dense_pmf()
    return privacy_loss_distribution.PrivacyLossDistribution(removed, None if part._symmetric else added)


@lru_cache(maxsize=64)
def _one_release(
    q: float, noise_multiplier: float, interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        pessimistic_estimate=True,
        value_discretization_interval=interval,
        sampling_prob=q,
        use_connect_dots=True,
    )

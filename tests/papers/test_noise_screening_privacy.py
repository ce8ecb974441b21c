"""Theorem 1 of noise screening, refuted: kept updates reveal more than is charged for them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from opacus.accountants.analysis.rdp import compute_rdp
from scipy.integrate import quad
from scipy.stats import norm

from runner.accounting import RdpClassic, sound_epsilon
from runner.accounting.mechanisms import gaussian_epsilon
from runner.papers.noise_screening.privacy import ORDERS, OneStep, Screened, kept_weights
from runner.papers.noise_screening.theorem_1 import share_kept, threshold_for

DELTA = 1e-5
COUNTEREXAMPLES = [  # sigma, t / sigma, k, P(accept), claimed, true
    (1.23, 2.0, 10, 0.064, 3.450, 3.830),
    (1.23, 3.0, math.inf, 0.005, 3.450, 4.351),
    (2.15, 1.5, 10, 0.144, 1.839, 2.025),
    (2.15, 3.0, math.inf, 0.003, 1.839, 2.398),
    (10.0, 1.5, 10, 0.134, 0.341, 0.385),
    (10.0, 3.0, math.inf, 0.003, 0.341, 0.473),
]


@pytest.mark.parametrize(("sigma", "t", "k", "accepted", "claimed", "true"), COUNTEREXAMPLES)
def test_one_kept_step_is_less_private_than_claimed(sigma, t, k, accepted, claimed, true) -> None:
    step = OneStep(sigma, t * sigma, k)
    assert step.accepted == pytest.approx(accepted, abs=5e-4)
    assert gaussian_epsilon(1 / sigma, DELTA) == pytest.approx(claimed, abs=5e-4)
    assert step.epsilon(DELTA) == pytest.approx(true, abs=5e-4)
    assert step.epsilon(DELTA) > gaussian_epsilon(1 / sigma, DELTA)


@pytest.mark.parametrize(("sigma", "t", "k"), [COUNTEREXAMPLES[0][:3], COUNTEREXAMPLES[3][:3]])
def test_one_step_against_quadrature(sigma, t, k) -> None:
    """The density as the sum over the tries, integrated numerically; the hockey-stick from its definition."""
    t = t * sigma

    def density(y: float, x: int) -> float:
        z = norm.cdf(0.5 - t, x, sigma) + norm.sf(0.5 + t, x, sigma)
        tries = sum((1 - z) ** i for i in range(k)) if k < math.inf else 1 / z
        inside = (1 - z) ** k if k < math.inf else 0.0
        return norm.pdf(y, x, sigma) * ((abs(y - 0.5) > t) * tries + inside)

    epsilon = OneStep(sigma, t, k).epsilon(DELTA)
    turning = [0.5 - t, 0.5 + t, 0.5 + epsilon * sigma**2]
    cuts = sorted([-12 * sigma, 1 + 12 * sigma, *turning])

    def integral(of) -> float:
        return sum(quad(of, a, b, epsabs=1e-13, epsrel=1e-10)[0] for a, b in pairwise(cuts))

    for x in (0, 1):
        assert integral(lambda y, x=x: density(y, x)) == pytest.approx(1, abs=1e-8)
    delta = integral(lambda y: max(0.0, density(y, 1) - math.exp(epsilon) * density(y, 0)))
    assert delta == pytest.approx(DELTA, rel=1e-5)


def test_without_screening_it_is_the_mechanism_itself() -> None:
    assert OneStep(1.23, 0.0, 10).accepted == pytest.approx(1)
    assert OneStep(1.23, 0.0, 10).epsilon(DELTA) == pytest.approx(gaussian_epsilon(1 / 1.23, DELTA), abs=1e-6)
    assert kept_weights(1.0, 10) == (1.0, 0.0)
    event = ((PoissonSampledDpEvent(0.04, GaussianDpEvent(1.5)), 200),)
    plain = Screened(0.04, 1.5, -math.inf, 10)
    tight = sound_epsilon(event, DELTA)
    assert tight - 0.08 < plain.epsilon_at_least(200, DELTA) <= tight
    assert plain.epsilon_by_rdp(200, DELTA) == pytest.approx(RdpClassic().epsilon(event, DELTA), abs=1e-4)


def test_the_bound_never_passes_the_exact_value_of_one_step() -> None:
    """q = 1 and one step: the hockey-stick over both pieces by quadrature, for either order of the neighbours."""
    sigma, t, k = 1.5, 1.0, 4
    mechanism = Screened(1 - 1e-12, sigma, t, k)
    weights = [kept_weights(z, k) for z in mechanism.accepted]

    def density(y: float, x: int) -> float:
        return norm.pdf(y, x, sigma) * weights[x][0 if y > t * sigma else 1]

    def delta(epsilon: float, one: int) -> float:
        def excess(y: float) -> float:
            return max(0.0, density(y, one) - math.exp(epsilon) * density(y, 1 - one))

        cuts = np.sort([*np.linspace(-12 * sigma, 1 + 12 * sigma, 200), t * sigma])
        return sum(quad(excess, a, b, epsabs=1e-14)[0] for a, b in pairwise(cuts))

    bound = mechanism.epsilon_at_least(1, DELTA)
    exact = max(delta(bound, one) for one in (0, 1))
    assert exact >= DELTA, "at the bound, delta is still above the one asked for"
    assert max(delta(bound + 0.11, one) for one in (0, 1)) < DELTA, "and the bound is within its rounding of 0.1"


COMPOSED = [  # q, sigma, kept steps, k, t / sigma, P(accept), lower bound at least, upper bound by RDP
    (512 / 60_000, 1.23, 4698, 10, 1.6, 0.055, 5.81, 7.55),
    (2048 / 60_000, 2.15, 1157, 10, 1.6, 0.055, 5.10, 6.26),
    (1024 / 50_000, 1.54, 1435, 10, 1.6, 0.055, 5.58, 6.86),
]


@pytest.mark.parametrize(("q", "sigma", "steps", "k", "t", "accepted", "least", "most"), COMPOSED)
def test_true_epsilon_is_above_the_claimed_one(q, sigma, steps, k, t, accepted, least, most) -> None:
    """The paper's own parameters, where it says 3."""
    event = PoissonSampledDpEvent(q, GaussianDpEvent(sigma))
    claimed = RdpClassic().epsilon(((event, steps),), DELTA)
    assert claimed == pytest.approx(3.0, abs=2e-3)
    mechanism = Screened(q, sigma, t, k)
    assert mechanism.accepted[0] == pytest.approx(accepted, abs=5e-4)
    bound = mechanism.epsilon_at_least(steps, DELTA)
    assert bound > claimed
    assert bound > least
    assert mechanism.epsilon_by_rdp(steps, DELTA) == pytest.approx(most, abs=6e-3)
    assert bound < most


@pytest.mark.parametrize(("q", "sigma"), [(512 / 60_000, 1.23), (2048 / 60_000, 2.15)])
def test_renyi_divergences_without_screening_are_those_of_opacus_at_every_order(q, sigma) -> None:
    """At order 64 nearly all of the integral is around y = 64."""
    reference = compute_rdp(q=q, noise_multiplier=sigma, steps=1, orders=list(ORDERS))
    assert Screened(q, sigma, -math.inf, 10).renyi() == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize(("probability", "k"), [(0.055, 10), (0.0968, 5), (0.6, 10), (1.0, 5)])
def test_the_share_of_attempts_that_is_kept_includes_the_forced_ones(probability: float, k: int) -> None:
    """Against the updates themselves: each ends at its first success, or with attempt k + 1."""
    first = np.random.default_rng(0).geometric(probability, 400_000)
    share = share_kept(probability, k)
    assert share == pytest.approx(1 / np.minimum(first, k + 1).mean(), rel=5e-3)
    assert share >= 1 / (k + 1)
    if probability < 1:
        assert norm.sf(threshold_for(share, k)) == pytest.approx(probability, rel=1e-9)

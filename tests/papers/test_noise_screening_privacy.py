"""Theorem 1 of noise screening, refuted: kept updates reveal more than is charged for them."""

import math
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from opacus.accountants.analysis.rdp import compute_rdp
from scipy.integrate import quad
from scipy.stats import norm

from runner.accounting import RdpClassic, sound_epsilon
from runner.papers.noise_screening.measures import ORDERS
from runner.papers.noise_screening.theorem_1 import Screened, kept_weights, share_kept, threshold_for

DELTA = 1e-5


def test_without_screening_it_is_the_mechanism_itself() -> None:
    assert kept_weights(1.0, 10) == (1.0, 0.0)
    event = ((PoissonSampledDpEvent(0.04, GaussianDpEvent(1.5)), 200),)
    plain = Screened(0.04, 1.5, -math.inf, 10)
    tight = sound_epsilon(event, DELTA)
    assert tight - 0.08 < plain.epsilon_at_least(200, DELTA) <= tight
    assert plain.epsilon_by_rdp(200, DELTA) == pytest.approx(RdpClassic().epsilon(event, DELTA), abs=1e-4)


def test_the_bound_never_passes_the_exact_value_of_one_step() -> None:
    """q = 1 and one step: the density as the sum over the attempts, and the hockey-stick, by quadrature.

    Either order of the neighbours counts.
    """
    sigma, t, k = 1.5, 1.0, 4
    mechanism = Screened(1 - 1e-12, sigma, t, k)

    def density(y: float, x: int) -> float:
        rejected = norm.cdf(t * sigma, x, sigma)
        chosen = sum(rejected**before for before in range(k)) if y > t * sigma else 0.0
        return norm.pdf(y, x, sigma) * (chosen + rejected**k)

    def delta(epsilon: float, side: int) -> float:
        def excess(y: float) -> float:
            return max(0.0, density(y, side) - math.exp(epsilon) * density(y, 1 - side))

        cuts = np.sort([*np.linspace(-12 * sigma, 1 + 12 * sigma, 50), t * sigma])
        return sum(quad(excess, a, b, epsabs=1e-14)[0] for a, b in pairwise(cuts))

    for x in (0, 1):
        ends = (-12 * sigma, t * sigma), (t * sigma, 14 * sigma)
        assert sum(quad(density, *piece, args=(x,))[0] for piece in ends) == pytest.approx(1, abs=1e-8)
    bound = mechanism.epsilon_at_least(1, DELTA)
    exact = max(delta(bound, side) for side in (0, 1))
    assert exact >= DELTA, "at the bound, delta is still above the one asked for"
    assert max(delta(bound + 0.11, side) for side in (0, 1)) < DELTA, "and the bound is within its rounding of 0.1"


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


def test_renyi_divergences_without_screening_match_opacus() -> None:
    """At order 64 nearly all of the integral is around y = 64."""
    q, sigma = 512 / 60_000, 1.23
    reference = compute_rdp(q=q, noise_multiplier=sigma, steps=1, orders=list(ORDERS))
    assert Screened(q, sigma, -math.inf, 10).renyi() == pytest.approx(reference, rel=1e-6)


@pytest.mark.parametrize(("probability", "k"), [(0.055, 10), (0.6, 10), (1.0, 5)])
def test_the_share_of_accepted_attempts_includes_forced_ones(probability: float, k: int) -> None:
    """Against the updates themselves: each ends at its first success, or with attempt k + 1."""
    first = np.random.default_rng(0).geometric(probability, 400_000)
    share = share_kept(probability, k)
    assert share == pytest.approx(1 / np.minimum(first, k + 1).mean(), rel=5e-3)
    assert share >= 1 / (k + 1)
    if probability < 1:
        assert norm.sf(threshold_for(share, k)) == pytest.approx(probability, rel=1e-9)

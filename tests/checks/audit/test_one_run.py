"""Bounds from one run: against sums by hand, exact optima and their own chance of error."""

import math

import numpy as np
import pytest
from scipy import stats

from checks.audit.bounds import epsilon_of_curve
from checks.audit.canaries import exact
from checks.audit.one_run import Guesses, allowed_by, approximate_dp, charged_curve, guess, p_value, refuted
from runner.accounting.ledger import SampledGaussian

DELTA = 1e-5


def test_the_p_value_is_the_published_sum() -> None:
    k, r, v, epsilon = 50, 12, 10, 0.7
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [math.comb(r, j) * p**j * (1 - p) ** (r - j) for j in range(r + 1)]
    failing = max(2 / i * sum(mass[v - i : v]) for i in range(1, v + 1))
    expected = sum(mass[v:]) + k * 1e-3 * failing
    assert p_value(Guesses(k, r, v), epsilon, 1e-3) == pytest.approx(expected, rel=1e-9)


def test_the_bound_is_where_the_p_value_is_the_error() -> None:
    guesses = Guesses(1000, 100, 90)
    assert p_value(guesses, approximate_dp(guesses, DELTA, 0.05), DELTA) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_canary_alone_has_the_best_test_of_its_curve(epsilon: float) -> None:
    """One canary is guessed rightly with a probability of at most e^epsilon / (1 + e^epsilon) under epsilon-DP."""
    best = math.exp(epsilon) / (1 + math.exp(epsilon))

    def allowed(true: float) -> float:
        return max(0.0, true * math.exp(-epsilon), 1 - math.exp(epsilon) * (1 - true))

    assert not refuted(Guesses(1, 1, 1), allowed, best * 0.999)
    assert refuted(Guesses(1, 1, 1), allowed, best * 1.001)


def test_a_curve_allows_the_false_positives_of_a_normal_test() -> None:
    """Without sampling, sigma = 2: a test with true positives b has at least Phi(Phi^-1(b) - 1/2) false ones."""
    allowed = allowed_by((SampledGaussian(1.0, 2.0, 1),), 1.0)
    true = np.array([0.05, 0.3, 0.5, 0.8, 0.99])
    expected = stats.norm.cdf(stats.norm.ppf(true) - 0.5)
    least = np.array([allowed(each) for each in true])
    assert (least <= expected + 1e-9).all()
    assert least == pytest.approx(expected, rel=0.01)


def test_bounds_from_one_run_stay_below_and_get_close() -> None:
    family, error = (SampledGaussian(0.1, 1.0, 50),), 0.05
    sound = epsilon_of_curve(family, 1.0, DELTA)
    runs = [exact(4000, 0.1, 1.0, 50, 1.0, seed) for seed in range(10)]
    guesses = [guess(run.scores, run.joined, 120) for run in runs]
    assert sum(refuted(made, allowed_by(family, 1.0), error) for made in guesses) <= 1
    any_mechanism = [approximate_dp(made, DELTA, error) for made in guesses]
    as_charged = [charged_curve(made, family, DELTA, error) for made in guesses[:4]]  # a second each
    assert max(any_mechanism + as_charged) < sound
    assert 0.35 * sound < np.median(any_mechanism) < np.median(as_charged)
    assert np.median(as_charged) > 0.5 * sound


def test_more_guesses_than_right_ones_bound_nothing() -> None:
    assert approximate_dp(Guesses(1000, 100, 52), DELTA, 0.05) == 0.0
    assert charged_curve(Guesses(1000, 100, 52), (SampledGaussian(0.1, 1.0, 50),), DELTA, 0.05) == 0.0

"""Bounds, compared with closed forms, other libraries, and many simulated audits."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from scipy import optimize, stats

from checks.audit.bounds import LOSSES, clopper_pearson, curve, lower_bounds
from runner.accounting import Releases, sound_epsilon
from runner.accounting.ledger import SampledGaussian
from tests.accounting.releases import DELTA, closed_form

ERROR = 0.05


def mu_of(epsilon: float) -> float:
    return optimize.brentq(lambda mu: closed_form(mu, DELTA) - epsilon, 1e-2, 10)


def gaussian(mu: float) -> Releases:
    return ((GaussianDpEvent(1 / mu), 1),)


def normal_scores(mu: float, trials: int, seed: int) -> dict:
    draws = np.random.default_rng(seed)
    return {"score": (draws.standard_normal(trials), mu + draws.standard_normal(trials))}


def sampled_scores(q: float, sigma: float, steps: int, trials: int, seed: int) -> dict:
    """Draw likelihood ratios of steps of a sampled Gaussian."""
    draws = np.random.default_rng(seed)
    members = draws.random((trials, steps)) < q
    sides = []
    for present in (False, True):
        y = members * present + sigma * draws.standard_normal((trials, steps))
        sides.append(np.logaddexp(math.log1p(-q), math.log(q) + (y - 0.5) / sigma**2).sum(1))
    return {"score": (sides[0], sides[1])}


@pytest.mark.parametrize(("count", "trials"), [(0, 50), (1, 50), (17, 50), (49, 50), (50, 50), (3, 100_000)])
def test_limits_are_those_of_scipy(count: int, trials: int) -> None:
    interval = stats.binomtest(count, trials).proportion_ci(0.98, method="exact")
    assert clopper_pearson(count, trials, 0.01) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_the_limits_of_a_test_that_never_errs() -> None:
    """No error in n trials has the chance c if the rate p of errors has (1 - p)^n = c.

    Of 1,000 trials of each kind, 800 measure. Two bounds of two limits each share the error of 5%.
    """
    sure = (ERROR / 4) ** (1 / 800)
    bounds = lower_bounds({"score": (np.zeros(1000), np.ones(1000))}, gaussian(1.0), DELTA, ERROR)
    assert bounds.any_shape == pytest.approx(math.log((sure - DELTA) / (1 - sure)))
    assert bounds.of_shape == pytest.approx(closed_form(2 * stats.norm.ppf(sure), DELTA), rel=1e-6)
    assert bounds.accused


@pytest.mark.parametrize("swapped", [False, True])
def test_a_rare_sign_of_either_world_is_seen(swapped: bool) -> None:
    """The score is 1 in 5% of the trials of one world and never in the other.

    An event with the canary alone bounds epsilon by the first of the two inequalities, without it by the second.
    """
    rare, never = np.zeros(100_000), np.zeros(100_000)
    rare[::20] = 1
    pair = (-rare, never) if swapped else (never, rare)
    bounds = lower_bounds({"score": pair}, gaussian(1.0), DELTA, ERROR)
    limit = ERROR / 4
    often = stats.beta.ppf(limit, 4000, 80_000 - 4000 + 1)
    assert bounds.any_shape == pytest.approx(math.log((often - DELTA) / (1 - limit ** (1 / 80_000))), rel=1e-3)


def audited(charged: Releases, draw: Callable[[int, int], dict], trials: int, audits: int, most: int) -> None:
    """Expect that at most so many of the audits fail, and that bounds get close."""
    sound = sound_epsilon(charged, DELTA)
    bounds = [lower_bounds(draw(trials, seed), charged, DELTA, ERROR) for seed in range(audits)]
    assert sum(max(f.of_shape, f.any_shape) > sound for f in bounds) <= most
    assert sum(f.accused for f in bounds) <= most
    assert np.median([f.of_shape for f in bounds]) > 0.7 * sound


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_bounds_hold_and_are_tight_for_a_gaussian(epsilon: float) -> None:
    """Of 20 audits, 5% may fail: more than 4 do in 0.3% of all cases."""
    mu = mu_of(epsilon)
    assert sound_epsilon(gaussian(mu), DELTA) == pytest.approx(epsilon, abs=1e-6)
    audited(gaussian(mu), partial(normal_scores, mu), 100_000, 20, 4)


def test_bounds_hold_and_are_tight_for_sampled_gaussians() -> None:
    """Of 3 audits, 5% may fail: more than 1 does in 0.8% of all cases."""
    q, sigma, steps = 0.3, 0.8, 3
    charged, less = (((PoissonSampledDpEvent(q, GaussianDpEvent(s)), steps),) for s in (sigma, 1.2 * sigma))
    audited(charged, partial(sampled_scores, q, sigma, steps), 50_000, 3, 1)
    assert lower_bounds(sampled_scores(q, sigma, steps, 50_000, 0), less, DELTA, ERROR).accused


def test_the_error_is_what_is_asked_for() -> None:
    """False alarms in 300 small audits at an error of 20% stay below, although the best of many tests is chosen."""
    charged, audits = gaussian(1.0), 300
    wrong = sum(lower_bounds(normal_scores(1.0, 200, seed), charged, DELTA, 0.2).accused for seed in range(audits))
    assert 0 < wrong < 0.2 * audits


def test_less_noise_than_charged_is_accused_and_more_is_not() -> None:
    scores = normal_scores(1.0, 50_000, 1)
    assert lower_bounds(scores, gaussian(1 / 1.05), DELTA, ERROR).accused
    assert not lower_bounds(scores, gaussian(1.05), DELTA, ERROR).accused
    steps = ((GaussianDpEvent(2.0), 4),)  # four steps of half the mean compose to the same
    assert not lower_bounds(scores, steps, DELTA, ERROR).accused
    assert lower_bounds(scores, ((GaussianDpEvent(2.0), 3),), DELTA, ERROR).accused


def test_the_curve_of_a_sampled_gaussian_is_a_close_upper_bound() -> None:
    """One step: P_1(y > y*) - e^eps P_0(y > y*) by normal tails, at the y* with a likelihood ratio of e^eps."""
    q, sigma = 0.1, 0.7
    losses = LOSSES[(LOSSES > 0) & (LOSSES < 6)]
    y = 0.5 + sigma**2 * np.log((np.expm1(losses) + q) / q)
    within = (1 - q) * stats.norm.sf(y / sigma) + q * stats.norm.sf((y - 1) / sigma)
    exact = within - np.exp(losses) * stats.norm.sf(y / sigma)
    bounds = curve((SampledGaussian(q, sigma, 1),), 1.0)[(LOSSES > 0) & (LOSSES < 6)]
    assert (bounds >= exact * (1 - 1e-9)).all()
    assert bounds == pytest.approx(exact, rel=2e-3, abs=1e-7)


def test_what_is_charged_as_nothing_is_accused_of_anything() -> None:
    """And too few trials say nothing."""
    few = lower_bounds(normal_scores(0.1, 20, 0), gaussian(0.1), DELTA, ERROR)
    assert (few.of_shape, few.any_shape, few.accused) == (0.0, 0.0, False)
    assert lower_bounds(normal_scores(1.0, 5000, 0), (), DELTA, ERROR).accused
    assert not lower_bounds(normal_scores(0.0, 5000, 0), (), DELTA, ERROR).accused

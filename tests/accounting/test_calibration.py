"""The noise multiplier of a budget, and how far a budget goes."""

import itertools
import math

import pytest
from dp_accounting import GaussianDpEvent, NoOpDpEvent

from runner.accounting import Gdp, Pld, RdpClassic, Zcdp, calibrate_noise_multiplier, calibration, last_within
from tests.accounting.releases import DELTA, sampled


@pytest.mark.parametrize(("batch", "expected"), [(256, 1.0394), (2048, 2.3507)])
def test_fashion_mnist_in_40_epochs(batch, expected):
    """With Opacus' fractional orders the noise would be 1.038 and 2.349."""

    def releases_for(noise_multiplier):
        return sampled(batch / 60000, noise_multiplier, 60000 // batch * 40)

    assert calibrate_noise_multiplier(RdpClassic(), releases_for, 2.7, DELTA) == pytest.approx(expected, abs=2e-4)


def test_zcdp_inverts_in_closed_form():
    """rho = (sqrt(ln(1/delta) + eps) - sqrt(ln(1/delta)))^2, sigma = sqrt(T / (2 rho))."""
    log = math.log(1 / DELTA)
    rho = (math.sqrt(log + 0.87) - math.sqrt(log)) ** 2
    computed = calibrate_noise_multiplier(Zcdp(), lambda nm: ((GaussianDpEvent(nm), 160),), 0.87, DELTA)
    assert math.sqrt(160 / (2 * rho)) <= computed <= math.sqrt(160 / (2 * rho)) + 1e-4


class OfAnotherMachine:
    """An accountant whose answers differ in the tenth digit, one way or the other."""

    def __init__(self, accountant, relative):
        self._accountant, self._relative = accountant, relative

    def epsilon(self, releases, delta):
        return self._accountant.epsilon(releases, delta) * (1 + self._relative)


@pytest.mark.parametrize(
    ("accountant", "q", "steps", "target"),
    [
        (RdpClassic(), 256 / 60000, 9360, 2.7),
        (Zcdp(), 1.0, 160, 0.87),
        (Gdp(), 0.05, 500, 1.0),
        (Zcdp(), 1.0, 20, 0.07),
    ],
)
def test_the_noise_of_a_budget_is_the_same_on_every_machine(accountant, q, steps, target):
    """To the last bit: it is the least multiple of 2^-14 that meets the budget, 2^-14 being just below 1e-4."""
    computed = [
        calibrate_noise_multiplier(OfAnotherMachine(accountant, r), lambda nm: sampled(q, nm, steps), target, DELTA)
        for r in (-1e-10, 0.0, 1e-10)
    ]
    assert len(set(computed)) == 1
    assert (computed[0] * 2**14).is_integer()
    below = accountant.epsilon(sampled(q, computed[0] - 2**-14, steps), DELTA)
    assert accountant.epsilon(sampled(q, computed[0], steps), DELTA) <= target < below


def steps(noise_multiplier):
    return sampled(0.01, noise_multiplier, 10)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (lambda: calibrate_noise_multiplier(Zcdp(), steps, 0.0, DELTA), "Expected a reachable target_epsilon"),
        # classic RDP with orders to 64 cannot go below ln(1e5)/63 = 0.183
        (
            lambda: calibrate_noise_multiplier(RdpClassic(), steps, 0.1, DELTA),
            r"Expected a reachable target_epsilon, .* epsilon <= 0.1 .* RdpClassic",
        ),
        (
            lambda: calibrate_noise_multiplier(Pld(), lambda nm: ((NoOpDpEvent(), 1),), 1.0, DELTA),
            "Expected a target_epsilon that needs noise",
        ),
    ],
)
def test_what_cannot_be_found_is_one_clear_sentence(search, message):
    with pytest.raises(ValueError, match=message):
        search()


def test_a_search_that_takes_too_long_is_given_up(monkeypatch):
    class Slow:
        def epsilon(self, releases, delta):
            monkeypatch.setattr(calibration.time, "monotonic", lambda: clock.__next__())
            return 1.0

    clock = itertools.count(calibration.time.monotonic(), calibration.PATIENCE)
    for search in (
        lambda: last_within(Slow(), steps, 2.0, DELTA, 10**9),
        lambda: calibrate_noise_multiplier(Slow(), steps, 0.5, DELTA),
    ):
        with pytest.raises(
            ValueError, match=r"Slow was asked for 60 seconds .*: choose fewer epochs, or accountant=rdp"
        ):
            search()


def test_the_last_within_a_budget_is_the_last():
    def releases_after(n):
        return sampled(0.01, 1.0, n)

    computed = last_within(Pld(), releases_after, 1.0, DELTA, 5000)
    assert Pld().epsilon(releases_after(computed), DELTA) <= 1.0 < Pld().epsilon(releases_after(computed + 1), DELTA)
    assert last_within(Pld(), releases_after, 1.0, DELTA, 10) == 10
    assert last_within(Pld(), lambda e: releases_after(computed * e), 1.0, DELTA, 50) == 1
    assert last_within(RdpClassic(), releases_after, 0.1, DELTA, 100) == 0
    assert last_within(Pld(), releases_after, 1.0, DELTA, 0) == 0

"""Properties of every accountant, which would break if noise or sampling were off by a factor of two."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    UnsupportedDpEvent,
)

from runner.accounting import Gdp, Pld, Prv, Rdp, RdpClassic, Zcdp
from tests.accounting.releases import DELTA, MNIST, sampled, unsampled

ALL = [RdpClassic(), Rdp(), Prv(), Pld(), Zcdp(), Gdp()]
every_accountant = pytest.mark.parametrize("accountant", ALL, ids=lambda a: type(a).__name__)


@every_accountant
def test_no_release_costs_nothing(accountant):
    for releases in (
        (),
        ((NoOpDpEvent(), 5),),
        sampled(0.0, 1.0, 10),
        sampled(0.0, 0.0, 10),
        sampled(0.1, 1.0, 0),
        ((NonPrivateDpEvent(), 0),),
        unsampled(math.inf),
        ((PoissonSampledDpEvent(0.5, NoOpDpEvent()), 1),),
    ):
        assert accountant.epsilon(releases, DELTA) == 0.0


@every_accountant
def test_a_release_without_noise_has_no_privacy(accountant):
    for release in (
        (NonPrivateDpEvent(), 1),
        (PoissonSampledDpEvent(1e-6, NonPrivateDpEvent()), 1),
        (GaussianDpEvent(0.0), 1),
        (PoissonSampledDpEvent(1e-6, GaussianDpEvent(0)), 1),
    ):
        assert accountant.epsilon((release,), DELTA) == math.inf
        assert accountant.epsilon((*sampled(*MNIST), release), DELTA) == math.inf


UNKNOWN = [
    UnsupportedDpEvent(),
    LaplaceDpEvent(1.0),
    PoissonSampledDpEvent(0.1, LaplaceDpEvent(1.0)),
    PoissonSampledDpEvent(0.1, PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0))),
    SelfComposedDpEvent(GaussianDpEvent(1.0), 3),
    ComposedDpEvent([GaussianDpEvent(1.0)]),
    None,
]
OUT_OF_RANGE = [
    *((sampled(q, 1.0, 1), "sampling probability") for q in (1.5, -0.1, math.nan)),
    *((sampled(0.1, noise, 1), "noise multiplier >= 0") for noise in (-1.0, math.nan)),
    (sampled(0.1, 1.0, -1), "Expected the count of .* >= 0"),
    (sampled(0.1, 1.0, 2.5), "Expected the count of .* to be a whole number"),
]


@every_accountant
def test_what_it_does_not_know_is_refused_never_ignored(accountant):
    """Events, numbers out of range, and a delta outside (0, 1) even if it does not matter."""
    for event in UNKNOWN:
        with pytest.raises(ValueError, match="Expected Gaussian"):
            accountant.epsilon((*sampled(*MNIST), (event, 1)), DELTA)
    for releases, message in OUT_OF_RANGE:
        with pytest.raises(ValueError, match=message):
            accountant.epsilon(releases, DELTA)
    for delta in (0.0, 1.0, -1e-5, 1.5, math.nan):
        for releases in ((), sampled(*MNIST), ((NonPrivateDpEvent(), 1),)):
            with pytest.raises(ValueError, match="Expected delta"):
                accountant.epsilon(releases, delta)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RdpClassic(orders=()), "Expected orders"),
        (lambda: RdpClassic(orders=(1, 2)), "Expected orders"),
        (lambda: RdpClassic(orders=(2.5,)), "Expected orders to be whole numbers"),
        (lambda: Rdp(orders=(0.5,)), "Expected orders"),
        (lambda: Prv(eps_error=0.0), r"Expected eps_error in \(0, 1\), got 0.0"),
        (lambda: Pld(value_discretization_interval=0.0), "Expected value_discretization_interval in"),
    ],
)
def test_fields_are_checked(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@every_accountant
def test_half_the_noise_or_twice_the_sampling_rate_shows(accountant):
    """At the MNIST setting either mistake at least doubles epsilon, except zCDP's, which ignores sampling."""
    q, sigma, steps = MNIST
    right = accountant.epsilon(sampled(q, sigma, steps), DELTA)
    assert accountant.epsilon(sampled(q, sigma / 2, steps), DELTA) > 2 * right
    doubled = accountant.epsilon(sampled(2 * q, sigma, steps), DELTA)
    assert doubled == right if isinstance(accountant, Zcdp) else doubled > 2 * right
    assert accountant.epsilon(sampled(q, sigma, 2 * steps), DELTA) > 1.3 * right


@pytest.mark.parametrize("accountant", [RdpClassic(), Pld(), Zcdp()], ids=lambda a: type(a).__name__)
def test_monotone_in_noise_rate_count_and_delta(accountant):
    q, sigma, steps = 0.01, 1.23, 500
    chains = [
        [(sampled(q, s, steps), DELTA) for s in (4.0, 1.23, 1.2, 0.7)],
        [(sampled(r, sigma, steps), DELTA) for r in (1e-4, 0.1, 1.0)],
        [(sampled(q, sigma, n), DELTA) for n in (0, 1, 117, 118)],
        [(sampled(q, sigma, steps), d) for d in (0.5, 1e-5, 1e-12)],
        [(unsampled(s), DELTA) for s in (1000.0, 10.0, 1.0, 0.01)],
        [(sampled(q, sigma, 117) + unsampled(8, n), DELTA) for n in (0, 1, 4)],
        [(sampled(q, sigma, 117) + sampled(2 * q, sigma, n), DELTA) for n in (0, 1, 117)],
    ]
    for chain in chains:
        values = [accountant.epsilon(releases, delta) for releases, delta in chain]
        assert all(a <= b + 1e-6 for a, b in itertools.pairwise(values)), values
        assert all(value >= 0 for value in values)


@every_accountant
def test_a_rate_of_one_is_no_sampling(accountant):
    for sigma, times in ((0.5, 1), (2.0, 7), (8.0, 2)):
        expected = accountant.epsilon(unsampled(sigma, times), DELTA)
        assert accountant.epsilon(sampled(1.0, sigma, times), DELTA) == expected


@every_accountant
def test_splitting_or_reordering_the_releases_changes_nothing(accountant):
    a, b, c = sampled(0.01, 1.1, 300), sampled(0.02, 1.3, 200), unsampled(8, 2)
    expected = accountant.epsilon(a + b + c, DELTA)
    split = unsampled(8, 1) + sampled(0.01, 1.1, 100) + b + unsampled(8.0, np.int64(1)) + sampled(0.01, 1.1, 200)
    assert accountant.epsilon(split, DELTA) == pytest.approx(expected, rel=1e-6)

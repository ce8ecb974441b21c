"""Properties of every accountant, which would break if noise or sampling were off by a factor of two."""

import itertools
import math
import time

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
from scipy import optimize, stats

from runner.accounting import Gdp, Pld, Prv, Rdp, RdpClassic, Zcdp, sound_epsilon
from runner.accounting.ledger import SampledGaussian, counting_epsilon, gaussian_epsilon, sampled_gaussians
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


NOISE = (0.01, 1.0, 100.0)
RATES = (1e-6, 1e-2, 1.0)
STEPS = (1, 10**6)


def one_step_lower_bound(q, sigma, delta):
    """Epsilon of one sampled step from the best threshold test {x > t}: sound, exact for a monotone loss."""

    def epsilon(t):
        tail = (1 - q) * stats.norm.sf(t / sigma) + q * stats.norm.sf((t - 1) / sigma)
        return math.log(tail - delta) - stats.norm.logsf(t / sigma) if tail > delta else 0.0

    computed = optimize.minimize_scalar(lambda t: -epsilon(t), bounds=(-4 * sigma, 1 + 5 * sigma), method="bounded")
    return max(0.0, -computed.fun)


def identification_lower_bound(q, sigma, steps, delta):
    """Epsilon at the output region where the summed noise passes a threshold, for a Gaussian sum of coins.

    Of T noisy coins the sum is a post-processing: mean K with K ~ Binomial(T, q), against 0, noise
    sigma sqrt(T). With the record's contribution at K >= k, Pr >= Pr(K >= k)/2 on {sum >= k}.
    """
    k = int(stats.binom.isf(0.5, steps, q))
    inside = stats.binom.sf(k - 1, steps, q) / 2
    if k == 0 or inside <= delta:
        return 0.0
    return max(0.0, math.log(inside - delta) - stats.norm.logsf(k / (sigma * math.sqrt(steps))))


def test_extremes_have_timely_ordered_and_monotone_answers():
    computed = {}
    for sigma, q, steps in itertools.product(NOISE, RATES, STEPS):
        start = time.process_time()
        epsilon = sound_epsilon(sampled(q, sigma, steps), DELTA)
        assert time.process_time() - start < 10
        assert math.isfinite(epsilon)
        assert epsilon >= 0
        for bound in (Rdp(), RdpClassic(), Zcdp()):
            limit = bound.epsilon(sampled(q, sigma, steps), DELTA)
            assert math.isfinite(limit)
            assert epsilon <= limit + 1e-9, (sigma, q, steps, bound)
        assert epsilon >= identification_lower_bound(q, sigma, steps, DELTA)
        if steps == 1:
            assert epsilon >= one_step_lower_bound(q, sigma, DELTA) - 1e-9
        computed[sigma, q, steps] = epsilon
    for sigma, q, steps in computed:
        less_noise = [computed[s, q, steps] for s in NOISE if s < sigma]
        assert all(computed[sigma, q, steps] <= other for other in less_noise)
        assert all(computed[sigma, q, steps] >= computed[sigma, r, steps] for r in RATES if r < q)
        assert all(computed[sigma, q, steps] >= computed[sigma, q, n] for n in STEPS if n < steps)


@pytest.mark.parametrize("sigma", [1e-300, 1e-100, 1e-10])
def test_noise_that_hides_nothing_is_none(sigma):
    """Its square, or an epsilon of more than 28 digits, is beyond what can be computed or shown."""
    for accountant in (Pld(), Prv(), Rdp(), RdpClassic(), Zcdp(), Gdp()):
        assert accountant.epsilon(sampled(0.1, sigma, 5), DELTA) == math.inf
    assert math.isfinite(sound_epsilon(sampled(0.1, 1e-8, 5), DELTA))


def test_the_closed_form_of_sampled_steps_by_enumeration():
    """delta at the reported epsilon, summed over how often the record was drawn, is within delta."""
    for q, sigma, steps in ((0.3, 0.2, 12), (0.05, 0.5, 40), (0.9, 1.0, 5)):
        eps = counting_epsilon(sampled_gaussians(sampled(q, sigma, steps), DELTA), DELTA)
        total = 0.0
        for k in range(1, steps + 1):
            mu = math.sqrt(k) / sigma
            divergence = stats.norm.cdf(mu / 2 - eps / mu) - math.exp(eps + stats.norm.logcdf(-mu / 2 - eps / mu))
            total += stats.binom.pmf(k, steps, q) * divergence
        assert total <= DELTA
        assert eps <= gaussian_epsilon(math.sqrt(steps) / sigma, DELTA)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.6, 0.9, 0.99])
def test_tails_and_gaussian_of_the_closed_form_share_a_delta(share):
    """A Gaussian that all are in, and a release without noise to speak of that one is in with the chance `share` delta.

    The latter alone spends that much of delta. Exactly: (1 - q) delta_G(eps; 1) + q, where delta_G is the former's.
    """
    delta, mu = 1e-5, 1.0
    q = share * delta
    epsilon = counting_epsilon([SampledGaussian(1.0, 1 / mu, 1), SampledGaussian(q, 1e-3, 1)], delta)
    cdf = stats.norm.cdf
    spent = cdf(mu / 2 - epsilon / mu) - math.exp(min(epsilon, 600)) * cdf(-mu / 2 - epsilon / mu)
    assert epsilon > 1e5 or (1 - q) * spent + q <= delta * (1 + 1e-6)
    assert (epsilon < 10) == (share < 0.5)


def test_gaussian_epsilon_where_the_exact_form_ends():
    values = [gaussian_epsilon(mu, DELTA) for mu in (1e-9, 1e-5, 1e-2, 1.0, 30.0, 999.0, 1001.0, 1e5, 1e9)]
    assert values[0] == values[1] == 0.0
    assert all(a <= b for a, b in itertools.pairwise(values))
    assert all(math.isfinite(value) for value in values)
    assert gaussian_epsilon(1000.1, DELTA) == pytest.approx(gaussian_epsilon(999.9, DELTA), rel=3e-3)


def test_prv_falls_back_where_opacus_cannot():
    """Large epsilon, a grid beyond memory: `Pld` plus the error, not an exception or a wrong number."""
    for q, sigma, steps in ((0.1, 0.01, 1), (0.999, 1.0, 10**6)):
        releases = sampled(q, sigma, steps)
        assert Prv().epsilon(releases, DELTA) == pytest.approx(Pld().epsilon(releases, DELTA) + 0.01, rel=1e-12)


@pytest.mark.parametrize("power", [14, 18])
@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.01, 1.0, 1000), (1 / 3000, 4.0, 10_000)])
def test_prv_is_no_looser_than_rdp_at_a_tiny_delta(q, sigma, steps, power):
    """Opacus says 4.2, 72, 759 and 776 for the first, and 3.2, 10, 517 and 531 for the second."""
    releases, delta = sampled(q, sigma, steps), 10.0**-power
    assert Prv().epsilon(releases, delta) <= Rdp().epsilon(releases, delta) + 0.01


def test_ten_million_releases_are_composed_in_a_second():
    """As dp_accounting composes them in a minute and a half: 579.54084 (its eighth digit depends on the processor)."""
    start = time.process_time()
    assert Pld().epsilon(sampled(256 / 60000, 1.0, 10**7), DELTA) == pytest.approx(579.5408385647262, rel=1e-6)
    Pld().epsilon(sampled(1e-7, 1.0, 10**8), DELTA)
    assert time.process_time() - start < 10


def test_rdp_at_the_extreme_orders_is_a_bound_without_a_warning(recwarn):
    for releases in (sampled(1e-6, 100.0, 1), sampled(1.0, 0.01, 1000), sampled(0.01, 1e-5, 10)):
        assert sound_epsilon(releases, DELTA) <= Rdp().epsilon(releases, DELTA) < math.inf
    assert not recwarn.list
    # the floor of the last order, 63: ln(62/63) - (ln delta + ln 63)/62
    floor = math.log(62 / 63) - (math.log(DELTA) + math.log(63)) / 62
    assert Rdp().epsilon(sampled(1e-6, 100.0, 1), DELTA) == pytest.approx(floor, abs=1e-9)
    # The floor of Mironov's conversion at order 64, the last.
    assert RdpClassic().epsilon(sampled(1e-6, 100.0, 1), DELTA) == pytest.approx(math.log(1e5) / 63, abs=1e-9)

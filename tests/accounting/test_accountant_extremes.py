"""Noise multipliers 0.01 to 100, rates 1e-6 to 1, a million releases: a sound answer in seconds."""

import itertools
import math
import os
import resource
import sys
import time

import pytest
from scipy import optimize, stats

from runner.accounting import Gdp, Pld, Prv, Rdp, RdpClassic, Zcdp, sound_epsilon
from runner.accounting.ledger import SampledGaussian, counting_epsilon, gaussian_epsilon, sampled_gaussians
from tests.accounting.releases import DELTA, sampled

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


def forget_peak():
    """Have the peak memory of this process count from here on, where the kernel can."""
    if os.path.exists("/proc/self/clear_refs"):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")


def peak_memory():
    """The peak of this process's memory, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)


def test_extremes_have_timely_ordered_and_monotone_answers():
    forget_peak()
    before = peak_memory()
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
    assert peak_memory() - before < 1.4e6  # 2 GB, less the 0.6 GB that the libraries take, whatever ran before


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


@pytest.mark.parametrize("power", [13, 14, 16, 18])
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

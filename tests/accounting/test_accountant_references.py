"""The accountants against float64 and exact references that share no code with the libraries behind them."""

import itertools
import math
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from hydra.utils import instantiate
from opacus.accountants import PRVAccountant, RDPAccountant
from scipy import integrate, optimize, stats

from checks.audit.targets import option
from runner.accounting import Gdp, Pld, Prv, Rdp, RdpClassic, Zcdp, sound_epsilon
from runner.cli.epsilon import _KINDS
from runner.report.formats import read_csv
from tests.accounting.releases import DELTA, MNIST, closed_form, sampled, unsampled
from tests.tracked import tracked_options


def one_step_delta(eps, q, sigma, direction):
    """Hockey-stick divergence of (1-q) N(0, s^2) + q N(1, s^2) and N(0, s^2), by quadrature."""

    def without(x):
        return math.exp(-((x / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))

    def record_case(x):
        return (1 - q) * without(x) + q * without(x - 1)

    top, bottom = (record_case, without) if direction == "remove" else (without, record_case)
    # loss(x) = +-ln(1 - q + q e^((2x-1)/(2 s^2))) = eps at the kink
    ratio = (math.exp(eps if direction == "remove" else -eps) - 1 + q) / q
    kink = sigma**2 * math.log(ratio) + 0.5 if ratio > 0 else -math.inf
    low, high = (kink, 1 + 12 * sigma) if direction == "remove" else (-12 * sigma, kink)
    low, high = max(low, -12 * sigma), min(high, 1 + 12 * sigma)
    if low >= high:
        return 0.0
    return integrate.quad(lambda x: top(x) - math.exp(eps) * bottom(x), low, high, epsabs=1e-14, limit=400)[0]


@pytest.mark.parametrize(("q", "sigma", "delta"), [(0.01, 0.5, 1e-3), (0.9, 0.7, 1e-6)])
def test_a_sampled_gaussian_step_by_integration_both_ways(q, sigma, delta):
    expected = 0.0
    for direction in ("remove", "add"):
        if one_step_delta(0.0, q, sigma, direction) > delta:
            computed = optimize.brentq(lambda eps, d=direction: one_step_delta(eps, q, sigma, d) - delta, 0.0, 60.0)
            expected = max(expected, computed)
    actual = Pld().epsilon(sampled(q, sigma, 1), delta)
    assert expected - 1e-7 <= actual <= expected + 2e-4
    assert Prv().epsilon(sampled(q, sigma, 1), delta) == pytest.approx(expected + 0.01, abs=2e-3)


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.02, 0.8, 4), (0.2, 3.0, 64)])
def test_composition_by_brute_force_convolution(q, sigma, steps):
    """The privacy loss of one step, binned on a grid of our own by its exact CDF, convolved step by step.

    Rounding every loss up bounds epsilon from above, rounding down from below.
    """
    width = 2e-3 if steps > 10 else 2e-4
    x = np.array([-12 * sigma, 1 + 12 * sigma])
    low, high = (math.floor(v / width) - 1 for v in np.log1p(q * np.expm1((2 * x - 1) / (2 * sigma**2))))
    edges = np.arange(low, high + 3) * width
    with np.errstate(invalid="ignore", divide="ignore"):
        losses = sigma**2 * np.log((np.exp(edges) - 1 + q) / q) + 0.5
    losses = np.where(np.isnan(losses), -np.inf, losses)  # below the smallest possible loss, ln(1 - q)
    cdf = (1 - q) * stats.norm.cdf(losses / sigma) + q * stats.norm.cdf((losses - 1) / sigma)
    mass = np.diff(cdf)
    composed = mass
    for _ in range(steps - 1):
        composed = np.convolve(composed, mass) if len(composed) < 500 else np.maximum(_convolve(composed, mass), 0)

    def epsilon(shift):
        losses = (steps * (low + shift) + np.arange(len(composed))) * width

        def delta(eps):
            positive = losses > eps
            return float(np.sum(composed[positive] * -np.expm1(eps - losses[positive])))

        return optimize.brentq(lambda eps: delta(eps) - DELTA, 0.0, float(losses[-1]))

    actual = Pld().epsilon(sampled(q, sigma, steps), DELTA)
    assert epsilon(0) <= actual <= epsilon(1)
    assert epsilon(1) - epsilon(0) < 1.01 * steps * width
    assert actual == pytest.approx((epsilon(0) + epsilon(1)) / 2, rel=5e-3)  # rounding to the middle of a bin


def _convolve(a, b):
    size = len(a) + len(b) - 1
    return np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size), size)


@pytest.mark.parametrize(("sigma", "times"), [(0.5, 1), (8.0, 2), (1.1, 60), (686.5, 100)])
@pytest.mark.parametrize("delta", [1e-2, 1e-9])
def test_unsampled_gaussian_is_the_closed_form(sigma, times, delta):
    expected = closed_form(math.sqrt(times) / sigma, delta)
    for releases in (unsampled(sigma, times), sampled(1.0, sigma, times)):
        assert Pld().epsilon(releases, delta) == pytest.approx(expected, abs=1e-9)
        assert Gdp().epsilon(releases, delta) == pytest.approx(expected, abs=1e-9)
        for bound in (Rdp(), RdpClassic(), Zcdp()):
            assert bound.epsilon(releases, delta) >= expected


def test_sampling_at_a_rate_next_to_one_meets_the_closed_form():
    """The numerical composition, which the closed form replaces at q = 1, agrees with it at the limit."""
    nearly = Pld().epsilon(sampled(1 - 1e-9, 2.0, 10), DELTA)
    assert nearly == pytest.approx(Pld().epsilon(unsampled(2.0, 10), DELTA), abs=1e-3)


def exact_rdp(q, sigma, order):
    """The sum of lipschitz section 1.4 (Mironov, Talwar, Zhang 2019) with exact binomials, in logs."""
    q = Fraction(q)
    terms = [
        _log(math.comb(order, k) * (1 - q) ** (order - k) * q**k) + (k * k - k) / (2 * sigma**2)
        for k in range(order + 1)
    ]
    top = max(terms)
    return (top + math.log(math.fsum(math.exp(term - top) for term in terms))) / (order - 1)


def _log(fraction):
    return math.log(fraction.numerator) - math.log(fraction.denominator)


@pytest.mark.parametrize(("q", "sigma", "steps"), [MNIST, (0.2, 4.0, 1325), (0.5, 0.3, 2)])
def test_rdp_with_exact_binomials(q, sigma, steps):
    rdp = {order: steps * exact_rdp(q, sigma, order) for order in range(2, 65)}
    classic = min(value - math.log(DELTA) / (order - 1) for order, value in rdp.items())
    assert RdpClassic().epsilon(sampled(q, sigma, steps), DELTA) == pytest.approx(classic, rel=1e-9)
    tight = min(
        value + math.log((order - 1) / order) - (math.log(DELTA) + math.log(order)) / (order - 1)
        for order, value in rdp.items()
    )
    integers = Rdp(orders=tuple(rdp))
    assert integers.epsilon(sampled(q, sigma, steps), DELTA) == pytest.approx(tight, rel=1e-9)


@pytest.mark.parametrize(("q", "sigma"), [(1e-3, 1.0), (0.2, 0.3), (0.9, 1.0)])
@pytest.mark.parametrize("order", [1.1, 5.9, 10.9])
def test_rdp_at_fractional_orders_by_integration(q, sigma, order):
    def integrand(x):
        ratio = math.log1p(q * math.expm1((2 * x - 1) / (2 * sigma**2)))
        return math.exp(stats.norm.logpdf(x, 0, sigma) + order * ratio - shift)

    shift = max(0.0, order * (order - 1) / (2 * sigma**2) + order * math.log(q))
    points = np.linspace(-10 * sigma, order + 10 * sigma, 30)
    parts = [integrate.quad(integrand, a, b, epsabs=1e-16)[0] for a, b in itertools.pairwise(points)]
    rdp = (shift + math.log(math.fsum(parts))) / (order - 1)
    conversion = math.log((order - 1) / order) - (math.log(1e-60) + math.log(order)) / (order - 1)
    actual = Rdp(orders=(order,)).epsilon(sampled(q, sigma, 1), 1e-60)
    assert actual - conversion == pytest.approx(rdp, rel=1e-5, abs=1e-9)


@pytest.mark.filterwarnings("ignore:divide by zero")  # Opacus' PRV takes ln(1 - q) at q = 1
def test_opacus_numbers_are_opacus_numbers():
    history = [(1.35, 1024 / 60000, 1450), (8.0, 1.0, 2)]
    releases = sampled(1024 / 60000, 1.35, 1450) + unsampled(8.0, 2)
    for ours, theirs in ((Rdp(), RDPAccountant()), (Prv(), PRVAccountant())):
        theirs.history = history
        assert ours.epsilon(releases, DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-9)


def test_clt_formula_by_hand():
    """mu = q sqrt(T (e^(1/sigma^2) - 1)); an unsampled release adds exactly 1/sigma^2 to mu^2."""
    mu_squared = 0.01**2 * 1000 * math.expm1(1 / 1.2**2)
    assert Gdp().epsilon(sampled(0.01, 1.2, 1000), DELTA) == pytest.approx(
        closed_form(math.sqrt(mu_squared), DELTA), abs=1e-9
    )
    mixed = sampled(0.01, 1.2, 1000) + unsampled(8.0, 2)
    expected = closed_form(math.sqrt(mu_squared + 2 / 64), DELTA)
    assert Gdp().epsilon(mixed, DELTA) == pytest.approx(expected, abs=1e-9)


def test_zcdp_by_hand():
    """rho = 8/(2 * 2^2) = 1: eps = 1 + 2 sqrt(ln(1/delta)), sampled or not."""
    expected = 1 + 2 * math.sqrt(math.log(1e5))
    assert Zcdp().epsilon(unsampled(2.0, 8), DELTA) == pytest.approx(expected, rel=1e-12)
    assert Zcdp().epsilon(sampled(0.01, 2.0, 8), DELTA) == pytest.approx(expected, rel=1e-12)


EPOCHS = read_csv(Path(__file__).with_name("epsilon_by_epoch.csv"))


def releases_of(row):
    q = int(row["batch_size"]) / int(row["dataset_size"])
    normalisation = unsampled(8, 2) if "two full-batch Gaussian releases" in row["note"] else ()
    return sampled(q, float(row["noise_multiplier"]), int(row["steps"])) + normalisation


def check(column, accountant, tolerance, every):
    rows = [row for row in EPOCHS[::every] if row[column]]
    errors = {
        (row["config"], row["epoch"]): accountant.epsilon(releases_of(row), float(row["delta"])) - float(row[column])
        for row in rows
    }
    assert len({row["config"] for row in rows}) >= 8
    assert max(map(abs, errors.values())) <= tolerance, max(errors.items(), key=lambda item: abs(item[1]))


def test_rdp_classic_of_every_epoch():
    assert len(EPOCHS) == 493
    check("eps_rdp_classic_int2_64", RdpClassic(), 1e-4, every=1)


def test_rdp_tight_of_every_epoch():
    check("eps_rdp_tight_opacus_orders", Rdp(), 1e-4, every=1)


def test_normalisation_releases_are_composed_with_training():
    releases = unsampled(8, 2) + sampled(1024 / 60000, 1.35, 1450)
    for accountant, expected in ((RdpClassic(), 3.135), (Rdp(), 2.701), (Pld(), 2.469)):
        assert accountant.epsilon(releases, DELTA) == pytest.approx(expected, abs=6e-4)


def test_pld_of_every_29th_epoch():
    check("eps_pld", Pld(), 2e-4, every=29)


def test_prv_of_every_41st_epoch():
    """The column is Opacus' upper end, its error of 0.01 included: the agreement is to the digits given."""
    check("eps_prv_opacus", Prv(), 2e-4, every=41)


RUNS = {  # q, sigma, steps: epsilon by jax_privacy 2.0.0's accountants of Poisson batches, by PLD and by RDP
    MNIST: (2.361374, 2.578992),
    (1024 / 60_000, 2.3259, 1160): (0.999878, 1.096927),
    (1024 / 50_000, 1.54, 1440): (2.365093, 2.585397),
}


@cache
def dp_accounting_pld(q: float, sigma: float, steps: int) -> float:
    event = PoissonSampledDpEvent(q, GaussianDpEvent(sigma))
    return float(PLDAccountant().compose(event, steps).get_epsilon(DELTA))


@cache
def opacus_prv(q: float, sigma: float, steps: int) -> tuple[float, float]:
    """Return Opacus' lower and upper end."""
    accountant = PRVAccountant()
    accountant.history = [(sigma, q, steps)]
    private = accountant._get_dprv(eps_error=0.01, delta_error=DELTA / 1000)
    low, _, high = private.compute_epsilon(DELTA, DELTA / 1000, 0.01)
    return low, high


@pytest.mark.parametrize("run", RUNS)
def test_the_sound_epsilon_is_that_of_three_libraries(run: tuple[float, float, int]) -> None:
    """Rounded up, dp_accounting's and jax_privacy's may be above ours by their own grid; Opacus' ends enclose it."""
    sound = sound_epsilon(sampled(*run), DELTA)
    low, high = opacus_prv(*run)
    assert low < sound < high < low + 0.03
    assert sound == pytest.approx(dp_accounting_pld(*run), abs=1e-3)
    assert sound == pytest.approx(RUNS[run][0], abs=1e-3)
    assert Rdp().epsilon(sampled(*run), DELTA) == pytest.approx(RUNS[run][1], abs=2e-2)


@pytest.mark.parametrize("name", tracked_options("accountant"))
def test_a_bound_is_above_and_an_estimate_is_marked(name: str) -> None:
    accountant = instantiate(option("accountant", name))
    epsilon = accountant.epsilon(sampled(*MNIST), DELTA)
    low, _ = opacus_prv(*MNIST)
    assert _KINDS[accountant.bound] == ("an estimate" if name == "gdp" else "a bound")
    if accountant.bound:
        assert epsilon > low
        assert epsilon > dp_accounting_pld(*MNIST) - 1e-3
    else:
        assert 0.9 * low < epsilon < low, "it is too small, so it is no bound"

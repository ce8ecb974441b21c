"""Accountants, each `epsilon(releases, delta)`: those that the papers use, and tight ones.

All of them share these properties:

- No release costs 0, and a release without noise costs infinity.
- Epsilon is never negative and never falls when a release is added.
- Sampling at rate 1 is no sampling.
- `delta` has to be in (0, 1).
- If numbers are too extreme for the method, the result is a documented upper bound.

Only `Gdp` is not a bound. `pld_epsilon` composes privacy loss distributions numerically, on a grid that always fits in
memory.
"""

import math
import warnings
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import ClassVar, TypeAlias

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

from runner.accounting.ledger import Releases, SampledGaussian, counting_epsilon, gaussian_epsilon, sampled_gaussians
from runner.config.fields import expect

_SMALLEST_RDP_NOISE = 1e-3
# (order - 1) * RDP of one release is the logarithm of a sum. For tiny q the sum is near 1, and the logarithm can be all
# rounding. Adding this much bounds the rounding, and adds 1e-9 to the RDP of 10,000 releases.
_RDP_ROUNDING = 1e-13
_SMALLEST_PRV_DELTA = 1e-13
_LARGEST_PRV_LOSS = 600.0  # e^709 is the largest float64
_LARGEST_PRV_GRID = 2_000_000  # points; Opacus needs about 200 bytes for each
_OPACUS_ORDERS = (*(1 + x / 10 for x in range(1, 100)), *map(float, range(12, 64)))


@dataclass(frozen=True)
class _Accountant(ABC):
    """Base of the accountants, whose `_epsilon` gets at least one mechanism, and only mechanisms with noise.

    `bound` is True if epsilon is a proven upper bound.
    """

    bound: ClassVar[bool] = True

    def epsilon(self, releases: Releases, delta: float) -> float:
        """Return epsilon at `delta`: an upper bound, except for `Gdp`, which approximates."""
        mechanisms = sampled_gaussians(releases, delta)
        if mechanisms is None:
            return math.inf
        return self._epsilon(mechanisms, delta) if mechanisms else 0.0

    @abstractmethod
    def _epsilon(self, mechanisms: list[SampledGaussian], delta: float) -> float: ...


@dataclass(frozen=True)
class RdpClassic(_Accountant):
    """Renyi DP at integer orders with Mironov's conversion, as papers up to about 2020 report it.

    RDP(a) = T/(a-1) ln sum_k C(a,k) (1-q)^(a-k) q^k e^((k^2-k)/(2 sigma^2))    (Mironov, Talwar and Zhang
    2019, section 3.3), summed over the releases. Then eps = min_a RDP(a) + ln(1/delta)/(a-1) (Mironov 2017,
    proposition 3). The bound holds for every order. A minimum at the first or last order is therefore valid,
    but not the tightest. With the default orders epsilon is at least ln(1/delta)/63.

    Raises:
        ValueError: an order is not a whole number > 1.
    """

    orders: tuple[int, ...] = tuple(range(2, 65))

    def __post_init__(self) -> None:
        _check_orders(self.orders)
        if any(order != int(order) for order in self.orders):
            raise ValueError(f"Expected orders to be whole numbers, got {self.orders}.")

    def _epsilon(self, mechanisms: list[SampledGaussian], delta: float) -> float:
        rdp = _composed_rdp(mechanisms, tuple(self.orders))
        return max(0.0, float(np.min(rdp - math.log(delta) / (np.array(self.orders) - 1))))


@dataclass(frozen=True)
class Rdp(_Accountant):
    """Renyi DP with the orders and conversion of Opacus' RDPAccountant, and its numbers.

    eps = min_a RDP(a) + ln((a-1)/a) - (ln delta + ln a)/(a-1)    (Balle et al., AISTATS 2020, theorem 21),
    with the RDP of `RdpClassic`, at fractional orders by its series (Mironov, Talwar and Zhang 2019, section
    3.3). Opacus warns if the best order is the first (1.1, for a large epsilon) or the last (63, for a small
    one). The bound holds for every order, so the minimum is kept and the warning is suppressed. An order whose
    series fails in floating point is left out. Below a noise multiplier of 0.001 every series would fail. There
    the unsampled RDP a/(2 sigma^2) is charged, which is an upper bound.

    Raises:
        ValueError: an order is not > 1.
    """

    orders: tuple[float, ...] = _OPACUS_ORDERS

    def __post_init__(self) -> None:
        _check_orders(self.orders)

    def _epsilon(self, mechanisms: list[SampledGaussian], delta: float) -> float:
        rdp = _composed_rdp(mechanisms, tuple(self.orders))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Optimal order is the")
            epsilon, _ = rdp_analysis().get_privacy_spent(orders=list(self.orders), rdp=rdp, delta=delta)
        return max(0.0, float(epsilon))


@dataclass(frozen=True)
class Prv(_Accountant):
    """Opacus' PRVAccountant: numerical composition of privacy loss random variables (Gopi et al. 2021).

    The result is the upper end of the interval that Opacus reports: the epsilon at delta - delta_error, plus
    `eps_error`, with delta_error = delta/1000. It is `eps_error` above the estimate even if almost nothing was
    released. Opacus' grid may fail, exceed 2 million points (0.4 GB), or reach losses of 600. Below delta = 1e-13,
    delta_error is less than the rounding of a float64. The result is then the epsilon of `Pld` plus `eps_error`, a
    bound of the same looseness. Below delta = 1e-10, where that is fast, it is never above this sum.

    Raises:
        ValueError: `eps_error` is not in (0, 1).
    """

    eps_error: float = 0.01

    def __post_init__(self) -> None:
        expect(0 < self.eps_error < 1, "eps_error in (0, 1)", self.eps_error)

    def _epsilon(self, mechanisms: list[SampledGaussian], delta: float) -> float:
        estimate = _prv_epsilon(tuple(mechanisms), delta, self.eps_error) if delta >= _SMALLEST_PRV_DELTA else math.inf
        if delta >= SMALLEST_DELTA and estimate < math.inf:
            return estimate
        return min(estimate, Pld()._epsilon(mechanisms, delta) + self.eps_error)


@dataclass(frozen=True)
class Pld(_Accountant):
    """Privacy loss distributions of dp_accounting, pessimistic, add-or-remove-one: the tight, sound epsilon.

    See `pld_epsilon` for the grid, its adaptation, and the closed form used if no grid would do. Below
    delta = 1e-10 floating point is too coarse for the grid. The result is then the smaller of that closed form
    and `Rdp`.

    Raises:
        ValueError: `value_discretization_interval` is not in [1e-6, 1].
    """

    value_discretization_interval: float = 2e-4

    def __post_init__(self) -> None:
        if not 1e-6 <= self.value_discretization_interval <= 1:
            interval = self.value_discretization_interval
            raise ValueError(f"Expected value_discretization_interval in [1e-6, 1], got {interval}.")

    def _epsilon(self, mechanisms: list[SampledGaussian], delta: float) -> float:
        epsilon = pld_epsilon(tuple(mechanisms), delta, self.value_discretization_interval)
        return epsilon if delta >= SMALLEST_DELTA else min(epsilon, Rdp()._epsilon(mechanisms, delta))


@dataclass(frozen=True)
class Gdp(_Accountant):
    """Gaussian DP by the central limit theorem (Bu, Dong, Long and Su 2020). An approximation, NOT a bound.

    mu^2 = sum over sampled releases of q^2 T (e^(1/sigma^2) - 1), plus T/sigma^2 for unsampled ones (exact).
    Epsilon solves delta = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2). It is too small if sigma is small
    or T q^2 is not small. At sigma = 0.7151, q = 256/60000, T = 4680 it is 3.00, and the tight value is 3.59.
    """

    bound: ClassVar[bool] = False

    def _epsilon(self, mechanisms: list[SampledGaussian], delta: float) -> float:
        """Return the approximate epsilon at `delta`, infinite if e^(1/sigma^2) overflows."""
        try:
            squares = [
                m.times / m.noise_multiplier**2
                if m.q == 1
                else m.q**2 * m.times * math.expm1(1 / m.noise_multiplier**2)
                for m in mechanisms
            ]
            return gaussian_epsilon(math.sqrt(sum(squares)), delta)
        except OverflowError:
            return math.inf


@dataclass(frozen=True)
class Zcdp(_Accountant):
    """Zero-concentrated DP without amplification by sampling (Bun and Steinke, TCC 2016).

    rho = sum of T/(2 sigma^2) (proposition 1.6), eps = rho + 2 sqrt(rho ln(1/delta)) (proposition 1.3). A
    sampled release is charged as unsampled. This is an upper bound, as hockey-stick divergence is jointly convex.
    """

    def _epsilon(self, mechanisms: list[SampledGaussian], delta: float) -> float:
        rho = sum(m.times / (2 * m.noise_multiplier**2) for m in mechanisms)
        return rho + 2 * math.sqrt(-rho * math.log(delta))


@lru_cache(maxsize=4096)
def sound_epsilon(releases: Releases, delta: float) -> float:
    """Return the tight epsilon of a whole ledger, by `Pld` with its default grid.

    It holds for the neighbours that the events are for: add-or-remove-one, or the mechanism's `neighbouring_relation`.

    Raises:
        ValueError: `delta` is outside (0, 1), or an event is not a (sampled) Gaussian, NonPrivate or NoOp.
    """
    return Pld().epsilon(releases, delta)


def _check_orders(orders: tuple[float, ...]) -> None:
    finite = all(1 < order < math.inf for order in orders)
    expect(len(orders) > 0 and finite, "orders to be finite numbers > 1, at least one", orders)


def _composed_rdp(mechanisms: list[SampledGaussian], orders: tuple[float, ...]) -> np.ndarray:
    composed: np.ndarray = np.sum([m.times * _rdp(m.q, m.noise_multiplier, orders) for m in mechanisms], axis=0)
    return composed


@lru_cache(maxsize=256)
def _rdp(q: float, noise_multiplier: float, orders: tuple[float, ...]) -> np.ndarray:
    """Return the RDP of one release, [orders], infinite at an order that cannot be computed."""
    if noise_multiplier < _SMALLEST_RDP_NOISE:
        return np.array(orders) / 2 / noise_multiplier**2
    rdp = np.full(len(orders), math.inf)
    for place, order in enumerate(orders):
        with suppress(ValueError, OverflowError):
            computed = rdp_analysis().compute_rdp(q=q, noise_multiplier=noise_multiplier, steps=1, orders=float(order))
            if not math.isnan(computed):
                rdp[place] = max(0.0, float(computed)) + _RDP_ROUNDING / (order - 1)
    return rdp


@cache
def rdp_analysis() -> ModuleType:
    """Load Opacus' functions of Renyi DP from their file, which needs nothing else of Opacus: all takes a second."""
    package = find_spec("opacus")
    assert package is not None
    assert package.origin is not None
    spec = spec_from_file_location("opacus_rdp", Path(package.origin).parent / "accountants" / "analysis" / "rdp.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=1024)
def _prv_epsilon(mechanisms: tuple[SampledGaussian, ...], delta: float, eps_error: float) -> float:
    """Return Opacus' epsilon, or infinity where it has none."""
    from opacus.accountants import PRVAccountant
    from opacus.accountants.analysis.prv import PoissonSubsampledGaussianPRV, compute_safe_domain_size

    delta_error = delta / 1000
    accountant = PRVAccountant()
    accountant.history = [(m.noise_multiplier, m.q, m.times) for m in mechanisms]
    prvs = [PoissonSubsampledGaussianPRV(m.q, m.noise_multiplier) for m in mechanisms]
    counts = [m.times for m in mechanisms]
    mesh = eps_error / math.sqrt(sum(counts) * math.log(12 / delta_error) / 2)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            loss = compute_safe_domain_size(prvs, counts, eps_error, delta_error)
            if loss < _LARGEST_PRV_LOSS and 2 * loss / mesh < _LARGEST_PRV_GRID:
                epsilon = float(accountant.get_epsilon(delta, eps_error=eps_error, delta_error=delta_error))
                if math.isfinite(epsilon):
                    return max(0.0, epsilon)
    except (ArithmeticError, MemoryError, RuntimeError, ValueError):
        pass  # the fallback of `Prv` is its documented answer
    return math.inf


_FINEST_INTERVAL = 1e-5  # below it, rounding in the second differences of delta(eps) is no longer negligible
_COARSEST_INTERVAL = 1.0
_RELEASE_POINTS = 100_000  # points of the grid of one release
_COMPOSED_POINTS = 3_000_000
_SURELY_DENSE = 10  # releases: of two points or more, they have over 1000, at which dp_accounting changes the form
SMALLEST_DELTA = 1e-10  # the FFT's rounding and the 1e-15 tails it cuts stay far below this

Question: TypeAlias = tuple[tuple[SampledGaussian, ...], float, float]
ANSWERS: dict[Question, float] = {}
"""What `pld_epsilon` has returned in this process, by its arguments. `runner.records.verify` keeps them in a file."""


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
    # T_i unsampled Gaussians of multipliers sigma_i are merged into one with 1/sigma^2 = sum_i T_i/sigma_i^2.
    precision = sum(m.times / m.noise_multiplier**2 for m in mechanisms if m.q == 1)
    sampled = [m for m in mechanisms if m.q < 1]
    merged = [*sampled, SampledGaussian(1.0, precision**-0.5, 1)] if precision else sampled
    grid = _grid_interval(merged, bound, interval)
    if grid > _COARSEST_INTERVAL:
        return bound
    parts = []
    for m in merged:
        part = _one_release(m.q, m.noise_multiplier, grid)
        if m.times >= _SURELY_DENSE:
            # `self_compose` would decide on the form, which composition has anyway, by a whole number of as many digits
            # as there are releases. That takes minutes for ten million of them.
            removed, added = part._pmf_remove.to_dense_pmf(), part._pmf_add.to_dense_pmf()
            part = privacy_loss_distribution.PrivacyLossDistribution(removed, None if part._symmetric else added)
        parts.append(part.self_compose(m.times) if m.times > 1 else part)
    composed = reduce(privacy_loss_distribution.PrivacyLossDistribution.compose, parts)
    return min(bound, max(0.0, float(composed.get_epsilon_for_delta(delta))))


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

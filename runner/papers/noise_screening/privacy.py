"""Privacy of screened releases, computed: the error of charging only the kept updates.

One step. A candidate y with density f_x (x: the data set) is kept with probability A(y), a function that is public
given the past. After k rejections the next candidate is always kept (k may be infinite). With Z_x = int f_x A and
R_x = 1 - Z_x, the density of the kept y is

    p_x(y) = A(y) f_x(y) (1 + R_x + ... + R_x^(k-1)) + R_x^k f_x(y) = f_x(y) [A(y) (1 - R_x^k) / Z_x + R_x^k],

as the i-th candidate comes after i - 1 rejections. An adversary who sees only the weights sees this density. The claim
to check is that it is as private as f_x. Here A is the indicator of a region. So p_x is f_x times one of two constants:
one inside, one outside.

`Screened`: tau kept steps of f_0 = N(0, sigma^2) against f_1 = (1 - q) N(0, sigma^2) + q N(1, sigma^2), each kept if
y > t. (These are worst-case gradients of one coordinate: only the record has one, and is in the batch with
probability q.)

The theorem is about any rule, so one rule that refutes it is enough. Algorithm 2 keeps if J(w + n) <= J(w), for a steep
J. Let J(w) = |v|^2 / 2 - a u, with u the first coordinate of w, v its d others and a = d sigma^2 / (2 t). J is convex,
and fixed before the data are read. It changes by <v, m> + |m|^2 / 2 - a y, with y and m the same parts of n. So the
candidate is kept if y >= t (|m|^2 + 2 <v, m>) / (d sigma^2). Here u does not occur, |m|^2 is d sigma^2 to a relative
sqrt(2 / d), and |v| is about sigma sqrt(tau d) after tau kept updates, so 2 <v, m> adds about 2 sqrt(tau / d). For
d = 10^8, the threshold is t to 1.4% in all of the paper's steps on MNIST, and t in the limit. (No J of one coordinate
gives y > t with t > 0. It would have to fall from 0 to 2 t, and not to fall from 0 to t and from t to 2 t.)

The proof of the theorem composes over all kept updates. So it claims epsilon = 3 for an adversary who sees each of
them, as here, though only the last weights are published.

The repair: the number N of attempts is fixed before the data are read, and all N are charged. The weights are a
function of the N noisy sums and of public draws, so the epsilon of N compositions is sound for every rule.

Lower bounds on epsilon, method:

1. Each step's y is replaced by its bin. This is post-processing, so it can only lower epsilon. In bin j the loss
   ln(p_1 / p_0) is in [j h, (j + 1) h), h = 0.1 / tau. y is cut at 12 standard deviations, and the mass beyond is
   dropped.
2. The loss of a bin, ln of the ratio of its two probabilities, is a mean of ratios in this interval. It is rounded
   down, to j h. delta(eps) = E max(0, 1 - e^(eps - loss)) grows with the loss. So this too can only lower epsilon, by
   at most h tau = 0.1, and so does dropping mass.
3. dp_accounting computes the tau-fold convolution (FFT). Its rounding and the 1e-15 tails that it cuts are covered by
   taking epsilon at delta (1 + 1e-4).

So the numbers are rigorous up to float64. Both orders of the neighbours are computed and the larger counts.

`upper bound`: Renyi divergences of the true p_1 and p_0 at integer orders, by the trapezoidal rule on a fine grid of y.
Both orders of the neighbours are composed and converted as in the paper. It bounds the same epsilon from above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its modules are imported at their first use

from runner.claims.numbers import Array

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

ORDERS = tuple(range(2, 65))  # the paper's
_CUT = 12.0  # standard deviations
_ROUNDING = 0.1  # h tau, in nats
_DELTA_ROUNDING = 1e-4  # relative
_GRID = 40_001  # points for Renyi divergences


def kept_weights(accepted: float, rejections: float) -> tuple[float, float]:
    """Return the factors of f_x for A = 1 and for A = 0, given Z_x = `accepted` and k = `rejections`."""
    forced = (1 - accepted) ** rejections if rejections < math.inf else 0.0
    return (1 - forced) / accepted + forced, forced


@dataclass(frozen=True)
class Screened:
    """One kept step of the sampled Gaussian mechanism: see the module's text. `threshold` is in units of sigma.

    A threshold of -inf is no screening.
    """

    q: float
    sigma: float
    threshold: float
    rejections: float

    @property
    def accepted(self) -> tuple[float, float]:
        """Return P(A = 1) of one candidate without and with the record."""
        without, shifted = scipy.special.ndtr(-self.threshold), scipy.special.ndtr(-self.threshold + 1 / self.sigma)
        return float(without), float((1 - self.q) * without + self.q * shifted)

    def epsilon_at_least(self, steps: int, delta: float) -> float:
        """Return a lower bound on the epsilon of `steps` kept ones at `delta`."""
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution  # here: plans need neither

        remove, add = (self._losses(_ROUNDING / steps, with_record=w) for w in (True, False))
        composed = PrivacyLossDistribution(remove, add).self_compose(steps)
        return float(composed.get_epsilon_for_delta(delta * (1 + _DELTA_ROUNDING)))

    def epsilon_by_rdp(self, steps: int, delta: float, unscreened: int = 0) -> float:
        """Return epsilon by the paper's method, from true densities of `steps` kept ones and some without screening."""
        orders = np.array(ORDERS)
        plain = replace(self, threshold=-math.inf)
        divergence = steps * self.renyi() + unscreened * plain.renyi()
        return float(np.min(divergence + math.log(1 / delta) / (orders - 1)))

    def renyi(self) -> Array:
        """Return the Renyi divergence of one kept step, the larger of both orders of the neighbours: [orders]."""
        # f_1^a f_0^(1 - a) has its mass at y = a and below, and f_0^a f_1^(1 - a) at 0, as f_1 >= (1 - q) f_0.
        moments: list[list[list[float]]] = [[], []]
        for low, high, weights in self._pieces(shift=max(ORDERS)):
            if not min(weights):
                continue
            y = np.linspace(low, high, _GRID)
            ends = np.log(np.where((y == low) | (y == high), 0.5, 1.0)) + math.log(y[1] - y[0])
            log_0 = -0.5 * (y / self.sigma) ** 2 - math.log(self.sigma * math.sqrt(2 * math.pi))
            log_1 = log_0 + self._log_ratio(y) + math.log(weights[1])
            log_0 += math.log(weights[0])
            for i, (p, q) in enumerate(((log_1, log_0), (log_0, log_1))):
                moments[i].append([scipy.special.logsumexp(a * p + (1 - a) * q + ends) for a in ORDERS])
        by_order = [scipy.special.logsumexp(np.array(piece), axis=0) for piece in moments]
        divergences: Array = np.maximum(*by_order) / (np.array(ORDERS) - 1)
        return divergences

    def _log_ratio(self, y: Array) -> Array:
        """Return ln(f_1 / f_0)."""
        return np.logaddexp(math.log1p(-self.q), math.log(self.q) + (y - 0.5) / self.sigma**2)

    def _pieces(self, shift: float = 1) -> list[tuple[float, float, tuple[float, float]]]:
        """Return intervals of y on which A is constant, with the factors of f_0 and f_1 there.

        They end 12 standard deviations outside of means from 0 to `shift`.
        """
        low, high = -_CUT * self.sigma, shift + _CUT * self.sigma
        cut = min(max(self.threshold * self.sigma, low), high)
        inside, outside = zip(*(kept_weights(z, self.rejections) for z in self.accepted), strict=True)
        return [(a, b, w) for a, b, w in ((low, cut, outside), (cut, high, inside)) if a < b]

    def _losses(self, interval: float, *, with_record: bool) -> DensePLDPmf:
        """Return the distribution of the rounded-down loss under p_1 (ln p_1/p_0) or under p_0 (ln p_0/p_1)."""
        from dp_accounting.pld.pld_pmf import DensePLDPmf

        sign = 1 if with_record else -1
        parts = []
        for low, high, weights in self._pieces():
            if not min(weights):
                continue  # no candidate is kept there
            offset = math.log(weights[1] / weights[0])
            first, last = sorted(sign * (offset + self._log_ratio(np.array([low, high]))))
            bins = np.arange(math.floor(first / interval), math.floor(last / interval) + 2)
            edges = np.clip(self._inverse(sign * bins * interval - offset), low, high)
            mass = _normal_mass(edges, 0, self.sigma)
            if with_record:
                mass = (1 - self.q) * mass + self.q * _normal_mass(edges, 1, self.sigma)
            parts.append((int(bins[0]), weights[1 if with_record else 0] * mass))
        start = min(first for first, _ in parts)
        total = np.zeros(max(first + len(mass) for first, mass in parts) - start)
        for first, mass in parts:
            total[first - start : first - start + len(mass)] += mass
        return DensePLDPmf(interval, start, total, infinity_mass=0.0, pessimistic_estimate=False)

    def _inverse(self, log_ratio: Array) -> Array:
        """Return the y at which ln(f_1 / f_0) is `log_ratio`, or -inf below its infimum ln(1 - q)."""
        above = np.maximum(log_ratio - math.log1p(-self.q), 0)
        with np.errstate(divide="ignore"):
            return 0.5 + self.sigma**2 * (np.log(np.expm1(above)) + math.log1p(-self.q) - math.log(self.q))


def _normal_mass(edges: Array, mean: float, sigma: float) -> Array:
    """Return P(between neighbouring edges) under N(mean, sigma^2), from the nearer tail, in any order: [edges - 1]."""
    z = (edges - mean) / sigma
    below, above = scipy.special.ndtr(z), scipy.special.ndtr(-z)
    right = np.minimum(z[1:], z[:-1]) > 0
    mass: Array = np.abs(np.where(right, np.diff(above), np.diff(below)))
    return mass

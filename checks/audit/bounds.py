"""Lower bounds on epsilon, with confidence, from an attack's scores.

An attacker sees one number, the score, and guesses "in" if it is above a threshold. Let a = P(in | out) be the false
positives and b = P(in | in) the true ones. (epsilon, delta)-DP asks b <= e^epsilon a + delta of every test. With the
roles of the neighbours exchanged, it asks 1 - a <= e^epsilon (1 - b) + delta. Clopper and Pearson (1934) bound a from
above and b from below, and the other way round, by counts of independent trials. No normal approximation is needed.
Score and threshold are chosen on other trials, so that the choice needs no correction.

Two bounds follow:

`any_shape`: epsilon >= ln((b - delta) / a), or ln((1 - a - delta) / (1 - b)), as in Jagielski, Ullman and Oprea (2020).
It holds for every mechanism. To be tight, it needs an event of probability delta. With n trials it cannot exceed about
ln(n).

`of_shape`: (Nasr et al., USENIX Security 2023, section 4.) The ledger charges a whole curve delta(epsilon), for
Gaussian releases with or without sampling. Each point of the curve is a promise that can be tested: b <= e^e a +
delta(e) for all e >= 0, both ways. Noise of s times the charged noise has another curve, which falls as s grows. If the
curve of s is violated, the mechanism has less noise than s times the charged noise. This needs the shape of the charge:
Gaussian noise of any scale on a shift of any size. The bound is the sound accountant's epsilon at the smallest refuted
s. For a Gaussian (Dong, Roth and Su, 2022):

    mu >= Phi^-1(1 - a) - Phi^-1(1 - b).

At s = 1 it is a test of the ledger itself, for any shape: `Found.accused`. All curves are pessimistic (privacy loss
distributions, rounded up), so that a violation is certain.

A mechanism of another shape, such as screened updates, can violate its ledger's curve and keep the epsilon at one
delta. For these, only `any_shape` counts as a bound on epsilon.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import NamedTuple, TypeAlias

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution
from scipy.special import betaincinv, logsumexp, ndtri

from runner.accounting import Releases, sound_epsilon
from runner.accounting.ledger import SampledGaussian, gaussian_epsilon, sampled_gaussians

Array: TypeAlias = np.ndarray
Scores: TypeAlias = Mapping[str, tuple[Array, Array]]  # by name: trials without and with the example, [trials] each

CHOOSING = 0.2  # the share of trials for choosing score and threshold
_POINTS = 2000  # of the grid of one release's loss
_FINEST = 2e-3  # of the logarithm of a scale
LOSSES = np.concatenate([np.linspace(0, 2, 101), np.linspace(2.1, 30, 280)])  # points of the tested curves
# Noise over charged noise, to find the strongest test.
_SCALES = (1 / 32, 1 / 8, 1 / 4, 0.5, 0.7, 0.85, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0, 2.5, 4.0)
_TAILS = (0.5, 0.35, 0.25, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4)


class Limits(NamedTuple):
    """Confidence limits of one test: an upper one of the false positives, a lower one of the true ones."""

    false: float
    true: float


class Test(NamedTuple):
    """A test: it guesses "in" if the score of that name is above the threshold."""

    score: str
    threshold: float


class Found(NamedTuple):
    """The result of an attack.

    Attributes:
        of_shape: lower bound on epsilon for a mechanism of the charged shape.
        any_shape: lower bound on epsilon for any mechanism.
        accused: True if the curve of the ledger's releases is violated.
    """

    of_shape: float
    any_shape: float
    accused: bool


class Limited(NamedTuple):
    """What keeps the strongest attacker from showing all that is charged.

    Attributes:
        moved: of the charged shift, what the example moves.
        summed: True if only the sum of all releases is seen, as by the last weights.
        order: the number of releases among which the charged one is, in an order that is not seen.
    """

    moved: float = 1.0
    summed: bool = False
    order: int = 1


def exact_scores(charged: Releases, delta: float, trials: int, seed: int, limited: Limited) -> Scores:
    """Draw the scores of the strongest attacker on exactly the charged releases, which an estimator makes bounds of.

    Release j is x + sigma_j z, where x = 1 if the example is there and joins, and 0 if not, with a coin of rate q_j.
    The score is the log-likelihood ratio, sum_j ln(1 - q_j + q_j exp((y_j - 1/2) / sigma_j^2)). With `limited.summed`
    it is sum_j y_j, in which the likelihood ratio of the sum grows. With an order of k releases of q_j = 1, one of them
    drawn evenly, ln(1 - q_j + q_j exp(...)) becomes the logarithm of the mean of their likelihood ratios.
    """
    draws, sides = np.random.default_rng(seed), []
    for present in (0, 1):
        total = np.zeros(trials)
        for m in sampled_gaussians(charged, delta) or ():
            noise = m.noise_multiplier / limited.moved
            for _ in range(m.times):
                seen = noise * draws.standard_normal((limited.order, trials))
                seen[0] += present * (draws.random(trials) < m.q)
                losses = logsumexp((seen - 0.5) / noise**2, axis=0) - math.log(limited.order)
                losses = losses if m.q == 1 else np.logaddexp(math.log1p(-m.q), math.log(m.q) + losses)
                total += seen[0] if limited.summed else losses
        sides.append(total)
    return {"likelihood": (sides[0], sides[1])}


def clopper_pearson(count: int, trials: int, error: float) -> tuple[float, float]:
    """Return lower and upper limit of a probability; each fails with a chance of at most `error`."""
    low = betaincinv(count, trials - count + 1, error) if count > 0 else 0.0
    high = betaincinv(count + 1, trials - count, 1 - error) if count < trials else 1.0
    return float(low), float(high)


def lower_bounds(scores: Scores, charged: Releases, delta: float, error: float) -> Found:
    """Compute both bounds, which fail together with a chance of at most `error`.

    Args:
        scores: at least ten trials of each kind.
        charged: the releases in the ledger. If they are not private, there is nothing to refute.
        delta: the delta of the bounds.
        error: the chance of error.
    """
    first, holdout = {}, {}
    for name, (out, within) in scores.items():
        i, j = (max(1, int(CHOOSING * len(side))) for side in (out, within))
        first[name], holdout[name] = (out[:i], within[:j]), (out[i:], within[j:])
    tests = _candidates(first)
    limit = error / 4  # two bounds, of two limits each
    seen = [_limits(first, test, limit) for test in tests]
    strongest = tests[int(np.argmax([_general_bound(limits, delta) for limits in seen]))]
    any_shape = max(0.0, _general_bound(_limits(holdout, strongest, limit), delta))
    mechanisms = sampled_gaussians(charged, delta)
    if not mechanisms:
        return Found(math.nan, any_shape, accused=mechanisms == [] and any_shape > 0)
    family = tuple(mechanisms)
    chosen = tests[int(np.argmax([_strength(limits, family) for limits in seen]))]
    limits = _limits(holdout, chosen, limit)
    accused = _refuted(limits, family, 1.0) or any_shape > sound_epsilon(charged, delta)
    return Found(_shape_bound(limits, family, delta), any_shape, accused)


def _candidates(scores: Scores) -> list[Test]:
    """List tests at quantiles of either kind of trials, and one between the two if they do not overlap."""
    tests = []
    for name, (out, within) in scores.items():
        levels = [level for tail in _TAILS for level in (tail, 1 - tail)]
        cuts = [*np.quantile(out, levels), *np.quantile(within, levels), out.max(), within.min()]
        if out.max() < within.min():
            cuts.append((out.max() + within.min()) / 2)
        tests += [Test(name, float(cut)) for cut in dict.fromkeys(cuts)]
    return tests


def _limits(scores: Scores, test: Test, error: float) -> Limits:
    out, within = scores[test.score]
    false = clopper_pearson(int((out > test.threshold).sum()), len(out), error)[1]
    true = clopper_pearson(int((within > test.threshold).sum()), len(within), error)[0]
    return Limits(false, true)


def _general_bound(limits: Limits, delta: float) -> float:
    """Compute ln((b - delta) / a), or the same with exchanged roles; -inf if neither gives a bound."""
    pairs = ((limits.true, limits.false), (1 - limits.false, 1 - limits.true))
    return max(math.log((likely - delta) / unlikely) if likely > delta else -math.inf for likely, unlikely in pairs)


def _shape_bound(limits: Limits, family: tuple[SampledGaussian, ...], delta: float) -> float:
    """Compute epsilon at the least refuted noise, to 0.2% of the noise; 0 if no noise is refuted."""
    if all(m.q == 1 for m in family):
        return gaussian_epsilon(_gaussian_mu(limits), delta)
    low, high = math.log(_SCALES[0]), math.log(_SCALES[-1])
    return epsilon_of_refuted(lambda scale: _refuted(limits, family, scale), family, delta, low, high)


def epsilon_of_refuted(
    refuted: Callable[[float], bool], family: tuple[SampledGaussian, ...], delta: float, low: float, high: float
) -> float:
    """Compute epsilon at the least scale of the noise that is refuted, between e^low and e^high; 0 if none is."""
    if not refuted(math.exp(high)):
        return 0.0
    if refuted(math.exp(low)):
        return epsilon_of_curve(family, math.exp(low), delta)
    while high - low > _FINEST:
        middle = (low + high) / 2
        low, high = (low, middle) if refuted(math.exp(middle)) else (middle, high)
    return epsilon_of_curve(family, math.exp(high), delta)


def _gaussian_mu(limits: Limits) -> float:
    """Bound the distance of two normal distributions from below, in standard deviations."""
    return max(0.0, float(ndtri(limits.true) - ndtri(limits.false)))


def _strength(limits: Limits, family: tuple[SampledGaussian, ...]) -> float:
    """Rank tests: first by the noise that they refute, on a coarse grid, then by how clearly."""
    if all(m.q == 1 for m in family):
        return _gaussian_mu(limits)
    for rank, scale in enumerate(_SCALES):
        excess = _excess(limits, family, scale)
        if excess > 0:
            return len(_SCALES) - rank + excess
    return excess


def _refuted(limits: Limits, family: tuple[SampledGaussian, ...], scale: float) -> bool:
    if all(m.q == 1 for m in family):
        mu = math.sqrt(sum(m.times / m.noise_multiplier**2 for m in family)) / scale
        return _gaussian_mu(limits) > mu
    return _excess(limits, family, scale) > 0


def _excess(limits: Limits, family: tuple[SampledGaussian, ...], scale: float) -> float:
    """Return the most by which a test's success exceeds this noise's curve; not positive if the curve allows it.

    A loss that is too large for e^e allows everything.
    """
    allowed = curve(family, scale)
    growth = np.exp(LOSSES)
    forward = limits.true - growth * limits.false - allowed
    backward = (1 - limits.false) - growth * (1 - limits.true) - allowed
    return float(max(forward.max(), backward.max()))


@lru_cache(maxsize=4096)
def curve(family: tuple[SampledGaussian, ...], scale: float) -> Array:
    """Compute a pessimistic delta(e) at the losses e, for noise of that scale."""
    noises = [scale * m.noise_multiplier for m in family]
    interval = max((0.5 / noise**2 + 10 / noise) / _POINTS for noise in noises)
    parts = []
    for m, noise in zip(family, noises, strict=True):
        part = privacy_loss_distribution.from_gaussian_mechanism(
            noise,
            pessimistic_estimate=True,
            value_discretization_interval=interval,
            sampling_prob=m.q,
            use_connect_dots=True,
        )
        parts.append(part.self_compose(m.times) if m.times > 1 else part)
    composed = reduce(lambda first, second: first.compose(second), parts)
    return np.asarray(composed.get_delta_for_epsilon(LOSSES))


def epsilon_of_curve(family: tuple[SampledGaussian, ...], scale: float, delta: float) -> float:
    events = [(GaussianDpEvent(scale * m.noise_multiplier), m) for m in family]
    releases = [(event if m.q == 1 else PoissonSampledDpEvent(m.q, event), m.times) for event, m in events]
    return sound_epsilon(tuple(releases), delta)

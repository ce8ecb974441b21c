"""Intervals of a difference, measured minus claimed. Verdicts follow from them.

Runs of one setting with different seeds are independent draws of a normal distribution with unknown mean and standard
deviation. Let n runs have the mean m and the standard deviation s (n - 1 in its denominator), and let c be the claim.

- c is the mean of k runs: m - c plus or minus t s sqrt(1/n + 1/k), with n - 1 degrees of freedom. This is a prediction
  interval (Patil, Peng and Leek 2016). No paper gives the spread of its runs. The measured spread stands in for it.
- c is a single run: the same with k = 1.
- c is the best of k runs: the best of k further runs, by the distribution of (maximum of k - m) / s. See `best`.
- c is the difference of the bests of two settings, k runs each: the same of k further runs of each setting, by draws of
  these two distributions. See `bests_less_claim`.
- c is the difference of the means of two settings, k runs each: the variance is
  s_1^2 (1/n_1 + 1/k) + s_2^2 (1/n_2 + 1/k), with the degrees of freedom of Welch and Satterthwaite.
- c is a threshold or an order: a statement about means, so that 1/k is left out (Student's and Welch's intervals).
- c is a ratio of positive numbers: the difference of their logarithms, so that means are geometric.

Claim and measurement are equivalent if the interval at `EQUIVALENCE` lies within the margin: two one-sided tests at 5%
each (TOST; Schuirmann 1987). A claim is contradicted if it lies outside the interval at `LEVEL`.

Runs of one seed share their data, first weights and batches. Their correlation over the seeds is 0.06 in the mean on
MNIST and 0.10 on FashionMNIST (1,563 pairs of settings with five common seeds or more, November 2026). Runs of two
settings are therefore treated as independent, which makes intervals wider by about 5%.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

import numpy as np
import scipy  # its modules are imported at their first use
from numpy.typing import NDArray

LEVEL = 0.95  # confidence of the intervals on the pages; a claim outside of one is contradicted
EQUIVALENCE = 0.90  # confidence of the interval that has to lie within the margin
MOST_RUNS = 1000  # the largest number of runs that is proposed
_DRAWS = 2000  # of a bootstrap
_PAIRS = 100_000  # draws of a difference of bests
_NODES = 64  # of each quadrature


@dataclass(frozen=True)
class Interval:
    """The ends of an interval of a difference, with some confidence."""

    low: float
    high: float

    def within(self, margin: float) -> bool:
        """Return True if all of it is at most `margin` from zero."""
        return -margin <= self.low and self.high <= margin

    def less(self, number: float) -> "Interval":
        """Subtract a number from both ends."""
        return Interval(self.low - number, self.high - number)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a run about its setting's mean, and the degrees of freedom of this estimate."""

    std: float
    freedom: int


@dataclass(frozen=True)
class Mean:
    """The mean of some runs of one setting, their number and their spread."""

    value: float
    runs: int
    spread: Spread

    def of(self, runs: int) -> "Mean":
        """Return the same mean and standard deviation with another number of runs."""
        return Mean(self.value, runs, Spread(self.spread.std, runs - 1))


def measured_mean(values: Sequence[float]) -> Mean:
    """Compute the mean of two or more runs, with their own spread."""
    return Mean(fmean(values), len(values), Spread(stdev(values), len(values) - 1))


def stdev(values: Sequence[float]) -> float:
    """Compute the standard deviation, with n - 1 in the denominator, faster than Python's exact one."""
    return float(np.std(values, ddof=1))


def typical(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Estimate the spread that most settings have, from the runs of each; None if no setting has two runs.

    It is the median of the settings' standard deviations, each weighted with its k degrees of freedom. A deviation is
    divided by the median of sqrt(chi2_k / k), so that normal runs have an unbiased median. The few settings that train
    under some seeds only would decide a pooled variance. A median is less precise, so half of the degrees of freedom
    count.
    """
    several = [(values, len(values) - 1) for values in groups if len(values) > 1]
    deviations = sorted((stdev(values) / math.sqrt(scipy.stats.chi2.median(k) / k), k) for values, k in several)
    if not deviations:
        return None
    below = np.cumsum([k for _, k in deviations])
    freedom = int(below[-1])
    return Spread(deviations[int(np.searchsorted(below, freedom / 2, side="right"))][0], max(1, freedom // 2))


def less_claim(means: Sequence[Mean], claimed: float, runs: int | None, level: float = LEVEL) -> Interval:
    """Compute the interval of a mean, or of the first mean minus the second, minus a claim.

    `runs` is the number of runs behind each claimed mean; None if the claim is an exact number, as a threshold is.
    """
    variances = [mean.spread.std**2 * (1 / mean.runs + (1 / runs if runs else 0)) for mean in means]
    total = sum(variances)
    squares = sum(part**2 / mean.spread.freedom for part, mean in zip(variances, means, strict=True))
    half = float(scipy.special.stdtrit(total**2 / squares, (1 + level) / 2)) * math.sqrt(total) if total else 0.0
    middle = means[0].value - sum(mean.value for mean in means[1:]) - claimed
    return Interval(middle - half, middle + half)


def mean_of(values: Sequence[float]) -> Interval:
    """Compute Student's interval of the mean of a setting's two or more runs."""
    return less_claim([measured_mean(values)], 0.0, None)


def difference(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Compute Welch's interval of the difference of two means, first minus second, of two or more runs each."""
    return less_claim([measured_mean(first), measured_mean(second)], 0.0, None)


def best_less_claim(mean: Mean, claimed: float, runs: int, level: float = LEVEL) -> Interval:
    """Compute the interval of the best of `runs` further runs of the same setting, minus the claim."""
    tail = (1 - level) / 2
    quantiles = [best(runs, mean.runs, mean.spread.freedom, p) for p in (tail, 1 - tail)]
    low, high = (mean.value + mean.spread.std * quantile - claimed for quantile in quantiles)
    return Interval(low, high)


def bests_less_claim(first: Mean, second: Mean, claimed: float, runs: int, level: float = LEVEL) -> Interval:
    """Compute the interval of a difference of bests minus a claim, each best of `runs` further runs of a setting.

    Let T_i be (maximum of k new values - m_i) / s_i, as in `best`. The difference of the new bests is then
    m_1 - m_2 + s_1 T_1 - s_2 T_2 with independent T_1 and T_2. Its quantiles are read off 100,000 pairs of draws, the
    same in every call.

    >>> bests_less_claim(Mean(64.0, 5, Spread(0.0, 4)), Mean(60.0, 5, Spread(0.0, 4)), 3.0, 5)
    Interval(low=1.0, high=1.0)
    """
    bests = [
        mean.value + mean.spread.std * _further_bests(runs, mean.runs, mean.spread.freedom, place)
        for place, mean in enumerate((first, second))
    ]
    return between(bests[0] - bests[1], level).less(claimed)


@lru_cache
def _further_bests(runs: int, measured: int, freedom: int, place: int) -> NDArray[np.float64]:
    """Draw (maximum of `runs` new values - m) / s, with m and s as in `best`: [draws]. `place` seeds the draws."""
    dice = np.random.default_rng(place)
    maximum = dice.normal(size=(_PAIRS, runs)).max(1)
    mean = dice.normal(size=_PAIRS) / math.sqrt(measured)
    bests: NDArray[np.float64] = (maximum - mean) / np.sqrt(dice.chisquare(freedom, _PAIRS) / freedom)
    return bests


@lru_cache
def best(runs: int, measured: int, freedom: int, probability: float) -> float:
    """Compute the quantile of (maximum of `runs` new values - m) / s, for values from one normal distribution.

    The mean m has `measured` values. The standard deviation s has `freedom` degrees of freedom. Given m and s, the
    new maximum is below m + q s with probability Phi(m + q s)^runs for the standard normal. This is averaged over
    m ~ N(0, 1/measured) and freedom s^2 ~ chi-squared, by Gauss-Legendre quadrature over their quantiles. For one run
    the result is Student's t quantile times sqrt(1 + 1/measured).
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    places, weights = (nodes + 1) / 2, weights / 2
    means = scipy.stats.norm.ppf(places)[:, None] / math.sqrt(measured)
    spreads = np.sqrt(scipy.stats.chi2.ppf(places, freedom) / freedom)[None, :]
    joint = weights[:, None] * weights[None, :]

    def excess(q: float) -> float:
        return float((joint * scipy.stats.norm.cdf(means + q * spreads) ** runs).sum()) - probability

    return float(scipy.optimize.brentq(excess, -1e3, 1e3, xtol=1e-9))


def redrawn(
    statistic: Callable[[NDArray[np.float64]], float], means: Sequence[float], errors: Sequence[float]
) -> NDArray[np.float64]:
    """Compute a statistic of settings' means for draws of these means with their standard errors: [draws], sorted.

    This is a parametric bootstrap. The draws are the same in every call.
    """
    noise = np.random.default_rng(0).normal(size=(_DRAWS, len(means)))
    return np.sort([statistic(row) for row in np.asarray(means) + np.asarray(errors) * noise])


def more_runs(decided: Callable[[int], bool], have: int) -> int | None:
    """Find the number of runs that would decide, with the present mean and spread; None if no number would.

    Args:
        decided: returns True if a number of runs would; it then does so for larger numbers, too.
        have: the present number.
    """
    if not decided(MOST_RUNS):
        return None
    return bisect_left(range(MOST_RUNS), True, lo=have + 1, key=decided)


def between(draws: NDArray[np.float64], level: float) -> Interval:
    """Compute the interval between quantiles of draws that has a share `level` of them."""
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(low), float(high))


def pareto(curves: Iterable[tuple[Sequence[float], Sequence[float]]]) -> list[tuple[float, float]]:
    """Of points given as (epsilons, accuracies) a curve, those more accurate than all that cost no more.

    >>> pareto([([1.0, 2.0, 3.0], [50.0, 40.0, 70.0]), ([0.5, 2.5, 3.0], [30.0, 60.0, 69.0])])
    [(0.5, 30.0), (1.0, 50.0), (2.5, 60.0), (3.0, 70.0)]
    """
    points = sorted((epsilon, -accuracy) for curve in curves for epsilon, accuracy in zip(*curve, strict=True))
    front: list[tuple[float, float]] = []
    for epsilon, negative in points:
        if not front or -negative > front[-1][1]:
            front.append((epsilon, -negative))
    return front


def summarise(values: Sequence[float]) -> dict[str, float | None]:
    """Compute mean, standard deviation with n - 1 in the denominator, minimum, median and maximum.

    All are None without values. So is the standard deviation of one value, or if a value is not finite.
    """
    if not values:
        return dict.fromkeys(("mean", "std", "min", "median", "max"))
    array = np.asarray(values, dtype=float)
    std = float(array.std(ddof=1)) if len(array) > 1 and np.isfinite(array).all() else None
    numbers = {"mean": array.mean(), "std": std, "min": array.min(), "median": np.median(array), "max": array.max()}
    return {name: None if value is None else float(value) for name, value in numbers.items()}

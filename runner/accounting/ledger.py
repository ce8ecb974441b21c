"""The record of every noisy release that used private data, and its conversion to Poisson-sampled Gaussians.

All accountants of this package support the Poisson-sampled Gaussian.
"""

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import dp_accounting
import numpy as np
from dp_accounting import gaussian_mechanism
from scipy import stats

from runner.config import ConfigError
from runner.terminal import number

Releases: TypeAlias = tuple[tuple[dp_accounting.DpEvent, int], ...]
"""(event, how many times), equal events merged, in order of first appearance."""


class Ledger:
    """Every noisy release that used private data, and the charge for it in the paper's accounting.

    The two differ if a paper's accounting does not hold. A step that is rejected still used the data (actual), but the
    paper charges nothing for it (claimed).
    """

    def __init__(self) -> None:
        self._actual: dict[dp_accounting.DpEvent, int] = {}
        self._claimed: dict[dp_accounting.DpEvent, int] = {}

    def release(
        self,
        actual: dp_accounting.DpEvent,
        claimed: dp_accounting.DpEvent | None,
        count: int = 1,
        claimed_count: int | None = None,
    ) -> None:
        """Record one kind of release.

        Args:
            actual: the event that happened; always recorded.
            claimed: the event that the paper's accounting charges for; None charges nothing.
            count: how many times `actual` happened.
            claimed_count: how many times `claimed` is charged; `count` if None.

        Raises:
            ValueError: a count is not a whole number >= 0, or `claimed_count` is given without `claimed`.
            TypeError: an event is not a `dp_accounting.DpEvent`.
        """
        if claimed is None and claimed_count is not None:
            raise ValueError(f"Expected claimed_count=None when claimed is None, got {claimed_count}.")
        count = _whole("count", count)
        charged = count if claimed_count is None else _whole("claimed_count", claimed_count)
        for name, event in (("actual", actual), ("claimed", claimed)):
            if not isinstance(event, dp_accounting.DpEvent) and not (name == "claimed" and event is None):
                raise TypeError(f"Expected {name} to be a dp_accounting.DpEvent, got {event!r}.")
        if count:
            self._actual[actual] = self._actual.get(actual, 0) + count
        if claimed is not None and charged:
            self._claimed[claimed] = self._claimed.get(claimed, 0) + charged

    def add(self, other: "Ledger", times: int = 1) -> None:
        """Record all of another ledger, `times` times."""
        for mine, theirs in ((self._actual, other._actual), (self._claimed, other._claimed)):
            for event, count in theirs.items() if times else ():
                mine[event] = mine.get(event, 0) + times * count

    @property
    def actual(self) -> Releases:
        return tuple(self._actual.items())

    @property
    def claimed(self) -> Releases:
        return tuple(self._claimed.items())


def _whole(name: str, value: int) -> int:
    """Return a value as an integer.

    Raises:
        ValueError: it is not a whole number >= 0.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"Expected {name} to be a whole number, got {value!r}.") from None
    if number < 0:
        raise ValueError(f"Expected {name} >= 0, got {number}.")
    return number


def gaussian(noise_multiplier: float, sampling_rate: float | None = None) -> dp_accounting.DpEvent:
    """Return the event of Gaussian noise, on a Poisson sample if there is a rate; without noise nothing is private."""
    if noise_multiplier == 0:
        return dp_accounting.NonPrivateDpEvent()
    noise = dp_accounting.GaussianDpEvent(noise_multiplier)
    return noise if sampling_rate is None else dp_accounting.PoissonSampledDpEvent(sampling_rate, noise)


_MOST = 10**15  # steps and examples; the counts of SciPy and NumPy have 63 bits


class TrainingLoop(NamedTuple):
    """How DP-SGD draws batches.

    Attributes:
        sampling_rate: the probability with which an example joins a Poisson batch.
        steps: the number of batches.
        epochs: the number of passes over shuffled data; None: batches are Poisson samples.
    """

    sampling_rate: float
    steps: int
    epochs: int | None = None

    def releases(self, noise_multiplier: float) -> Releases:
        """Return the events of DP-SGD with the same noise at all steps.

        A Poisson batch is a sampled Gaussian. In one pass over shuffled data an example is in one batch at most, so a
        pass is one Gaussian without amplification. That holds for neighbours of which one has a zero in place of the
        example (see `runner.mechanism.dp_sgd`).

        Args:
            noise_multiplier: the noise's standard deviation over the sensitivity of a sum.

        >>> TrainingLoop(0.25, steps=8, epochs=2).releases(1.5)
        ((GaussianDpEvent(noise_multiplier=1.5), 2),)
        """
        noise = dp_accounting.GaussianDpEvent(noise_multiplier)
        if self.epochs is not None:
            return ((noise, self.epochs),)
        return ((dp_accounting.PoissonSampledDpEvent(self.sampling_rate, noise), self.steps),)


def training_loop(
    *,
    sampling_rate: float | None = None,
    batch_size: int | None = None,
    examples: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    shuffled: bool = False,
) -> TrainingLoop:
    """Return the loop that these numbers describe. An epoch has examples / batch size steps, rounded up, as loaders do.

    Args:
        sampling_rate: from 1e-15 to 1, in place of the batch size and the number of examples.
        batch_size: the expected one, if batches are Poisson samples.
        examples: the number of training examples.
        steps: the number of batches, in place of epochs.
        epochs: passes over the data.
        shuffled: True if batches are parts of the shuffled data, False if they are Poisson samples.

    Raises:
        ConfigError: a number is missing, given twice or out of range.

    >>> training_loop(batch_size=256, examples=60_000, epochs=60)
    TrainingLoop(sampling_rate=0.004266666666666667, steps=14100, epochs=None)
    """
    if (sampling_rate is None) == (batch_size is None and examples is None):
        raise ConfigError("Give the batch size and the number of examples, or the sampling rate in place of both.")
    if sampling_rate is None and (batch_size is None or examples is None):
        raise ConfigError("Give both the batch size and the number of examples, from which the sampling rate follows.")
    if (epochs is None) == (steps is None):
        raise ConfigError("Give the number of epochs or of steps.")
    whole = {"batch size": batch_size, "number of examples": examples, "number of steps": steps}
    for name, value in {**whole, "number of epochs": epochs}.items():
        if value is not None and not (1 <= value <= _MOST and value == int(value)):
            raise ConfigError(f"A {name} of {value} is no whole number from 1 to {_MOST:.0e}.")
    if batch_size is not None and examples is not None:
        if batch_size > examples:
            raise ConfigError(f"A batch size of {batch_size} is more than {examples} examples.")
        sampling_rate, in_epoch = batch_size / examples, math.ceil(examples / batch_size)
    else:
        assert sampling_rate is not None
        if not 1 / _MOST <= sampling_rate <= 1:
            raise ConfigError(f"A sampling rate of {sampling_rate:g} is not from {1 / _MOST:g} to 1.")
        in_epoch = math.ceil(round(1 / sampling_rate, 6))
    count = int(steps or (epochs or 0) * in_epoch)
    if count > _MOST:
        raise ConfigError(f"These are more than {_MOST:.0e} steps, too many to account for.")
    return TrainingLoop(sampling_rate, count, math.ceil(count / in_epoch) if shuffled else None)


def check_delta(delta: float, examples: int | None = None) -> None:
    """Check that a delta is a probability, and not so large that it allows publishing one of the training examples.

    Publishing every example with probability delta, independently of the others, is (0, delta)-differentially private,
    and publishes delta N examples in the mean: from a delta of 1/N, no epsilon protects all of them (Dwork and Roth,
    The Algorithmic Foundations of Differential Privacy, 2014, section 2.3).

    Raises:
        ConfigError: it is not.
    """
    if not 0 < delta < 1:
        raise ConfigError(f"delta={delta:g} is not above 0 and below 1.")
    if examples is not None and delta * examples >= 1:
        raise ConfigError(
            f"delta={delta:g} is not below 1/N for N = {examples:,} training examples: so large a δ allows publishing "
            f"one of them. Choose less than {number(1 / examples, bound='lower')}."
        )


_LARGEST_EXACT_MU = 1e3
_NO_NOISE = 1e-9  # a noise multiplier that hides nothing; far below it, 1 / noise^2 overflows
_MOST_NOISE = 1e100  # more is charged as this, as noise^2 would overflow


class SampledGaussian(NamedTuple):
    """`times` sums over Poisson batches of rate `q` in (0, 1], noise std noise_multiplier x sensitivity."""

    q: float
    noise_multiplier: float
    times: int


def sampled_gaussians(releases: Releases, delta: float) -> list[SampledGaussian] | None:
    """Return the private releases with equal mechanisms merged, or None if one of them has no privacy.

    q = 1 stands for the unsampled Gaussian. Releases that reveal nothing (NoOp, q = 0, infinite noise, count 0)
    are left out. A noise multiplier below 1e-9 counts as none, so that epsilon is infinite: an upper bound.

    Raises:
        ValueError: `delta` is outside (0, 1), or an event has a number out of range or an unknown type. Known are
            NoOpDpEvent, NonPrivateDpEvent, GaussianDpEvent and PoissonSampledDpEvent of a Gaussian.
    """
    if not 0 < delta < 1:
        raise ValueError(f"Expected delta in (0, 1), got {delta!r}.")
    merged: dict[tuple[float, float], int] = {}
    private = True
    for event, times in releases:
        count = _whole(f"the count of {event!r}", times)
        q, noise_multiplier = _parameters(event)
        if count == 0 or q == 0 or noise_multiplier == math.inf:
            continue
        if noise_multiplier < _NO_NOISE:
            private = False
        merged[q, noise_multiplier] = merged.get((q, noise_multiplier), 0) + count
    return [SampledGaussian(q, nm, count) for (q, nm), count in merged.items()] if private else None


def _parameters(event: dp_accounting.DpEvent) -> tuple[float, float]:
    """Return (sampling rate, noise multiplier); a non-private event is a Gaussian without noise."""
    q, inner = 1.0, event
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        q, inner = float(event.sampling_probability), event.event
        if not 0 <= q <= 1:
            raise ValueError(f"Expected a sampling probability in [0, 1], got {q} in {event!r}.")
    if isinstance(inner, dp_accounting.NoOpDpEvent):
        return q, math.inf
    if isinstance(inner, dp_accounting.NonPrivateDpEvent):
        return q, 0.0
    if isinstance(inner, dp_accounting.GaussianDpEvent):
        noise_multiplier = float(inner.noise_multiplier)
        if not noise_multiplier >= 0:
            raise ValueError(f"Expected a noise multiplier >= 0, got {noise_multiplier} in {event!r}.")
        return q, noise_multiplier if noise_multiplier == math.inf else min(noise_multiplier, _MOST_NOISE)
    raise ValueError(
        f"Expected Gaussian, Poisson-sampled Gaussian, NonPrivate or NoOp events as releases, got {event!r}."
    )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of distinguishing N(0, 1) from N(mu, 1); T Gaussian releases give mu^2 = T / sigma^2.

    It is the smallest eps >= 0 with Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) <= delta (Balle and Wang,
    ICML 2018, theorem 8), exact to 1e-12. Beyond mu = 1000, e^eps costs it its digits. There the result is the
    zCDP bound mu^2/2 + mu sqrt(2 ln(1/delta)) (Bun and Steinke, TCC 2016, proposition 1.3). The bound is at most
    1% larger for delta >= 1e-10.
    """
    if mu == 0:
        return 0.0
    if mu > _LARGEST_EXACT_MU:
        return mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    with np.errstate(divide="ignore"):  # it takes the logarithm of a difference that may be zero
        return float(gaussian_mechanism.get_epsilon_gaussian(1 / mu, delta))


def counting_epsilon(mechanisms: Sequence[SampledGaussian], delta: float) -> float:
    """Return a closed-form upper bound on epsilon that never fails, for any noise, rate and number of releases.

    Derivation. Fix the sampling coins of the record in question. Release t then either holds it (a Gaussian
    mechanism with mu_t = 1/sigma_t) or reveals nothing about it. So the whole run is a Gaussian mechanism with
    mu^2 = sum_i K_i / sigma_i^2. Here K_i ~ Binomial(T_i, q_i) counts the coins that came up. The coins are
    independent of earlier outputs, and the hockey-stick divergence is jointly convex. So in both directions

        delta(eps) <= E_K[ delta_Gauss(eps; mu(K)) ] <= delta_Gauss(eps; mu(k)) + sum_i Pr(K_i > k_i).

    Half of delta pays for the tails Pr(K_i > k_i), the other half for the Gaussian. If nothing is sampled there
    is no tail. The bound then uses all of delta and is exact. It is also never worse than ignoring the sampling,
    k_i = T_i, with all of delta.
    """
    sampled = sum(m.q < 1 for m in mechanisms)
    unamplified = gaussian_epsilon(_mu([m.times for m in mechanisms], mechanisms), delta)
    if not sampled:
        return unamplified
    tail = delta / 2 / sampled
    counts = [m.times if m.q == 1 else int(stats.binom.isf(tail, m.times, m.q)) for m in mechanisms]
    return min(unamplified, gaussian_epsilon(_mu(counts, mechanisms), delta / 2))


def _mu(counts: list[int], mechanisms: Sequence[SampledGaussian]) -> float:
    return math.hypot(*(math.sqrt(k) / m.noise_multiplier for k, m in zip(counts, mechanisms, strict=True)))

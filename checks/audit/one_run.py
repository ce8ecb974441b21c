"""Lower bounds on epsilon from one run, with k canaries that joined it independently with probability 1/2.

The auditor ranks the canaries by scores, and guesses of the r surest whether they joined. The number r is chosen on
simulated scores, so the real ones choose only which canaries are guessed. Let v guesses be right. Two bounds follow.
Neither assumes that canaries are independent of each other.

`approximate_dp` (Steinke, Nasr and Jagielski, 2023) holds for every mechanism. If the run is (epsilon, delta)-DP, the
guesses are as good as r coins of probability p = e^epsilon / (1 + e^epsilon), but for a failure by delta:

    P(v or more are right) <= P(B >= v) + k delta max_i 2/i P(v > B >= v - i),    B ~ Binomial(r, p).

`charged_curve` (Mahloujifar, Melis and Chaudhuri, 2024, algorithm 3) tests the trade-off curve of a mechanism: let G(b)
be the least false positives that it allows a test with true positives b. G is convex and grows. Write p_j for the
probability of j right guesses, and

    right_i = sum_{j >= i} p_j j / k,    wrong_i = sum_{j >= i} p_j (r - j) / k.

These are the probabilities that a canary, drawn at random, is guessed rightly, or wrongly, in a run with at least i
right guesses. Take "canary c is guessed as in, and i or more others rightly" as a test of c, for fixed coins of the
others. If c is in, it is a right guess among i + 1 or more. If c is out, it is a wrong one, with i or more right ones.
The same holds for guesses of out. So wrong_i >= G(right_{i+1}), after averaging, as G is convex. By their definition,

    right_i = right_{i+1} + i / (r - i) (wrong_i - wrong_{i+1}),    right_0 + wrong_0 = r / k.

Let v or more be right with a probability above p. Start from right_v = p v / k and wrong_v = p (r - v) / k, and take
the least wrong_i = max(wrong_{i+1}, G(right_{i+1})) from i = v - 1 down to 0. The sum right_0 + wrong_0 is then at most
the true one, r / k. (The true start has D >= 0 more in right_v. Where it has less in wrong_v, this is at most D.
Summation by parts, with i / (r - i) growing in i, shows by induction that right_i stays D larger and wrong_i at most D
smaller.) So a sum above r / k refutes the curve, with the chance of error p. The curves are those of the ledger's
releases with noise of s times the charged noise, as in `bounds.lower_bounds`. The bound is the sound epsilon at the
smallest refuted s.

A ceiling is what the same estimator gives for exact scores: those of the Gaussian mechanism that the ledger charges,
with as many canaries and steps (`canaries.exact`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from checks.audit.bounds import LOSSES, Array, curve, epsilon_of_refuted
from runner.accounting.ledger import SampledGaussian

Allowed = Callable[[float], float]  # from the true positives of a test to its least false positives
SHARES = (0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2)
_LOG_SCALES = (-2.5, 1.5)  # of the noise


@dataclass(frozen=True)
class Guesses:
    """Of `canaries`, `guessed` get a guess, of which `right` are right."""

    canaries: int
    guessed: int
    right: int


def guess(scores: Array, joined: Array, guessed: int) -> Guesses:
    """Guess the `guessed` canaries with the largest scores in absolute value: in if it is positive, else out.

    Args:
        scores: log-likelihood ratios of in to out, [canaries].
        joined: [canaries], truth values.

    >>> guess(np.array([3.0, -2.0, 0.1]), np.array([True, True, False]), 2)
    Guesses(canaries=3, guessed=2, right=1)
    """
    surest = np.argsort(-np.abs(scores), kind="stable")[:guessed]
    return Guesses(len(scores), guessed, int(((scores > 0) == joined)[surest].sum()))


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Bound the probability of so many right guesses from above, if the run is (epsilon, delta)-DP."""
    guessed, right = guesses.guessed, guesses.right
    coins = binom(guessed, 1 / (1 + math.exp(-epsilon)))
    below = coins.cdf(right - 1) - coins.cdf(right - 1 - np.arange(1, right + 1))  # P(v > B >= v - i)
    failing = float((2 / np.arange(1, right + 1) * below).max()) if right else 0.0
    return min(1.0, float(coins.sf(right - 1)) + guesses.canaries * delta * failing)


def approximate_dp(guesses: Guesses, delta: float, error: float) -> float:
    """Compute the largest epsilon that is refuted, to four digits, or 0 if none is.

    >>> round(approximate_dp(Guesses(1000, 100, 100), 1e-5, 0.05), 2)
    3.19
    """
    if p_value(guesses, 0.0, delta) > error:
        return 0.0
    low, high = 0.0, 1.0
    while p_value(guesses, high, delta) <= error:
        low, high = high, 2 * high
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(guesses, middle, delta) <= error else (low, middle)
    return low


def refuted(guesses: Guesses, allowed: Allowed, error: float) -> bool:
    """Return True if so many right guesses have a probability of at most `error` under the curve: see above."""
    k, guessed, right = guesses.canaries, guesses.guessed, guesses.right
    hits, misses = error * right / k, error * (guessed - right) / k
    for i in range(right - 1, -1, -1):
        least = max(misses, allowed(min(1.0, hits)))
        if least > misses:
            hits += i / (guessed - i) * (least - misses)
            misses = least
        if hits + misses > guessed / k:
            return True
    return False


def allowed_by(family: tuple[SampledGaussian, ...], scale: float) -> Allowed:
    """Return the trade-off curve of releases with noise of `scale` times theirs, from a pessimistic delta(epsilon).

    A test with false positives a and true ones b has b <= e^e a + delta(e) and 1 - a <= e^e (1 - b) + delta(e), e >= 0.
    """
    deltas, shrunk, grown = curve(family, scale), np.exp(-LOSSES), np.exp(LOSSES)

    def least(true: float) -> float:
        forward = ((true - deltas) * shrunk).max()
        backward = (1 - deltas - grown * (1 - true)).max()
        return max(0.0, float(forward), float(backward))

    return least


def charged_curve(guesses: Guesses, family: tuple[SampledGaussian, ...], delta: float, error: float) -> float:
    """Compute the sound epsilon at the least refuted noise, or 0 if none is refuted."""

    def is_refuted(scale: float) -> bool:
        return refuted(guesses, allowed_by(family, scale), error)

    return epsilon_of_refuted(is_refuted, family, delta, *_LOG_SCALES)

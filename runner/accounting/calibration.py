"""The inverse of accounting: the least noise, or the most steps, that a privacy budget allows."""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from runner.accounting.ledger import Releases

_SMALLEST_NOISE = 1e-4
_LARGEST_NOISE = 1e6


class Accountant(Protocol):
    """A function from releases to epsilon at a delta."""

    def epsilon(self, releases: Releases, delta: float) -> float: ...


def calibrate_noise_multiplier(
    accountant: Accountant,
    releases_for: Callable[[float], Releases],
    target_epsilon: float,
    delta: float,
    tolerance: float = 1e-4,
) -> float:
    """Return the smallest noise multiplier whose epsilon is at most `target_epsilon`, at most `tolerance` above it.

    Brackets and bisects by powers of two, always on the side with epsilon <= `target_epsilon`. Let 2^-m be the largest
    power of two up to `tolerance`. The result is the least multiple of 2^-m that meets the budget. It is an exact
    float, and the same on machines whose accountants differ in the last digits of epsilon. It could move by 2^-m only
    if epsilon at one of these multiples equals the budget to within such digits.

    Args:
        accountant: anything with `epsilon(releases, delta)`, not increasing in the noise multiplier.
        releases_for: the releases of the whole run at a given noise multiplier.
        target_epsilon: the budget, > 0.
        delta: in (0, 1).
        tolerance: absolute, in units of the noise multiplier, > 0.

    Raises:
        ValueError: `target_epsilon` or `tolerance` is not > 0, or no noise multiplier in [1e-4, 1e6] is the
            smallest that meets the budget.
    """
    if not 0 < target_epsilon < math.inf:
        raise ValueError(f"Expected target_epsilon > 0 and finite, got {target_epsilon}.")
    if not 0 < tolerance < math.inf:
        raise ValueError(f"Expected tolerance > 0 and finite, got {tolerance}.")

    def within(noise_multiplier: float) -> bool:
        return accountant.epsilon(releases_for(noise_multiplier), delta) <= target_epsilon

    high = 1.0
    while not within(high):
        high *= 2
        if high > _LARGEST_NOISE:
            raise ValueError(
                f"Expected a reachable target_epsilon, but no noise multiplier up to {_LARGEST_NOISE:g} gives"
                f" epsilon <= {target_epsilon} at delta={delta} under {type(accountant).__name__}."
            )
    low = high / 2
    while within(low):
        high, low = low, low / 2
        if low < _SMALLEST_NOISE:
            raise ValueError(
                f"Expected a target_epsilon that needs noise, but a noise multiplier of {high:g} gives"
                f" epsilon <= {target_epsilon} at delta={delta} under {type(accountant).__name__}."
            )
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return high


def last_within(
    accountant: Accountant,
    releases_after: Callable[[int], Releases],
    budget: float,
    delta: float,
    limit: int,
) -> int:
    """Return the largest n <= `limit` with epsilon(releases_after(n)) <= `budget`, or 0 if there is none.

    Args:
        accountant: anything with `epsilon(releases, delta)`.
        releases_after: the releases after n steps (or epochs, or attempts); n never adds less than n - 1 does.
        budget: epsilon >= 0.
        delta: in (0, 1).
        limit: the number of steps at which the search ends, >= 0.

    Raises:
        ValueError: `budget` or `limit` is negative.
    """
    if not budget >= 0:
        raise ValueError(f"Expected budget >= 0, got {budget}.")
    if limit < 0:
        raise ValueError(f"Expected limit >= 0, got {limit}.")
    return bisect_left(
        range(1, limit + 1), True, key=lambda n: not accountant.epsilon(releases_after(n), delta) <= budget
    )

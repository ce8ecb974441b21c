"""The inverse of accounting: the least noise, or the most steps, that a privacy budget allows."""

import itertools
import math
import time
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from typing import Protocol

from runner.accounting.ledger import Releases

_SMALLEST_NOISE = 1e-4
LARGEST_NOISE = 1e6
PATIENCE = 60.0  # seconds of a search, after which it is given up


class Accountant(Protocol):
    """A function from releases to epsilon at a delta."""

    def epsilon(self, releases: Releases, delta: float) -> float: ...


def epsilon_by(accountant: Accountant, releases: Releases, delta: float) -> float:
    """Return an accountant's epsilon, which is 0 or greater, perhaps infinite.

    Raises:
        ValueError: it is no such number, or the accountant fails. It may be anybody's.
    """
    try:
        returned = accountant.epsilon(releases, delta)
    except ValueError:
        raise
    except Exception as error:  # any error of a user's code
        raise ValueError(f"{type(accountant).__name__}: {type(error).__name__}: {error}") from error
    try:
        epsilon = float(returned)
    except (TypeError, ValueError):
        epsilon = math.nan
    if not epsilon >= 0:
        raise ValueError(f"Expected {type(accountant).__name__} to give an epsilon of 0 or greater, got {returned!r}.")
    return epsilon


def _timed(accountant: Accountant) -> Callable[[Releases, float], float]:
    """Return `epsilon_by` of an accountant, which raises ValueError once `PATIENCE` is over."""
    end = time.monotonic() + PATIENCE

    def epsilon(releases: Releases, delta: float) -> float:
        if time.monotonic() > end:
            raise ValueError(
                f"{type(accountant).__name__} was asked for {PATIENCE:g} seconds how much privacy costs, and it is not "
                "known yet: choose fewer epochs, or accountant=rdp, which is faster."
            )
        return epsilon_by(accountant, releases, delta)

    return epsilon


def calibrate_noise_multiplier(
    accountant: Accountant,
    releases_for: Callable[[float], Releases],
    target_epsilon: float,
    delta: float,
    tolerance: float = 1e-4,
) -> float:
    """Return the smallest noise multiplier whose epsilon is at most `target_epsilon`, at most `tolerance` above it.

    Let 2^-m be the largest power of two up to `tolerance`. The result is the least multiple of 2^-m that meets the
    budget: it does, and the multiple below does not. A bracket of powers of two gets smaller by interpolation, in the
    logarithms of noise and epsilon. Every third time it is halved instead. As epsilon does not increase with the noise,
    no result depends on the way there. The result is an exact float, and the same on machines whose accountants differ
    in the last digits of epsilon. It could move by 2^-m only if epsilon at one of these multiples equals the budget to
    within such digits.

    Args:
        accountant: anything with `epsilon(releases, delta)`, not increasing in the noise multiplier.
        releases_for: the releases of the whole run at a given noise multiplier.
        target_epsilon: the budget, > 0.
        delta: in (0, 1).
        tolerance: absolute, in units of the noise multiplier, > 0.

    Raises:
        ValueError: no noise multiplier in [1e-4, 1e6] is the smallest that meets the budget, or the search takes more
            than `PATIENCE`.
    """
    epsilon_of = _timed(accountant)

    @cache
    def epsilon(noise_multiplier: float) -> float:
        return epsilon_of(releases_for(noise_multiplier), delta)

    budget = f"epsilon <= {target_epsilon} at delta={delta} under {type(accountant).__name__}"
    high = 1.0
    while epsilon(high) > target_epsilon:
        high *= 2
        if high > LARGEST_NOISE:
            reachable = f"a reachable target_epsilon, but no noise multiplier up to {LARGEST_NOISE:g}"
            raise ValueError(f"Expected {reachable} gives {budget}. Choose a larger one.")
    low = high / 2
    while epsilon(low) <= target_epsilon:
        high, low = low, low / 2
        if low < _SMALLEST_NOISE:
            needed = f"a target_epsilon that needs noise, but a noise multiplier of {high:g}"
            raise ValueError(f"Expected {needed} gives {budget}. Choose a smaller one.")
    unit = 2.0 ** math.floor(math.log2(tolerance))
    for turn in itertools.count(1):
        if high - low <= tolerance:
            break
        above, within, share = epsilon(low), epsilon(high), 0.5
        if turn % 3 and above < math.inf and within > 0:  # the share of the way at which the target lies
            share = math.log(above / target_epsilon) / math.log(above / within)
        middle = unit * round(low * (high / low) ** share / unit)
        middle = min(max(middle, low + unit), high - unit)
        low, high = (low, middle) if epsilon(middle) <= target_epsilon else (middle, high)
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
        ValueError: the search takes more than `PATIENCE`.
    """
    epsilon_of = _timed(accountant)
    return bisect_left(range(1, limit + 1), True, key=lambda n: epsilon_of(releases_after(n), delta) > budget)

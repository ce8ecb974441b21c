"""The record of every noisy release that used private data."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping
from typing import TypeAlias

import dp_accounting

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
        count = whole("count", count)
        charged = count if claimed_count is None else whole("claimed_count", claimed_count)
        for name, event in (("actual", actual), ("claimed", claimed)):
            if not isinstance(event, dp_accounting.DpEvent) and not (name == "claimed" and event is None):
                raise TypeError(f"Expected {name} to be a dp_accounting.DpEvent, got {event!r}.")
        if count:
            self._actual[actual] = self._actual.get(actual, 0) + count
        if claimed is not None and charged:
            self._claimed[claimed] = self._claimed.get(claimed, 0) + charged

    def add(self, other: Ledger, times: int = 1) -> None:
        """Record all of another ledger, `times` times."""
        for mine, theirs in ((self._actual, other._actual), (self._claimed, other._claimed)):
            for event, count in theirs.items() if times else ():
                mine[event] = mine.get(event, 0) + times * count

    @property
    def actual(self) -> Releases:
        """Return the events that happened, as copies."""
        return _fresh(self._actual)

    @property
    def claimed(self) -> Releases:
        """Return the events that the paper's accounting charges for, as copies."""
        return _fresh(self._claimed)


def _fresh(charged: Mapping[dp_accounting.DpEvent, int]) -> Releases:
    return tuple((copy.deepcopy(event), count) for event, count in charged.items())


def whole(name: str, value: int) -> int:
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


def training_releases(noise_multiplier: float, sampling_rate: float, steps: int, epochs: int | None = None) -> Releases:
    """Return the events of DP-SGD with the same noise at all steps.

    A Poisson batch is a sampled Gaussian. In one pass over shuffled data an example is in one batch at most, so a pass
    is one Gaussian without amplification. That holds for neighbours of which one has a zero in place of the example
    (see `runner.mechanism.dp_sgd`).

    Args:
        noise_multiplier: the noise's standard deviation over the sensitivity of a sum.
        sampling_rate: the probability with which an example joins a Poisson batch.
        steps: the number of batches.
        epochs: the number of passes over shuffled data; None: batches are Poisson samples.

    >>> training_releases(1.5, 0.25, steps=8, epochs=2)
    ((GaussianDpEvent(noise_multiplier=1.5), 2),)
    """
    noise = dp_accounting.GaussianDpEvent(noise_multiplier)
    if epochs is not None:
        return ((noise, epochs),)
    return ((dp_accounting.PoissonSampledDpEvent(sampling_rate, noise), steps),)

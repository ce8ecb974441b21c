"""The worth of a trial epoch by epoch, and Hyperband, which stops trials that fall behind (Li et al., 2018).

At a rung, a trial goes on if it is among the best third of the trials of its bracket that have come so far. A rung is a
share of a trial's own epochs, so trials with different numbers of epochs are compared at the same share of their
budgets. A trial is compared only with trials that were suggested in earlier rounds. So no decision depends on the
number of processes, and a recorded trial is judged again as it was when it ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from runner.claims.statistics import pareto
from runner.records.files import rounded, upper_bound

ETA = 3  # one trial in three goes on at each rung

Row = Mapping[str, Any]  # of a run's history


@dataclass(frozen=True)
class Curve:
    """Sound epsilons and accuracies (percent) of the first epochs of a trial, and the number of all its epochs."""

    epsilons: tuple[float, ...]
    accuracies: tuple[float, ...]
    epochs: int

    @classmethod
    def of(cls, rows: Sequence[Row], epochs: int) -> Curve:
        """Return the curve of a history, with the digits that a record has."""
        recorded = [rounded({name: row.get(name) for name in ("epsilon_sound", "test_accuracy")}) for row in rows]
        epsilons = tuple(upper_bound(row["epsilon_sound"]) for row in recorded)
        return cls(epsilons, tuple(float(row["test_accuracy"]) for row in recorded), epochs)

    def until(self, epoch: int) -> Curve:
        """Return the curve of the first epochs."""
        return Curve(self.epsilons[:epoch], self.accuracies[:epoch], self.epochs)

    def accuracy_within(self, epsilon: float) -> float:
        """Return the accuracy after the last epoch within a sound epsilon, 0 if there is none."""
        pairs = zip(self.epsilons, self.accuracies, strict=True)
        return next((accuracy for spent, accuracy in reversed(list(pairs)) if spent <= epsilon), 0.0)

    def area(self, limit: float) -> float:
        """Return the mean of the best accuracy within epsilon, over epsilons from 0 to the limit (percent).

        It is the share of the hypervolume below the trial's own front.

        >>> Curve((1.0, 2.0, 5.0), (60.0, 90.0, 99.0), 3).area(4.0)  # (0 + 60 + 90 + 90) / 4
        60.0
        """
        front = [point for point in pareto([(self.epsilons, self.accuracies)]) if point[0] <= limit]
        steps = pairwise([*front, (limit, 0.0)])
        return sum(accuracy * (end - start) for (start, accuracy), (end, _) in steps) / limit


@dataclass(frozen=True)
class Judge:
    """Decides after each epoch whether a trial goes on: see `Job.goes_on`.

    Attributes:
        limit: a sound epsilon beyond which no epoch counts.
        front: whether a trial is worth the area below its front, instead of its accuracy within the limit.
        epochs: of the whole trial.
        rungs: epochs after which it is compared, each with the worth of the earlier trials there.
    """

    limit: float
    front: bool
    epochs: int
    rungs: tuple[tuple[int, tuple[float, ...]], ...] = ()

    def worth(self, curve: Curve) -> float:
        """Return the value of a trial so far, which is to be as large as possible."""
        return curve.area(self.limit) if self.front else curve.accuracy_within(self.limit)

    def beyond(self, curve: Curve) -> bool:
        """Return True if later epochs cannot count."""
        return curve.epsilons[-1] > self.limit

    def __call__(self, rows: Sequence[Row]) -> bool:
        """Return whether a trial goes on after these epochs."""
        return self.stays(Curve.of(rows, self.epochs))

    def stays(self, curve: Curve) -> bool:
        """Return whether a trial goes on after the epochs of a curve."""
        if self.beyond(curve):
            return False
        worth, epoch = self.worth(curve), len(curve.epsilons)
        compared = [earlier for rung, earlier in self.rungs if rung == epoch < self.epochs]
        return all(sum(other > worth for other in e) < max(1, (len(e) + 1) // ETA) for e in compared)

    def stopped(self, curve: Curve) -> bool:
        """Return True if the trial with this curve was stopped as it fell behind."""
        return not self.beyond(curve) and not self.stays(curve)

    def after(self, earlier: Sequence[Curve], number: int, most: int) -> Judge:
        """Return the judge of trial `number`, from 0, after the earlier trials.

        `most` is the number of epochs of the longest trial. With 0, nothing is compared.
        """
        if not most:
            return self
        bracket, rungs = bracket_of(number, most), []
        curves = [curve for place, curve in enumerate(earlier) if bracket_of(place, most) == bracket]
        for rung in (ETA**power for power in range(bracket, _brackets(most)) if ETA**power < most):
            ends = [(_epoch(rung, curve.epochs, most), curve) for curve in curves]
            reached = [curve.until(end) for end, curve in ends if len(curve.epsilons) >= end or self.beyond(curve)]
            rungs.append((_epoch(rung, self.epochs, most), tuple(map(self.worth, reached))))
        return Judge(self.limit, self.front, self.epochs, tuple(rungs))


def bracket_of(number: int, most: int) -> int:
    """Return the bracket of a trial, whose first rung is after `ETA**bracket` of at most `most` epochs.

    Brackets take turns in the numbers of trials that Hyperband gives them, those that stop trials early first.

    >>> [bracket_of(number, 9) for number in range(18)]
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 0]
    """
    count = _brackets(most)
    sizes = [math.ceil(count * ETA ** (count - 1 - place) / (count - place)) for place in range(count)]
    turns = [place for place, size in enumerate(sizes) for _ in range(size)]
    return turns[number % len(turns)]


def _brackets(most: int) -> int:
    return next(power for power in range(most + 1) if ETA ** (power + 1) > most) + 1


def _epoch(rung: int, epochs: int, most: int) -> int:
    """Return the epoch of a rung for a trial with fewer epochs than most."""
    return math.ceil(rung * epochs / most)

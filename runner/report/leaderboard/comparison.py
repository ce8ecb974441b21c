"""The best setting of each method at a bound on the sound epsilon, and its gain over plain DP-SGD."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from runner.claims.statistics import Interval, difference
from runner.report.leaderboard.entries import Entry
from runner.report.leaderboard.methods import ADDED, NAMES

FEW = 3  # runs, below which a mean is marked, and no best if others have more
SHOWN = (1.0, 3.0)  # the bounds of the page


@dataclass(frozen=True)
class Gain:
    """The difference of two mean accuracies, in points.

    Attributes:
        interval: Welch's 95% interval, or None if one of the two is a single run.
        alike: True if the settings of both were searched on held-out images.
    """

    points: float
    interval: Interval | None
    alike: bool


def gain_over(entry: Entry, plain: Entry | None) -> Gain | None:
    """Compare an entry with plain DP-SGD; None if there is none, or the neighbouring relation is another one."""
    if plain is None or entry.neighbours != plain.neighbours or entry == plain:
        return None
    several = min(len(entry.accuracies), len(plain.accuracies)) > 1
    interval = difference(entry.accuracies, plain.accuracies) if several else None
    return Gain(entry.mean - plain.mean, interval, entry.held_out and plain.held_out)


def settings_of(found: Iterable[Entry], method: str, dataset: str, epsilon: float) -> list[Entry]:
    """Return the settings of a method that may stand on the page, the one that does first.

    Searched settings come before others, so that methods are compared at equal effort. Settings whose updates the test
    images chose come last.
    """
    of = [e for e in found if (e.method, e.dataset, e.epsilon, e.neighbours) == (method, dataset, epsilon, ADDED)]
    return sorted(of, key=_place)


def _place(entry: Entry) -> tuple[Any, ...]:
    return entry.by_test_images, not entry.held_out, -entry.mean, entry.title


def standing(found: Iterable[Entry], dataset: str, epsilon: float) -> dict[str, Entry]:
    """Return by method the setting that stands on the page for a data set at a bound on epsilon, the last one first."""
    of = [e for e in found if e.method and (e.dataset, e.epsilon, e.neighbours) == (dataset, epsilon, ADDED)]
    return {entry.method: entry for entry in sorted(of, key=_place, reverse=True)}


@dataclass(frozen=True)
class Line:
    """A method on a data set: its best setting at each bound at which it has one."""

    method: str
    at: dict[float, Entry]


@dataclass(frozen=True)
class Comparison:
    """The methods on a data set, the highest mean at the largest bound first, and plain DP-SGD."""

    dataset: str
    lines: Sequence[Line]
    plain: Line

    @property
    def rows(self) -> list[Line]:
        """All methods, plain DP-SGD last."""
        return [*self.lines, self.plain]

    def gain(self, line: Line, epsilon: float) -> Gain | None:
        """Return a method's gain at a bound, if it has a setting there."""
        entry = line.at.get(epsilon)
        return None if entry is None else gain_over(entry, self.plain.at.get(epsilon))

    def best(self, epsilon: float) -> Line | None:
        """Return the method with the highest mean on all test images, which chose none of its updates.

        Means of fewer than FEW runs come after all others.
        """
        of = [line for line in self.rows if (e := line.at.get(epsilon)) and not e.by_test_images and not e.on_a_part]
        return max(of, key=lambda o: (len(o.at[epsilon].accuracies) >= FEW, o.at[epsilon].mean), default=None)


def comparisons(found: Sequence[Entry]) -> list[Comparison]:
    """Compare the methods on each data set, MNIST first."""
    compared = []
    for dataset in sorted({entry.dataset for entry in found}, key=lambda name: ("CIFAR" in name, "Fashion" in name)):
        lines = []
        for method in NAMES:
            of = {epsilon: settings_of(found, method, dataset, epsilon) for epsilon in SHOWN}
            lines.append(Line(method, {epsilon: settings[0] for epsilon, settings in of.items() if settings}))
        plain, *others = lines
        ranked = sorted((line for line in others if line.at), key=_rank)
        compared.append(Comparison(dataset, ranked, plain))
    return [one for one in compared if any(line.at for line in one.rows)]


def _rank(line: Line) -> tuple[float, ...]:
    return tuple(-line.at[epsilon].mean if epsilon in line.at else 0.0 for epsilon in reversed(SHOWN))

"""The best setting of each method at a bound on the sound epsilon, its gain over plain DP-SGD, and leaderboard.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.claims.statistics import Interval, difference, summarise
from runner.report.leaderboard.entries import Entry
from runner.report.leaderboard.methods import ADDED, NAMES, trains_from_scratch

FEW = 3  # runs, below which a mean is marked, and no best if others have more
SHOWN = (1.0, 3.0)  # the bounds of the page
COLUMNS = (
    "dataset", "sound_epsilon_at_most", "method", "title", "mean", "std", "low", "high", "n", "planned",
    "over_plain", "over_plain_low", "over_plain_high", "tuned_like_plain", "sound_epsilon", "neighbours",
    "settings_chosen", "held_out", "chosen_by_test_images", "on_a_part_of_the_test_images", "made_for_it", "ideas",
    "experiment", "setting_id", "run_id", "command",
)  # fmt: skip


@dataclass(frozen=True)
class Gain:
    """The difference of two mean accuracies, in points.

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


def _ranked(entries: Iterable[Entry], dataset: str, epsilon: float) -> list[Entry]:
    """Return what may stand on the page for a data set at a bound: by effort of its search for it, then by mean."""
    bounded = (e for e in entries if (e.dataset, e.epsilon, e.neighbours) == (dataset, epsilon, ADDED))
    return sorted(bounded, key=lambda e: (e.by_test_images, not (e.held_out and e.made_for_it), -e.mean, e.title))


def settings_of(entries: Iterable[Entry], method: str, dataset: str, epsilon: float) -> list[Entry]:
    """Return the settings of a method that may stand on the page, the one that does first.

    Settings searched for this bound come before others, so that methods are compared at equal effort. Settings whose
    updates the test images chose come last.
    """
    return [entry for entry in _ranked(entries, dataset, epsilon) if entry.method == method]


def standing(entries: Iterable[Entry], dataset: str, epsilon: float) -> dict[str, Entry]:
    """Return by method the setting that stands on the page for a data set at a bound on epsilon, the last one first."""
    return {entry.method: entry for entry in reversed(_ranked(entries, dataset, epsilon)) if entry.method}


@dataclass(frozen=True)
class Comparison:
    """The methods on a data set.

    settings: by method, its best setting at each bound at which it has one. The highest mean at the largest bound
        comes first, and plain DP-SGD last.
    """

    dataset: str
    settings: Mapping[str, Mapping[float, Entry]]

    def gain(self, method: str, epsilon: float) -> Gain | None:
        """Return a method's gain at a bound, if it has a setting there."""
        entry = self.settings[method].get(epsilon)
        return None if entry is None else gain_over(entry, self.settings[NAMES[0]].get(epsilon))

    def best(self, epsilon: float) -> str | None:
        """Return the method from scratch with the highest mean on all test images, which chose none of its updates.

        Means of fewer than FEW runs come after all others.
        """
        ranks = {
            method: (len(entry.accuracies) >= FEW, entry.mean)
            for method, settings in self.settings.items()
            if (entry := settings.get(epsilon)) and not entry.by_test_images and not entry.on_a_part
            if trains_from_scratch(method)
        }
        return max(ranks, key=ranks.__getitem__, default=None)


def comparisons(entries: Sequence[Entry]) -> list[Comparison]:
    """Compare the methods on each data set, MNIST first."""
    compared = []
    for dataset in sorted({entry.dataset for entry in entries}, key=lambda name: ("CIFAR" in name, "Fashion" in name)):
        best = {epsilon: standing(entries, dataset, epsilon) for epsilon in SHOWN}
        settings = {m: {epsilon: best[epsilon][m] for epsilon in SHOWN if m in best[epsilon]} for m in NAMES}
        means = {m: [-s[e].mean if e in s else 0.0 for e in reversed(SHOWN)] for m, s in settings.items()}
        methods = [*sorted((m for m in NAMES[1:] if settings[m]), key=means.__getitem__), NAMES[0]]
        if any(best.values()):
            compared.append(Comparison(dataset, {method: settings[method] for method in methods}))
    return compared


def csv_rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the rows of leaderboard.csv, with every setting at every bound (COLUMNS)."""
    places = {(entry.dataset, entry.epsilon) for entry in entries}
    plain = {place: standing(entries, *place).get(NAMES[0]) for place in places}
    return [_row(entry, gain_over(entry, plain[entry.dataset, entry.epsilon])) for entry in entries]


def _row(entry: Entry, gain: Gain | None) -> dict[str, Any]:
    interval, over = entry.interval, gain and gain.interval
    flags = (gain and gain.alike, entry.held_out, entry.by_test_images, entry.on_a_part, entry.made_for_it)
    alike, *marks = ((None if flag is None else "yes" if flag else "no") for flag in flags)
    values = (
        *(entry.dataset, entry.epsilon, entry.method, entry.title, entry.mean, summarise(entry.accuracies)["std"]),
        *((interval.low, interval.high) if interval else (None, None)),
        *(len(entry.accuracies), entry.planned, gain and gain.points),
        *((over.low, over.high) if over else (None, None)),
        *(alike, entry.sound, entry.neighbours, entry.chosen, *marks),
        *(", ".join(entry.ideas), entry.experiment, entry.setting, entry.run, entry.command),
    )
    return dict(zip(COLUMNS, values, strict=True))

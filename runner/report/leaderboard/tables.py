"""The leaderboard as a table for programs: every setting at every bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.claims.statistics import summarise
from runner.report.leaderboard.comparison import Gain, gain_over, settings_of
from runner.report.leaderboard.entries import Entry
from runner.report.leaderboard.methods import NAMES

COLUMNS = (
    "dataset", "sound_epsilon_at_most", "method", "title", "mean", "std", "low", "high", "n", "planned",
    "over_plain", "over_plain_low", "over_plain_high", "tuned_like_plain", "sound_epsilon", "neighbours",
    "settings_chosen", "held_out", "chosen_by_test_images", "on_a_part_of_the_test_images", "made_for_it", "ideas",
    "experiment", "setting_id", "run_id", "command",
)  # fmt: skip


def rows(found: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the rows of leaderboard.csv (COLUMNS)."""
    plain = {}
    for dataset, epsilon in {(entry.dataset, entry.epsilon) for entry in found}:
        of = settings_of(found, NAMES[0], dataset, epsilon)
        plain[dataset, epsilon] = of[0] if of else None
    return [_row(entry, gain_over(entry, plain[entry.dataset, entry.epsilon])) for entry in found]


def _row(entry: Entry, gain: Gain | None) -> dict[str, Any]:
    interval, over = entry.interval, gain and gain.interval
    values = (
        *(entry.dataset, entry.epsilon, entry.method, entry.title, entry.mean, summarise(entry.accuracies)["std"]),
        *((interval.low, interval.high) if interval else (None, None)),
        *(len(entry.accuracies), entry.planned, gain and gain.points),
        *((over.low, over.high) if over else (None, None)),
        *(gain and _yes(gain.alike), entry.sound, entry.neighbours, entry.chosen),
        *map(_yes, (entry.held_out, entry.by_test_images, entry.on_a_part, entry.made_for_it)),
        *(", ".join(entry.ideas), entry.experiment, entry.setting, entry.run, entry.command),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _yes(mark: bool) -> str:
    return "yes" if mark else "no"

"""The leaderboard as tables: for people, and as CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from runner.claims.summary import summarise
from runner.report.files import Table, bound_text, markdown, number
from runner.report.leaderboard.entries import ADDED, Entry

COLUMNS = (
    "dataset", "sound_epsilon_at_most", "title", "experiment", "mean", "std", "low", "high", "n", "planned",
    "sound_epsilon", "neighbours", "made_for_it", "held_out", "chosen_by_test_images", "on_a_part_of_the_test_images",
    "setting_id",
)  # fmt: skip


def board(found: Sequence[Entry], title: str, about: str = "") -> str:
    """Format a Markdown table for each data set: a row for each method, the best one at the largest bound first."""
    text = f"## {title}\n" + (about and f"\n{about}")
    for dataset in dict.fromkeys(entry.dataset for entry in found):
        of_it = [entry for entry in found if entry.dataset == dataset]
        bounds = sorted({entry.epsilon for entry in of_it})
        cells = {(entry.setting, entry.epsilon): entry for entry in of_it}
        names = {entry.setting: marked(entry) for entry in of_it}
        ranked = [entry for entry in of_it if ranks(entry)]
        best = {e: max((entry.mean for entry in ranked if entry.epsilon == e), default=math.inf) for e in bounds}
        order = sorted(names, key=lambda s: [-cells[s, e].mean if (s, e) in cells else 0.0 for e in reversed(bounds)])
        rows = [
            [names[setting], *(_cell(cells.get((setting, e)), best[e], len(of_it)) for e in bounds)]
            for setting in order
        ]
        header = ("method", *(f"sound ε ≤ {e:g}" for e in bounds))
        text += f"\n### {dataset}\n\n{markdown(Table(header, rows))}"
    return text


def ranks(entry: Entry) -> bool:
    """Return True if a mean may be called the highest: several runs, on all test images, which chose no update."""
    return not entry.by_test_images and not entry.on_a_part and len(entry.accuracies) > 1


def marked(entry: Entry) -> str:
    """Name the method, with the marks that the leaderboard's text explains."""
    other = {ADDED: "", "zero-out": "⁰", "replace-one": "²"}[entry.neighbours]
    marks = (("‡", entry.held_out), ("†", entry.by_test_images), ("§", entry.on_a_part), (other, bool(other)))
    return " ".join([entry.title, *(mark for mark, holds in marks if holds)])


def _cell(entry: Entry | None, best: float, rivals: int) -> str:
    if entry is None:
        return "–"
    summary, interval = summarise(entry.accuracies), entry.interval
    spread = "" if summary.std is None else f" ± {number(summary.std, '%')}"
    limits = "" if interval is None else f" [{interval.low:.2f}, {interval.high:.2f}]"
    mean = number(entry.mean, "%")
    mean = f"**{mean}**" if entry.mean == best and rivals > 1 else mean
    return f"{mean}{spread} ({len(entry.accuracies)}){limits} at {bound_text(entry.sound)}"


def row(entry: Entry) -> dict[str, Any]:
    """Return one row of leaderboard.csv (COLUMNS)."""
    interval = entry.interval
    marks = (entry.made_for_it, entry.held_out, entry.by_test_images, entry.on_a_part)
    values = (
        *(entry.dataset, entry.epsilon, entry.title, entry.experiment, entry.mean, summarise(entry.accuracies).std),
        *((interval.low, interval.high) if interval else (None, None)),
        *(len(entry.accuracies), entry.planned, entry.sound, entry.neighbours),
        *("yes" if mark else "no" for mark in marks),
        entry.setting,
    )
    return dict(zip(COLUMNS, values, strict=True))

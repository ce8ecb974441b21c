"""Titles of settings: in words, and no two the same on one data set."""

from __future__ import annotations

from collections.abc import Callable

from runner.config import REPOSITORY
from runner.records.jobs import Job
from runner.report.files import read_csv
from runner.report.titles import title_of, titles_of


def test_every_setting_on_the_leaderboard_has_its_own_title() -> None:
    """On one data set and at one bound, next to the kind of its epsilon."""
    rows = read_csv(REPOSITORY / "results" / "leaderboard" / "leaderboard.csv")
    settings = {(row["dataset"], row["title"]): row["setting_id"] for row in rows}
    assert [row for row in rows if settings[row["dataset"], row["title"]] != row["setting_id"]] == []
    assert len(settings) == len({(row["dataset"], row["setting_id"]) for row in rows}) > 100
    assert not [title for _, title in settings if "_" in title or "=" in title]


def test_what_a_sweep_varies_is_in_words(jobs: Callable[..., list[Job]]) -> None:
    budgets = jobs("fig_5", "mnist_printed", paper="backprop_clipping")
    assert title_of(budgets[0]) == "Backpropagation clipping, as printed, ε 0.05"
    table = jobs("table_1", "mnist_printed", paper="backprop_clipping")[0]
    assert title_of(table) == "Backpropagation clipping, as printed"
    both = titles_of({"figure": budgets[0], "table": table})
    assert both["table"] == "Backpropagation clipping, as printed, ε 0.07", "its own, as others of it are named"

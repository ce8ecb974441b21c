"""Pages: digits that the spread supports, bounds that stay bounds, titles in words, cells that stay cells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.claims.rows import ClaimRow
from runner.config import REPOSITORY
from runner.report.cells import cells_of, signed
from runner.report.files import Table, markdown, read_csv, write_csv, write_table_csv
from runner.report.pages import _items
from runner.report.paper_page import epsilon_text, tables_of
from runner.report.papers import every_paper
from runner.report.titles import title_of, titles_of
from runner.report.verdict_figures import _word
from tests.claims.made_up import claim

CLAIM = claim(item="fig-3", dataset="MNIST", claimed="2.5", unit="epsilon", quantity="epsilon_at_accuracy_94")
ROW = ClaimRow(
    CLAIM, "paper", "consistent", "not guaranteed", measured=2.6478, mean=2.6478, std=0.2384, n=5, n_planned=8,
    difference=0.1478, interval_low=-0.2713, interval_high=0.5669, epsilon=2.8, epsilon_sound=8.7111,
)  # fmt: skip


def test_a_number_that_rounds_to_zero_has_no_minus() -> None:
    assert [signed(value, "%", None) for value in (-0.004, -0.006, 0.0, 1.5)] == ["+0.00", "−0.01", "+0.00", "+1.50"]


@pytest.mark.parametrize(
    ("std", "measured", "difference"),
    [
        (0.2384, "2.65 ± 0.24", "+0.15 [−0.27, +0.57]"),
        (4.06, "2.6 ± 4.1", "+0.1 [−0.3, +0.6]"),
        (0.0241, "2.648 ± 0.024", "+0.148 [−0.271, +0.567]"),
    ],
)
def test_a_number_has_the_digits_that_its_spread_supports(std: float, measured: str, difference: str) -> None:
    of = cells_of(replace(ROW, std=std))
    assert (of.measured, of.difference) == (measured, difference)


def test_bounds_are_rounded_so_that_they_stay_bounds() -> None:
    assert epsilon_text(ROW) == "2.5 → 8.72 ✗"
    assert epsilon_text(replace(ROW, epsilon_sound=2033.21)) == "2.5 → 2034 ✗"
    assert cells_of(replace(ROW, at_least=True)).measured == "≥ 2.64"


def test_every_setting_on_the_leaderboard_has_its_own_title() -> None:
    """On one data set and at one bound, next to the kind of its epsilon."""
    rows = read_csv(REPOSITORY / "results" / "leaderboard" / "leaderboard.csv")
    settings = {(row["dataset"], row["title"]): row["setting_id"] for row in rows}
    assert [row for row in rows if settings[row["dataset"], row["title"]] != row["setting_id"]] == []
    assert len(settings) == len({(row["dataset"], row["setting_id"]) for row in rows}) > 100
    assert not [title for _, title in settings if "_" in title or "=" in title]


def test_what_a_sweep_varies_is_in_words(jobs) -> None:
    budgets = jobs("fig_5", "mnist_printed", paper="backprop_clipping")
    assert title_of(budgets[0]) == "Backpropagation clipping, as printed, ε 0.05"
    table = jobs("table_1", "mnist_printed", paper="backprop_clipping")[0]
    assert title_of(table) == "Backpropagation clipping, as printed"
    both = titles_of({"figure": budgets[0], "table": table})
    assert both["table"] == "Backpropagation clipping, as printed, ε 0.07", "its own, as others of it are named"


def test_a_cell_of_a_markdown_table_is_text() -> None:
    text = markdown(Table(["a", "b|c"], [["<b>x</b> | y", "one\n| two"], ["<3", "x < y"]]))
    assert text.splitlines() == [
        "| a | b\\|c |",
        "| --- | --- |",
        "| &lt;b>x&lt;/b> \\| y | one \\| two |",
        "| <3 | x < y |",
    ]


def test_people_see_the_shown_columns_and_the_csv_has_all(tmp_path: Path) -> None:
    table = Table(["a", "b", "c"], [[1, 2, 3]], shown=["c", "a"])
    assert markdown(table) == "| c | a |\n| --- | --- |\n| 3 | 1 |\n"
    assert markdown(Table(["a", "a"], [[1, 2]])).endswith("| 1 | 2 |\n")
    assert write_table_csv(tmp_path / "table.csv", table).read_text() == "a,b,c\n1,2,3\n"


def test_no_committed_table_is_wider_than_a_page() -> None:
    for path in REPOSITORY.glob("results/*/**/*.md"):
        headers = [line for line in path.read_text().splitlines() if line.startswith("| --- |")]
        assert all(header.count("|") <= 8 for header in headers), path


def test_a_column_has_a_name_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two columns have one name, of epochs, seed, epochs"):
        write_csv(tmp_path / "runs.csv", ["epochs", "seed", "epochs"], [])


def test_an_order_has_the_numbers_of_both_settings() -> None:
    order = replace(ROW, claim=replace(CLAIM, direction="above_other"), measured=97.9, mean=97.9, difference=1.6)
    assert cells_of(order).measured == "97.90 ± 0.24 against 96.30"
    assert cells_of(replace(order, difference=97.9)).measured == "97.90 ± 0.24"  # the difference itself is measured


def test_a_number_at_an_epsilon_that_does_not_hold_is_marked_on_the_page_and_in_the_figures() -> None:
    (paper, *_) = every_paper()
    for row, words in (
        (ROW, "consistent, **ε not guaranteed**"),
        (replace(ROW, verdict="reproduced", guarantee="refuted"), "reproduced, **ε refuted**"),
        (replace(ROW, guarantee="guaranteed"), "consistent"),
        (replace(ROW, verdict="too few runs"), "too few runs"),
    ):
        assert f" | {words} | " in tables_of(paper, [row])
        assert (_word(row) == row.verdict) == ("ε" not in words)


def test_a_setting_of_two_sweeps_counts_once_with_the_longer_one(tmp_path: Path) -> None:
    paper = every_paper()[0]
    item = paper.items[0]
    rows = [{"setting_id": "a", "n_planned": planned, "n_recorded": 3} for planned in (5, 10, 4)]
    write_csv(tmp_path / paper.name / item.name / "settings.csv", list(rows[0]), rows)
    assert _items(tmp_path, paper).rows[0][1] == "3 of 10"

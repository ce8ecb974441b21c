"""The page of a paper: digits that the spread supports, bounds that stay bounds, notes said once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.claims.rows import ClaimRow
from runner.report.cells import cells_of
from runner.report.paper_page import epsilon_text, tables_of
from runner.report.papers import every_paper
from runner.report.verdict_figures import _word
from tests.claims.made_up import claim

CLAIM = claim(item="fig-3", dataset="MNIST", claimed="2.5", unit="epsilon", quantity="epsilon_at_accuracy_94")
ROW = ClaimRow(
    CLAIM, "paper", "consistent", "not guaranteed", measured=2.6478, mean=2.6478, std=0.2384, n=5, n_planned=8,
    difference=0.1478, interval_low=-0.2713, interval_high=0.5669, epsilon=2.8, epsilon_sound=8.7111,
)  # fmt: skip


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


def test_an_accuracy_has_at_most_two_digits_and_a_negative_gain_a_minus_sign() -> None:
    accuracy = replace(ROW, claim=replace(CLAIM, unit="%"), measured=98.126, mean=98.126, std=0.0123)
    assert cells_of(accuracy).measured == "98.13 ± 0.01"
    assert cells_of(replace(ROW, measured=-3.184, mean=None, std=None)).measured == "−3.18"


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


def test_a_table_names_data_sets_once_and_a_note_of_all_rows_once() -> None:
    (paper, *_) = every_paper()
    noted = replace(CLAIM, method="DP-SGD | tanh", note="RDP")
    rows = [replace(ROW, claim=noted), replace(ROW, claim=replace(noted, dataset="CIFAR10"), verdict="differs")]
    text = tables_of(paper, rows)
    assert text.count("| **CIFAR-10** |") == text.count("| **MNIST** |") == 1
    assert text.count("DP-SGD \\| tanh: epsilon at accuracy 94 |") == 2, "a bar ends no cell"
    assert text.count("- RDP.\n") == 1
    assert "| **differs** |" in text
    own = tables_of(paper, [rows[0], replace(rows[1], claim=replace(rows[1].claim, note="PLD"))])
    assert "- DP-SGD | tanh on MNIST: RDP.\n- DP-SGD | tanh on CIFAR-10: PLD.\n" in own

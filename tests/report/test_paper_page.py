"""The page of a paper: digits that the spread supports, bounds that stay bounds, notes said once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.claims.rows import ClaimRow
from runner.report.markdown import cells_of
from runner.report.paper_page import epsilon_text
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

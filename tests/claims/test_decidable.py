"""Every claim can be decided by the runs that are planned for it."""

from __future__ import annotations

import pytest

from runner.claims.claim import Claim
from runner.claims.rows import ClaimRow
from runner.config import REPOSITORY
from runner.report.claim_rows import read_rows
from runner.report.papers import every_paper
from tests.claims.deciding import Planned, confirmed, contradicted, planned_of

OFTEN = 0.8
ROWS = [
    row for paper in every_paper() for item in paper.items for row in read_rows(REPOSITORY / "results", paper, item)
]
PLANNED = {f"{row.claim.place}: {row.claim.dataset}, {row.claim.method}": planned_of(row) for row in ROWS}


@pytest.mark.parametrize("planned", [pytest.param(one, id=name) for name, one in PLANNED.items() if one])
def test_a_true_claim_is_confirmed_and_a_false_one_contradicted(planned: Planned) -> None:
    assert confirmed(planned) >= OFTEN
    assert contradicted(planned) >= OFTEN


def test_one_run_confirms_nothing_and_a_wide_spread_contradicts_nothing() -> None:
    claim = Claim("", "", "", "", "", claimed="98", margin=0.5)
    assert confirmed(Planned(claim, (1,), (0.1,))) == 0
    assert confirmed(Planned(claim, (5,), (0.1,))) >= 0.9
    assert contradicted(Planned(claim, (5,), (3.0,))) < OFTEN
    order = Claim("", "", "", "", "", margin=0.5, direction="above_other")
    assert confirmed(Planned(order, (5, 5), (0.2, 0.2))) >= 0.9
    assert confirmed(Planned(order, (3, 3), (3.0, 3.0))) < OFTEN


def test_without_a_margin_or_a_spread_nothing_is_known() -> None:
    claim = Claim("", "", "", "", "", claimed="98", margin=0.5)
    assert planned_of(ClaimRow(claim, "paper", "not run", "")) is None
    found = planned_of(ClaimRow(claim, "paper", "consistent", "", planned_each="5 + 3", spread_each="0.1 + 0.2"))
    assert found == Planned(claim, (5, 3), (0.1, 0.2))

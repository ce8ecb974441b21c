"""Claims that their planned runs can decide: all of them."""

from __future__ import annotations

from dataclasses import replace

from runner.claims.rows import ClaimRow
from runner.config import REPOSITORY
from runner.report.claim_rows import rows_of
from runner.report.papers import every_paper
from tests.claims.deciding import Planned, confirmed, contradicted, planned_of
from tests.claims.made_up import claim

OFTEN = 0.8


def test_a_true_claim_is_confirmed_and_a_false_one_contradicted() -> None:
    rows = [row for paper in every_paper() for row in rows_of(REPOSITORY / "results", paper)]
    plans = {f"{row.claim.place}: {row.claim.dataset}, {row.claim.method}": planned_of(row) for row in rows}
    shares = {name: (confirmed(one), contradicted(one)) for name, one in plans.items() if one is not None}
    assert len(shares) >= 150
    assert {name: both for name, both in shares.items() if min(both) < OFTEN} == {}


def test_one_run_confirms_nothing_and_a_wide_spread_contradicts_nothing() -> None:
    one = claim(claimed="98", margin=0.5)
    assert confirmed(Planned(one, (1,), (0.1,))) == 0
    assert confirmed(Planned(one, (5,), (0.1,))) >= 0.9
    assert contradicted(Planned(one, (5,), (3.0,))) < OFTEN
    order = claim(margin=0.5, direction="above_other")
    assert confirmed(Planned(order, (5, 5), (0.2, 0.2))) >= 0.9
    assert confirmed(Planned(order, (3, 3), (3.0, 3.0))) < OFTEN
    assert planned_of(ClaimRow(one, "paper", "not run", "")) is None
    row = ClaimRow(one, "paper", "consistent", "", n=8, planned_each="5 + 3", spread_each="0.1 + 0.2")
    assert planned_of(row) == Planned(one, (5, 3), (0.1, 0.2))
    assert planned_of(replace(row, n=2)) is None

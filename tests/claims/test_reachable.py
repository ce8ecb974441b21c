"""Every claim of every paper can hold and can fail: judged on runs that were made up to show it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from runner.claims.claim import ORDERS, OVER_VALUES, THRESHOLDS, Claim
from runner.claims.formulas import Computed
from runner.claims.measurement import Comparison, Measured, Statistic, compare_samples, measure_sample
from runner.claims.statistics import Interval
from runner.claims.verdicts import FAILS, GUARANTEED, HOLDS, NOT_GUARANTEED, REFUTED, judge
from runner.report.items import Paper
from runner.report.papers import every_paper

CLAIMS = [(paper, claim) for paper in every_paper() for claim in paper.claims if not claim.contextual]


def evidence(paper: Paper, claim: Claim, *, good: bool) -> Measured:
    """Make runs whose number is as claimed, or ten margins beyond a threshold, or else is ten margins worse.

    They spread by a thousandth of that. As many are made as the paper has, and at least five.
    """
    step = 10 * (claim.margin or 1.0)
    exact = claim.direction in (*ORDERS, *THRESHOLDS)
    off = (step if exact else 0.0) if good else -step
    level = 0.0 if claim.direction in ORDERS or claim.aim is None else claim.aim
    value = level + (-off if claim.direction in ("lower", "below", "below_other") else off)
    if isinstance(paper.formulas.get(claim.number.name), Computed):
        return Measured(value, reference=0.0 if claim.direction in ORDERS else None, computed=True)
    if claim.statistic in OVER_VALUES:
        return Measured(value, interval_at=lambda _: Interval(value, value))
    runs = max(claim.runs, 5)
    around = [step / 1000 * (place / (runs - 1) - 1) for place in range(runs)]  # the best is 0
    if claim.compare == "ratio":
        value = max(value, level / 100, 0.01)
        return compare_samples(
            "ratio", "geometric", tuple(value * math.exp(offset / step) for offset in around), (1.0, 1.001, 1.0)
        )
    sample, against = tuple(value + offset for offset in around), tuple(offset / 10 for offset in around)
    statistic: Statistic = "best" if claim.statistic == "best" else "mean"
    if claim.compare == "value" and claim.direction not in ORDERS:
        return measure_sample(statistic, sample)
    comparison: Comparison = "order" if claim.direction in ORDERS else "difference"
    return compare_samples(comparison, statistic, sample, against)


@pytest.mark.parametrize(("good", "word"), [(True, HOLDS), (False, FAILS)])
def test_every_claim_can_hold_and_can_fail(good: bool, word: str) -> None:
    judged = [(claim, judge(claim, evidence(paper, claim, good=good), "paper")) for paper, claim in CLAIMS]
    assert len({(claim.direction, claim.compare, claim.statistic) for claim, _ in judged}) >= 20
    assert [
        (claim.place, claim.method, claim.direction, row.verdict) for claim, row in judged if row.verdict != word
    ] == []


def test_every_claimed_epsilon_can_be_guaranteed_and_not() -> None:
    claims = [claim for _, claim in CLAIMS if claim.epsilon and math.isfinite(claim.bound)]
    assert len(claims) > 100
    for claim in claims:
        spent = Measured(1.0, epsilon_sound=0.0, delta=0.0)
        worse = replace(spent, epsilon_sound=2 * claim.bound, delta=claim.delta or 1e-5)
        shown = replace(worse, epsilon_least=1.5 * claim.bound)
        words = [judge(claim, sample, "paper").guarantee for sample in (spent, worse, shown)]
        assert words == [GUARANTEED, NOT_GUARANTEED, REFUTED if claim.delta else NOT_GUARANTEED], claim.place

"""Error rates of verdicts, by drawing runs and claims; every claim of a paper can hold, and can fail."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from runner.claims.claim import ORDERS, OVER_VALUES, THRESHOLDS, Claim
from runner.claims.intervals import Interval, Spread
from runner.claims.measure import Computed
from runner.claims.measurement import Measured, compare_samples, measure_sample
from runner.claims.verdicts import judge, verdict_of
from runner.report.papers import Paper, every_paper
from tests.claims.made_up import claim

DRAWS = 600
BY_CHANCE = 3 * math.sqrt(0.05 * 0.95 / DRAWS)  # three standard errors of a share of 5%


def words(direction: str, off: float, runs: int, claimed_runs: int, margin: float, seed: int) -> Counter[str]:
    """Count the verdicts on runs of spread 1 whose mean is `off` from the mean of the paper's runs."""
    dice = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    for _ in range(DRAWS):
        theirs = dice.normal(0, 1, claimed_runs).mean()
        subject = claim(claimed=str(theirs), of=f"mean of {claimed_runs}", margin=margin, direction=direction)
        counts[verdict_of(subject, measure_sample("mean", tuple(dice.normal(off, 1, runs)))).word] += 1
    return counts


@pytest.mark.parametrize(("runs", "claimed_runs"), [(3, 5), (10, 1)])
def test_true_claims_are_contradicted_in_one_of_twenty(runs: int, claimed_runs: int) -> None:
    """The 95% prediction interval misses the claim in 5%, whether it then differs or fails."""
    counts = words("match", 0.0, runs, claimed_runs, 1e-6, runs)
    assert (counts["differs"] + counts["fails"]) / DRAWS == pytest.approx(0.05, abs=BY_CHANCE)
    wide = words("match", 0.0, runs, claimed_runs, 3.0, runs)
    assert (wide["differs"] + wide["fails"]) / DRAWS <= 0.05 + BY_CHANCE


@pytest.mark.parametrize(("runs", "claimed_runs"), [(3, 10), (10, 5)])
def test_what_is_off_by_the_margin_holds_in_one_of_twenty(runs: int, claimed_runs: int) -> None:
    """The equivalence test: at the margin itself, it finds equality in at most 5%, and in 5% for a wide margin."""
    for margin in (1.5, 3.0):
        counts = words("match", margin, runs, claimed_runs, margin, runs)
        assert counts["holds"] / DRAWS <= 0.05 + BY_CHANCE
    assert counts["holds"] / DRAWS == pytest.approx(0.05, abs=BY_CHANCE + 0.002)


def test_two_runs_confirm_nothing_but_contradict_distant_claims() -> None:
    cases = ((60.9, "open"), (59.0, "open"), (39.65, "fails"), (80.0, "open"))
    for value, word in cases:
        subject = replace(measure_sample("mean", (value,)), typical=Spread(0.5, 40))
        assert verdict_of(claim(claimed="60.92"), subject).word == word


@pytest.mark.parametrize(("runs", "true"), [(2, 39), (1, 4)])
def test_the_pooled_spread_refutes_true_claims_in_one_of_forty(runs: int, true: int) -> None:
    """One-sided, with a margin of almost zero."""
    dice, bad = np.random.default_rng(0), 0
    for _ in range(DRAWS):
        theirs, spread = dice.normal(), math.sqrt(dice.chisquare(true) / true)
        counts = measure_sample("mean", tuple(dice.normal(0, 1, runs)))
        judged = verdict_of(claim(claimed=str(theirs), margin=1e-9), replace(counts, typical=Spread(spread, true)))
        bad += judged.word == "fails"
    assert bad / DRAWS == pytest.approx(0.025, abs=BY_CHANCE)


CLAIMS = [(paper, claim) for paper in every_paper() for claim in paper.claims if not claim.contextual]


def made_for(paper: Paper, claim: Claim, *, good: bool) -> Measured:
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
    statistic = "best" if claim.statistic == "best" else "mean"
    if claim.compare == "value" and claim.direction not in ORDERS:
        return measure_sample(statistic, sample)
    comparison = "order" if claim.direction in ORDERS else "difference"
    return compare_samples(comparison, statistic, sample, against)


@pytest.mark.parametrize(("good", "word"), [(True, "holds"), (False, "fails")])
def test_every_claim_can_hold_and_can_fail(good: bool, word: str) -> None:
    judged = [(claim, judge(claim, made_for(paper, claim, good=good), "paper")) for paper, claim in CLAIMS]
    assert len({(claim.direction, claim.compare, claim.statistic) for claim, _ in judged}) >= 20
    assert [
        (claim.place, claim.method, claim.direction, row.verdict) for claim, row in judged if row.verdict != word
    ] == []


def test_every_claimed_epsilon_can_be_guaranteed_and_not() -> None:
    subjects = [subject for _, subject in CLAIMS if subject.epsilon and math.isfinite(subject.bound)]
    assert len(subjects) > 100
    for subject in subjects:
        spent = Measured(1.0, epsilon_sound=0.0, delta=0.0)
        worse = replace(spent, epsilon_sound=2 * subject.bound, delta=subject.delta or 1e-5)
        shown = replace(worse, epsilon_least=1.5 * subject.bound)
        words = [judge(subject, sample, "paper").guarantee for sample in (spent, worse, shown)]
        assert words == ["guaranteed", "not guaranteed", "refuted" if subject.delta else "not guaranteed"], (
            subject.place
        )

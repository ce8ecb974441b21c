"""Error rates of verdicts, by drawing runs and claims."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from runner.claims.measurement import measure_sample
from runner.claims.statistics import Spread
from runner.claims.verdicts import verdict_of
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


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize("claimed_runs", [1, 5])
def test_true_claims_are_contradicted_in_one_of_twenty(runs: int, claimed_runs: int) -> None:
    """The 95% prediction interval misses the claim in 5%, whether it then differs or fails."""
    counts = words("match", 0.0, runs, claimed_runs, 1e-6, runs)
    assert (counts["differs"] + counts["fails"]) / DRAWS == pytest.approx(0.05, abs=BY_CHANCE)
    wide = words("match", 0.0, runs, claimed_runs, 3.0, runs)
    assert (wide["differs"] + wide["fails"]) / DRAWS <= 0.05 + BY_CHANCE


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize("claimed_runs", [5, 10])
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


@pytest.mark.parametrize(("runs", "true"), [(1, 39), (2, 39), (1, 4)])
def test_the_pooled_spread_refutes_true_claims_in_one_of_forty(runs: int, true: int) -> None:
    """One-sided, with a margin of almost zero."""
    dice, bad = np.random.default_rng(0), 0
    for _ in range(DRAWS):
        theirs, spread = dice.normal(), math.sqrt(dice.chisquare(true) / true)
        counts = measure_sample("mean", tuple(dice.normal(0, 1, runs)))
        judged = verdict_of(claim(claimed=str(theirs), margin=1e-9), replace(counts, typical=Spread(spread, true)))
        bad += judged.word == "fails"
    assert bad / DRAWS == pytest.approx(0.025, abs=BY_CHANCE)

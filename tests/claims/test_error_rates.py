"""Error rates of verdicts, by drawing runs and claims; every claim can hold and fail, and its planned runs decide it.

A true claim is drawn at its number, with the sampling error of the paper's own runs. A false one is off by `OFF`
margins on the bad side. A true threshold or order is passed by `OFF` margins, a false one is missed by as much. Runs
have the measured spread, or else the spread of their data set's settings.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from runner.claims.claim import ORDERS, OVER_VALUES, THRESHOLDS, Claim
from runner.claims.measure import Computed
from runner.claims.measurement import FEWEST_RUNS, Measured, compare_samples, measure_sample
from runner.claims.statistics import Interval, Spread
from runner.claims.verdicts import CONFIRMED, ClaimRow, judge, verdict_of
from runner.config import REPOSITORY
from runner.report.claim_rows import rows_of
from runner.report.papers import Paper, every_paper, load
from tests.claims.made_up import claim
from tests.tracked import tracked_papers

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


OFTEN = 0.8
OFF = 5  # margins that a false claim is off
FEW_DRAWS = (15, 60)  # more where the first leave a doubt


@dataclass(frozen=True)
class Planned:
    """The planned runs of a claim.

    runs: the number for each of its one or two settings.
    spreads: the standard deviation of a run of each, of its logarithm if a ratio is claimed.
    statements: the number of statements of this kind, which all have to hold.
    """

    claim: Claim
    runs: tuple[int, ...]
    spreads: tuple[float, ...]
    statements: int = 1

    @property
    def exact(self) -> bool:
        """True if the claim is a threshold or an order, which has no sampling error."""
        return self.claim.direction in (*ORDERS, *THRESHOLDS)


def planned_of(row: ClaimRow) -> Planned | None:
    """Return the planned runs of a claim, with their spread; None without a known spread or a margin.

    Two runs do not show a spread. Below `FEWEST_RUNS`, accuracies have the spread of their data set's settings.
    """
    if row.n < FEWEST_RUNS and row.claim.unit != "%":
        return None
    runs, spreads = (
        [float(part) for part in text.split(" + ") if part] for text in (row.planned_each, row.spread_each)
    )
    if not row.verdict or not row.claim.margin or not runs or len(runs) != len(spreads) or not all(spreads):
        return None
    return Planned(row.claim, tuple(map(int, runs)), tuple(spreads), row.statements)


def share(planned: Planned, off: float, words: Sequence[str]) -> float:
    """Return the share of draws, from 0 to 1, in which a claim that is `off` margins off has one of these words."""
    for draws in FEW_DRAWS:
        hits = [verdict_of(planned.claim, plan).word in words for plan in _drawn(planned, off, draws)]
        if all(hits):
            break
    return sum(hits) / len(hits)


def confirmed(planned: Planned) -> float:
    return share(planned, OFF if planned.exact else 0, CONFIRMED)


def contradicted(planned: Planned) -> float:
    return share(planned, -OFF, ("differs", "fails"))


def _drawn(planned: Planned, off: float, draws: int) -> Iterator[Measured]:
    """Draw runs of settings whose means are `off` margins from the claimed number, on the good side if positive."""
    claim, dice = planned.claim, np.random.default_rng(0)
    ratio, best = claim.compare == "ratio", claim.statistic == "best"
    bad_is_high = claim.direction in ("lower", "below", "below_other")
    level = 0.0 if claim.direction in ORDERS or claim.aim is None else claim.aim
    margin = claim.margin or 0.0
    if ratio:
        margin, level = math.log(((claim.aim or 1.0) + margin) / (claim.aim or 1.0)), math.log(level)
    middle = level + off * margin * (-1 if bad_is_high else 1)
    for _ in range(draws):
        statements = []
        for _ in range(planned.statements):
            theirs = 0.0 if planned.exact else _error(planned, dice, best)
            sample = _runs(middle - theirs, planned.runs[0], planned.spreads[0], dice, ratio)
            if len(planned.runs) == 1:
                statements.append(measure_sample("best" if best else "mean", sample))
                continue
            other = _runs(0.0, planned.runs[1], planned.spreads[1], dice, ratio)
            comparison = "order" if claim.direction in ORDERS else "ratio" if ratio else "difference"
            statistic = "geometric" if ratio else "best" if best else "mean"
            statements.append(compare_samples(comparison, statistic, sample, other))
        yield replace(statements[0], statements=tuple(statements)) if len(statements) > 1 else statements[0]


def _runs(mean: float, runs: int, spread: float, dice: np.random.Generator, ratio: bool) -> tuple[float, ...]:
    values = dice.normal(mean, spread, runs)
    return tuple((np.exp(values) if ratio else values).tolist())


def _error(planned: Planned, dice: np.random.Generator, best: bool) -> float:
    """Draw the error of the claimed number, which comes from the paper's own runs."""
    k = planned.claim.runs
    errors = [dice.normal(0, spread, k) for spread in planned.spreads]
    statistics = [float(error.max() if best else error.mean()) for error in errors]
    return statistics[0] - sum(statistics[1:])


def test_a_true_claim_is_confirmed_and_a_false_one_contradicted() -> None:
    rows = [row for paper in map(load, tracked_papers()) for row in rows_of(REPOSITORY / "results", paper)]
    plans = {f"{row.claim.place}: {row.claim.dataset}, {row.claim.method}": planned_of(row) for row in rows}
    shares = {name: (confirmed(plan), contradicted(plan)) for name, plan in plans.items() if plan is not None}
    assert len(shares) >= 150
    assert {name: both for name, both in shares.items() if min(both) < OFTEN} == {}


def test_a_single_run_confirms_and_a_wide_spread_refutes_nothing() -> None:
    plan = claim(claimed="98", margin=0.5, unit="%")
    assert confirmed(Planned(plan, (1,), (0.1,))) == 0
    assert confirmed(Planned(plan, (5,), (0.1,))) >= 0.9
    assert contradicted(Planned(plan, (5,), (3.0,))) < OFTEN
    order = claim(margin=0.5, direction="above_other")
    assert confirmed(Planned(order, (5, 5), (0.2, 0.2))) >= 0.9
    assert confirmed(Planned(order, (3, 3), (3.0, 3.0))) < OFTEN


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

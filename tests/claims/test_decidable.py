"""Claims that their planned runs can decide: all of them, by drawing such runs and judging them.

A true claim is drawn at its number, with the sampling error of the paper's own runs. A false one is off by `OFF`
margins on the bad side. A true threshold or order is passed by `OFF` margins, a false one is missed by as much. Runs
have the measured spread, or else the spread of their data set's settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.measurement import FEWEST_RUNS, Comparison, Measured, compare_samples, measure_sample
from runner.claims.verdicts import CONFIRMED, DIFFERS, FAILS, ClaimRow, verdict_of
from runner.config import REPOSITORY
from runner.report.claim_rows import rows_of
from runner.report.papers import load
from tests.claims.made_up import claim
from tests.tracked import tracked_papers

OFTEN = 0.8
OFF = 5  # margins that a false claim is off
DRAWS = (15, 60)  # more where the first leave a doubt


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


def confirmed(planned: Planned) -> float:
    """Return the share of draws, from 0 to 1, in which a true claim holds or is not contradicted."""
    return _share(planned, OFF if planned.exact else 0, CONFIRMED)


def contradicted(planned: Planned) -> float:
    """Return the share of draws, from 0 to 1, in which a claim off by `OFF` margins differs or fails."""
    return _share(planned, -OFF, (DIFFERS, FAILS))


def _share(planned: Planned, off: float, words: Sequence[str]) -> float:
    for draws in DRAWS:
        hits = [verdict_of(planned.claim, plan).word in words for plan in _drawn(planned, off, draws)]
        if all(hits):
            break
    return sum(hits) / len(hits)


def _margin(planned: Planned) -> float:
    """Return the margin, for a ratio the margin of its logarithm."""
    claim = planned.claim
    assert claim.margin
    if claim.compare != "ratio":
        return claim.margin
    aim = claim.aim or 1.0
    return math.log((aim + claim.margin) / aim)


def _drawn(planned: Planned, off: float, draws: int) -> Iterator[Measured]:
    """Draw runs of settings whose means are `off` margins from the claimed number, on the good side if positive."""
    claim, dice = planned.claim, np.random.default_rng(0)
    ratio, best = claim.compare == "ratio", claim.statistic == "best"
    bad_is_high = claim.direction in ("lower", "below", "below_other")
    level = 0.0 if claim.direction in ORDERS or claim.aim is None else claim.aim
    middle = (math.log(level) if ratio else level) + off * _margin(planned) * (-1 if bad_is_high else 1)
    for _ in range(draws):
        statements = []
        for _ in range(planned.statements):
            theirs = 0.0 if planned.exact else _error(planned, dice, best)
            sample = _runs(middle - theirs, planned.runs[0], planned.spreads[0], dice, ratio)
            if len(planned.runs) == 1:
                statements.append(measure_sample("best" if best else "mean", sample))
                continue
            other = _runs(0.0, planned.runs[1], planned.spreads[1], dice, ratio)
            comparison: Comparison = "order" if claim.direction in ORDERS else "ratio" if ratio else "difference"
            statements.append(
                compare_samples(comparison, "geometric" if ratio else "best" if best else "mean", sample, other)
            )
        yield replace(statements[0], statements=tuple(statements)) if len(statements) > 1 else statements[0]


def _runs(mean: float, runs: int, spread: float, dice: np.random.Generator, ratio: bool) -> tuple[float, ...]:
    values = dice.normal(mean, spread, runs)
    return tuple(float(value) for value in (np.exp(values) if ratio else values))


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
    assert planned_of(ClaimRow(plan, "paper", "open", "")) is None
    row = ClaimRow(plan, "paper", "not contradicted", "", n=8, planned_each="5 + 3", spread_each="0.1 + 0.2")
    assert planned_of(row) == Planned(plan, (5, 3), (0.1, 0.2))
    assert planned_of(replace(row, n=2)) == Planned(plan, (5, 3), (0.1, 0.2))
    assert planned_of(replace(row, n=2, claim=replace(plan, unit="points"))) is None

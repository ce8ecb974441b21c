"""Verdicts on a claim: on its number by an interval, and on its epsilon.

`runner/report/words.md` says what each word means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import scipy

from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.evidence import PAPER_SCALE
from runner.claims.intervals import FEWEST_RUNS, enough_runs, interval_of, own_precision, spreads_of
from runner.claims.measured import Measured
from runner.claims.rows import NOT_GUARANTEED as NOT_GUARANTEED
from runner.claims.rows import ClaimRow
from runner.claims.statistics import EQUIVALENCE, LEVEL, Interval, more_runs
from runner.claims.summary import summarise
from runner.terminal import number

REPRODUCED, EXCEEDS, CONSISTENT, DIFFERS = "reproduced", "exceeds", "consistent", "differs"
NOT_REPRODUCED, TOO_FEW_RUNS, NOT_RUN = "not reproduced", "too few runs", "not run"
HOLDS, FAILS, NOT_JUDGED = "holds", "fails", "not judged"
CONFIRMED = (REPRODUCED, EXCEEDS, CONSISTENT)  # consistent or better
GUARANTEED, REFUTED = "guaranteed", "refuted"
NOT_PRIVATE, NONE_CLAIMED, NOT_REACHED = "not private", "none claimed", "not reached"

WIDEST = 2  # margins that an interval may reach to either side for *consistent*
_AS_MEASURED = ("n", "computed", "at_least", "epsilon", "epsilon_spent", "epsilon_sound", "epsilon_least", "delta")
_NEVER = 5  # runs that all have to fail before a number is taken for one that is never reached
_WORST_FIRST = (NOT_REPRODUCED, DIFFERS, TOO_FEW_RUNS, CONSISTENT)  # of several statements that all have to hold


@dataclass(frozen=True)
class Verdict:
    """The outcome for a claim's number.

    interval: the 95% interval of measured minus claimed, or for an order of the claim's setting minus the other.
    reason: the reason for too few runs, or for no verdict.
    """

    word: str
    interval: Interval | None = None
    reason: str = ""


def judge(claim: Claim, measured: Measured, scale: str) -> ClaimRow:
    """Compare a claim with its measurement.

    At any scale but the paper's, only claims computed without runs are judged.
    """
    if measured.value is None:
        return _row(claim, measured, scale, None, Verdict(NOT_RUN), NOT_RUN)
    if scale != PAPER_SCALE and not measured.computed:
        return _row(claim, measured, scale, None, Verdict(NOT_JUDGED, _shown_alone(claim, measured)), NOT_JUDGED)
    threshold = claim.level is not None and claim.direction in THRESHOLDS
    difference = None if threshold else _difference(claim, measured.value)
    if claim.direction in ORDERS and measured.reference is not None:
        difference = measured.value - measured.reference
    return _row(claim, measured, scale, difference, verdict_of(claim, measured), privacy(claim, measured))


def _row(
    claim: Claim, measured: Measured, scale: str, difference: float | None, decided: Verdict, guarantee: str
) -> ClaimRow:
    interval, summary = decided.interval, dict[str, Any](summarise(measured.values))
    return ClaimRow(
        claim,
        scale,
        decided.word,
        guarantee,
        measured.value,
        **summary,
        **{name: getattr(measured, name) for name in _AS_MEASURED},
        n_each=measured.sizes,
        n_planned=measured.planned,
        n_diverged=measured.diverged,
        best_epoch_mean=measured.best,
        difference=difference,
        interval_low=interval.low if interval else None,
        interval_high=interval.high if interval else None,
        runs_have=min((len(sample) for sample in measured.samples), default=None),
        runs_needed=_runs_needed(claim, measured) if decided.word == TOO_FEW_RUNS else None,
        planned_each=" + ".join(map(str, measured.planned_each)),
        spread_each=" + ".join(f"{spread:.4g}" for spread in spreads_of(measured)),
        statements=max(len(measured.every), 1),
        own_precision=own_precision(claim, measured) if decided.word != NOT_JUDGED else None,
        reason=decided.reason,
        how=measured.explanation,
    )


def _difference(claim: Claim, value: float) -> float | None:
    """Return measured minus claimed, or minus the level if the claim is not a number."""
    if claim.aim is None or claim.direction in ORDERS:
        return None
    return round(value - claim.aim, 9)  # 96.6 - 96.1 has to be 0.5


def verdict_of(claim: Claim, measured: Measured) -> Verdict:
    """Judge the number of a claim that has been measured at the paper's scale."""
    if claim.direction == "none":
        return Verdict(NOT_JUDGED, _shown_alone(claim, measured), claim.because)
    if claim.copied:
        return Verdict(NOT_JUDGED, reason="copied from another paper, judged there")
    found = _of_all(claim, measured) if len(measured.every) > 1 else _of_one(claim, measured)
    if measured.lacking and found.word not in (NOT_REPRODUCED, FAILS):
        return replace(found, word=TOO_FEW_RUNS, reason=f"without a run: {', '.join(measured.lacking)}")
    return found


def _shown_alone(claim: Claim, measured: Measured) -> Interval | None:
    """Return the interval of a number that is not judged, or of a difference that no paper claims, if it has one."""
    if claim.direction != "none":
        return None
    if measured.interval_at is not None:
        return measured.interval_at(LEVEL)
    if claim.claimed or measured.comparison != "difference":
        return None
    return interval_of(replace(claim, direction=ORDERS[0]), measured)


def _runs_needed(claim: Claim, measured: Measured) -> int | None:
    """Return a sufficient number of runs of each setting, with the present mean and spread; None if there is none."""
    sizes = [len(sample) for one in (measured, *measured.every) for sample in one.samples]
    if not sizes or measured.lacking or measured.at_least or measured.interval_at is not None:
        return None
    return more_runs(lambda runs: verdict_of(claim, measured.as_if(runs)).word != TOO_FEW_RUNS, min(sizes))


def _of_all(claim: Claim, measured: Measured) -> Verdict:
    """Judge several statements, which all have to hold: the worst word decides.

    All of m hold by chance no more often than one does. One of m true statements is contradicted at 95% with a
    probability of up to m times 5%, so each is contradicted only at 1 - 5%/m (Bonferroni).

    The interval belongs to the statement whose value is shown. If another one decides, its interval is in the reason.
    """
    each = [(one, _of_one(claim, one, len(measured.every))) for one in measured.every]
    shown = next(verdict for one, verdict in each if one.sample is measured.sample and one.against is measured.against)
    for word in _WORST_FIRST:
        deciding = [(one, verdict) for one, verdict in each if verdict.word == word]
        if deciding:
            one, verdict = next((found for found in deciding if found[1] is shown), deciding[0])
            count = f"{len(deciding)} of {len(each)} statements: {word}"
            where = verdict.reason if verdict is shown else _elsewhere(claim, one, verdict)
            return Verdict(word, shown.interval, f"{count}, {where}" if where else count)
    return shown


def _elsewhere(claim: Claim, one: Measured, verdict: Verdict) -> str:
    """Describe the statement that decides, if another one is shown."""
    if verdict.interval is None:
        return verdict.reason
    level = 0.0 if claim.direction in ORDERS or claim.aim is None else claim.aim
    value, low, high = (
        number(each) for each in (one.value, verdict.interval.low + level, verdict.interval.high + level)
    )
    return f"such as one with {value}, which lies in [{low}, {high}]"


def _of_one(claim: Claim, measured: Measured, statements: int = 1) -> Verdict:
    assert measured.value is not None
    if measured.computed:
        return Verdict(HOLDS if _holds(claim, measured) else FAILS)
    if measured.sample and any(map(math.isinf, measured.sample)):
        return _of_never_reached(claim, measured.sample, statements)
    interval = interval_of(claim, measured)
    if interval is None:
        return Verdict(TOO_FEW_RUNS, reason=_without_interval(measured))
    word = _word(claim, measured, statements)
    if word == DIFFERS and measured.chosen_on_test and interval.low * _sign(claim) > 0:
        return Verdict(word, interval, "better, but at an epoch or setting picked on test data")
    if word != TOO_FEW_RUNS:
        return Verdict(word, interval)
    if measured.at_least:
        return Verdict(word, interval, "runs ended before it showed: only a bound is known")
    if measured.lacks:
        return Verdict(word, interval, measured.lacks)
    few = measured.typical is not None and any(len(sample) < FEWEST_RUNS for sample in measured.samples)
    return Verdict(word, interval, "the spread is that of the data set's settings" if few else "")


def _without_interval(measured: Measured) -> str:
    sizes = [len(sample) for sample in measured.samples]
    if not sizes:
        return "no number of each run, so no interval"
    return "one run has no spread" if min(sizes) < 2 else "few runs that all came out the same"


def _word(claim: Claim, measured: Measured, statements: int) -> str:
    def at(level: float) -> Interval:
        found = interval_of(claim, measured, level)
        assert found is not None
        return found

    enough = enough_runs(claim, measured)
    usual, strict = at(LEVEL), at(1 - (1 - LEVEL) / statements)
    if claim.direction in (*ORDERS, *THRESHOLDS):
        sign = 1 if claim.direction.startswith("above") else -1
        if enough and min(sign * usual.low, sign * usual.high) > 0:
            return REPRODUCED
        return NOT_REPRODUCED if max(sign * strict.low, sign * strict.high) < 0 else TOO_FEW_RUNS
    margin = _margin(claim)
    if enough and at(EQUIVALENCE).within(margin):
        return REPRODUCED
    if strict.low > margin or strict.high < -margin:
        if strict.low * _sign(claim) <= 0:
            return NOT_REPRODUCED
        return TOO_FEW_RUNS if not enough else DIFFERS if measured.chosen_on_test else EXCEEDS
    if not enough:
        return TOO_FEW_RUNS
    if strict.low > 0 or strict.high < 0:
        return DIFFERS
    return CONSISTENT if strict.half_width <= WIDEST * margin else TOO_FEW_RUNS


def _sign(claim: Claim) -> int:
    """Return 1 if higher is better, -1 if lower is, 0 if neither is."""
    return {"higher": 1, "lower": -1}.get(claim.direction, 0)


def _of_never_reached(claim: Claim, values: Sequence[float], statements: int) -> Verdict:
    """Judge the cost of reaching a target, if some runs never reach it: their cost is infinite, as in the paper.

    A finite claim means that all of the paper's runs reached the target. It fails if Fisher's exact test distinguishes
    the two numbers of runs at 2.5%, one-sided, divided by the number of statements. The claim that no run reaches it
    holds if none of five or more runs does. Two such runs would be no surprise even if half of all runs reached it.
    """
    never = sum(map(math.isinf, values))
    text = f"{never} of {len(values)} runs never reach it"
    if claim.direction == "above":
        return Verdict(REPRODUCED if never == len(values) >= _NEVER else TOO_FEW_RUNS, reason=text)
    table = [[never, len(values) - never], [0, claim.runs]]
    unlikely = scipy.stats.fisher_exact(table, alternative="greater").pvalue < (1 - LEVEL) / 2 / statements
    return Verdict(NOT_REPRODUCED if unlikely else TOO_FEW_RUNS, reason=text)


def _holds(claim: Claim, measured: Measured) -> bool:
    """Judge a computed number, which is exact."""
    assert measured.value is not None
    above = claim.direction.startswith("above")
    if claim.direction in ORDERS:
        assert measured.reference is not None
        return measured.value > measured.reference if above else measured.value < measured.reference
    difference = _difference(claim, measured.value)
    if difference is None or math.isnan(difference):
        return False
    if claim.direction in THRESHOLDS:
        return difference > 0 if above else difference < 0
    return abs(difference) <= _margin(claim) or difference * _sign(claim) > 0


def _margin(claim: Claim) -> float:
    assert claim.margin is not None
    return claim.margin


def privacy(claim: Claim, measured: Measured) -> str:
    """Judge the epsilon and delta that a claim names, for the runs that were made.

    They are guaranteed if they cover the sound epsilon, an upper bound, and the delta. If they do not, the claim may
    still be true. It is refuted only below a lower bound on the true epsilon.
    """
    if claim.epsilon is None:
        return NONE_CLAIMED
    if measured.epsilon_sound is None:
        return NOT_RUN if measured.value is None else NOT_REACHED
    bound, strict = claim.epsilon
    if math.isinf(bound):
        return NOT_PRIVATE
    at_no_smaller_delta = claim.delta is not None and measured.delta is not None and measured.delta >= claim.delta
    if measured.epsilon_least is not None and measured.epsilon_least > bound and at_no_smaller_delta:
        return REFUTED  # a lower bound at one delta is one at every smaller delta, and at no larger
    holds = measured.epsilon_sound < bound if strict else measured.epsilon_sound <= bound
    return GUARANTEED if holds and not claim.exceeded_by(measured.delta) else NOT_GUARANTEED

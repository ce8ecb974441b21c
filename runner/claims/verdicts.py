"""Does a claim hold? Its number, by an interval, and apart from that its epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from scipy.stats import fisher_exact

from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.evidence import PAPER_SCALE
from runner.claims.intervals import interval_of, more_runs_for
from runner.claims.measured import Measured
from runner.claims.rows import NOT_GUARANTEED as NOT_GUARANTEED
from runner.claims.rows import ClaimRow
from runner.claims.statistics import LEVEL, Interval
from runner.claims.summary import summarise

REPRODUCED, BETTER, NOT_REPRODUCED, NOT_RUN = "reproduced", "better", "not reproduced", "not run"
UNDECIDED, ORDER_HOLDS, ORDER_FAILS, NOT_JUDGED = "undecided", "order holds", "order fails", "not judged"
VERDICTS = (REPRODUCED, BETTER, NOT_REPRODUCED, UNDECIDED, ORDER_HOLDS, ORDER_FAILS, NOT_RUN, NOT_JUDGED)
GUARANTEED, REFUTED = "guaranteed", "refuted"
NOT_PRIVATE, NONE_CLAIMED = "not private", "none claimed"

_FAIL = (NOT_REPRODUCED, ORDER_FAILS)
_NEVER = 5  # runs, none of which reaches a number, before it is taken for one that is never reached


@dataclass(frozen=True)
class Verdict:
    """What follows for a claim's number.

    interval: where measured minus claimed lies, of an order the claim's setting minus the other, at 95%; None where
        there is none.
    more_runs: how many more seeds would decide what is undecided, if they came out like those there are; None where it
        is decided, or where no such number is known.
    reason: why it is undecided or not judged.
    """

    word: str
    interval: Interval | None = None
    more_runs: int | None = None
    reason: str = ""


def judge(claim: Claim, measured: Measured, scale: str) -> ClaimRow:
    """Compare a claim with what was measured for it.

    At any scale but the paper's, runs say nothing about a claim: only what is computed is judged there.
    """
    if measured.value is None:
        return _row(claim, measured, scale, None, Verdict(NOT_RUN), NOT_RUN)
    if scale != PAPER_SCALE and not measured.computed:
        interval = measured.interval if claim.direction == "none" else None
        return _row(claim, measured, scale, None, Verdict(NOT_JUDGED, interval), NOT_JUDGED)
    difference = None if claim.level is not None else _difference(claim, measured.value)
    if claim.direction in ORDERS and measured.reference is not None:
        difference = measured.value - measured.reference
    return _row(claim, measured, scale, difference, _verdict(claim, measured), privacy(claim, measured))


def _row(
    claim: Claim, measured: Measured, scale: str, difference: float | None, decided: Verdict, guarantee: str
) -> ClaimRow:
    summary = {name: value for name, value in asdict(summarise(measured.values)).items() if name != "n"}
    interval = decided.interval
    return ClaimRow(
        claim,
        scale,
        decided.word,
        guarantee,
        measured.value,
        **summary,
        n=measured.n,
        n_each=measured.sizes,
        n_planned=measured.planned,
        n_diverged=measured.diverged,
        computed=measured.computed,
        best_epoch_mean=measured.best,
        at_least=measured.at_least,
        difference=difference,
        interval_low=interval.low if interval else None,
        interval_high=interval.high if interval else None,
        more_runs=decided.more_runs,
        epsilon=measured.epsilon,
        epsilon_tries=measured.epsilon_tries,
        epsilon_sound=measured.epsilon_sound,
        epsilon_least=measured.epsilon_least,
        delta=measured.delta,
        reason=decided.reason,
        how=measured.explanation,
    )


def _difference(claim: Claim, value: float) -> float | None:
    """Measured minus claimed, or minus the target where what is claimed is not a number."""
    if claim.aim is None or claim.direction in ORDERS:
        return None
    return round(value - claim.aim, 9)  # 96.6 - 96.1 has to be 0.5


def _verdict(claim: Claim, measured: Measured) -> Verdict:
    if claim.direction == "none":
        reason = "not a claim of the paper" if claim.source else "nobody claims it"  # of a study
        return Verdict(NOT_JUDGED, measured.interval, reason=reason)
    if claim.copied:
        return Verdict(NOT_JUDGED, reason="copied from another paper, judged there")
    found = _of_all(claim, measured) if len(measured.every) > 1 else _of_one(claim, measured)
    if measured.lacking and found.word not in (*_FAIL, UNDECIDED):
        return replace(found, word=UNDECIDED, reason=f"without a run: {', '.join(measured.lacking)}")
    return found


def _of_all(claim: Claim, measured: Measured) -> Verdict:
    """All of several statements have to hold: one that fails decides, then one that is undecided.

    That all of m hold, each at 95%, is no more likely by chance than one alone. That one of them fails is: for m that
    are true, at up to m times 5%. So one fails where it does at 1 - 5%/m (Bonferroni), and else is undecided.

    The interval is that of the statement whose value is shown. Where another one decides, its own is in the reason.
    """
    each = [(one, _of_one(claim, one, len(measured.every))) for one in measured.every]
    shown = next(v for one, v in each if one is _shown(measured))
    for words in (_FAIL, (UNDECIDED,)):
        of_rank = [(one, v) for one, v in each if v.word in words]
        if of_rank:
            deciding, verdict = next(((one, v) for one, v in of_rank if v is shown), of_rank[0])
            count = f"{len(of_rank)} of {len(each)} statements {'fail' if words is _FAIL else 'are undecided'}"
            more = verdict.more_runs if len(of_rank) == 1 else None
            if verdict is shown:
                kept = verdict.reason if more or verdict.more_runs is None else ""  # of others as many may not do
                return replace(verdict, more_runs=more, reason=_joined(count, kept))
            return Verdict(verdict.word, shown.interval, more, _joined(count, _elsewhere(claim, deciding, verdict)))
    return shown


def _shown(measured: Measured) -> Measured:
    """The statement whose value stands for all."""
    return next(one for one in measured.every if one.sample is measured.sample and one.against is measured.against)


def _elsewhere(claim: Claim, one: Measured, verdict: Verdict) -> str:
    """What decides, where it is not what is shown."""
    if verdict.interval is None:
        return verdict.reason
    level = 0.0 if claim.direction in ORDERS or claim.aim is None else claim.aim
    low, high = verdict.interval.low + level, verdict.interval.high + level
    return f"such as one with {one.value:.4g}, which lies in [{low:.4g}, {high:.4g}]"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _of_one(claim: Claim, measured: Measured, statements: int = 1) -> Verdict:
    """`statements`: how many of the claim it is one of."""
    assert measured.value is not None
    if measured.computed:
        return Verdict(_of_point(claim, measured))
    if measured.sample and any(map(math.isinf, measured.sample.values)):
        return _of_never_reached(claim, measured.sample.values, statements)
    interval = interval_of(claim, measured)
    if interval is None:
        return Verdict(UNDECIDED, reason=_without_interval(claim, measured))
    word = _of_interval(claim, interval)
    if word == BETTER and measured.chosen_on_test:
        return Verdict(UNDECIDED, interval, reason="better, but at an epoch or setting picked on test data")
    if word in _FAIL and statements > 1:
        wider = interval_of(claim, measured, level=1 - (1 - LEVEL) / statements)
        if wider is None or _of_interval(claim, wider) not in _FAIL:
            return Verdict(UNDECIDED, interval, reason=f"it alone would fail, but as one of {statements} by chance")
    if word != UNDECIDED:
        return Verdict(word, interval)
    more = more_runs_for(claim, measured, lambda found: _of_interval(claim, found) != UNDECIDED)
    if measured.at_least:
        return Verdict(word, interval, reason="runs ended before it showed: only a bound is known")
    if measured.interval is not None:
        return Verdict(word, interval, reason="how many more seeds would decide is not known")
    would = f"{more} more {'seed' if more == 1 else 'seeds'}" if more else "no number of seeds"
    return Verdict(word, interval, more, f"{would} like these would decide")


def _without_interval(claim: Claim, measured: Measured) -> str:
    sizes = [len(sample.values) for sample in (measured.sample, measured.against) if sample is not None]
    if not sizes:
        return "no number of each seed, so no interval"
    if min(sizes) < 2:
        return "one run has no spread"
    if measured.statistic == "best":
        return f"the best of {claim.runs} is judged by {claim.runs} runs"
    return "too few runs to take their agreement for a spread of zero"


def _of_interval(claim: Claim, interval: Interval) -> str:
    """The verdict that the whole interval gives; undecided where it gives none."""
    low, high = interval.low, interval.high
    if claim.direction in ORDERS:
        holds, fails = (low > 0, high < 0) if claim.direction == "above_other" else (high < 0, low > 0)
        return ORDER_HOLDS if holds else ORDER_FAILS if fails else UNDECIDED
    if claim.direction in THRESHOLDS:
        holds, fails = (low > 0, high <= 0) if claim.direction == "above" else (high < 0, low >= 0)
        return REPRODUCED if holds else NOT_REPRODUCED if fails else UNDECIDED
    tolerance = _margin(claim)
    if interval.within(tolerance):
        return REPRODUCED
    above, below = low > tolerance, high < -tolerance
    if (above and claim.direction == "higher") or (below and claim.direction == "lower"):
        return BETTER
    return NOT_REPRODUCED if above or below else UNDECIDED


def _of_never_reached(claim: Claim, values: Sequence[float], statements: int) -> Verdict:
    """Runs of which some never reach what the claimed number is the cost of: infinite, as the paper counts them.

    A finite claim means that all of the paper's runs reached it. It fails where Fisher's exact test tells the two
    numbers of runs apart, at 2.5% (over all the `statements` of a claim) as it looks to one side. That it is never
    reached holds where none of five runs or more does: a run in two may reach it, and two that do not are no surprise.
    """
    never = sum(map(math.isinf, values))
    text = f"{never} of {len(values)} runs never reach it"
    if claim.direction == "above":
        return Verdict(REPRODUCED if never == len(values) >= _NEVER else UNDECIDED, reason=text)
    table = [[never, len(values) - never], [0, claim.runs]]
    unlikely = fisher_exact(table, alternative="greater").pvalue < (1 - LEVEL) / 2 / statements
    return Verdict(NOT_REPRODUCED if unlikely else UNDECIDED, reason=text)


def _of_point(claim: Claim, measured: Measured) -> str:
    """What is computed is exact: the number alone decides."""
    assert measured.value is not None
    if claim.direction in ORDERS:
        assert measured.reference is not None
        gap = measured.value - measured.reference
        return ORDER_HOLDS if (gap > 0 if claim.direction == "above_other" else gap < 0) else ORDER_FAILS
    difference = _difference(claim, measured.value)
    if difference is None or math.isnan(difference):
        return NOT_REPRODUCED
    if claim.direction in THRESHOLDS:
        return REPRODUCED if (difference > 0) == (claim.direction == "above") and difference != 0 else NOT_REPRODUCED
    if abs(difference) <= _margin(claim):
        return REPRODUCED
    better = {"higher": difference > 0, "lower": difference < 0, "match": False}[claim.direction]
    return BETTER if better else NOT_REPRODUCED


def _margin(claim: Claim) -> float:
    assert claim.margin is not None
    return claim.margin


def privacy(claim: Claim, measured: Measured) -> str:
    """Whether the epsilon and delta that a claim names hold for what was run.

    Guaranteed where they cover its sound epsilon, an upper bound, and its delta. That they do not shows nothing false:
    refuted is a claim below a lower bound on the true epsilon.
    """
    if claim.epsilon is None:
        return NONE_CLAIMED
    if measured.epsilon_sound is None:
        return NOT_RUN if measured.value is None else UNDECIDED  # what it is claimed for was not reached
    bound, strict = claim.epsilon
    if math.isinf(bound):
        return NOT_PRIVATE
    at_no_smaller_delta = claim.delta is not None and measured.delta is not None and measured.delta >= claim.delta
    if measured.epsilon_least is not None and measured.epsilon_least > bound and at_no_smaller_delta:
        return REFUTED  # a lower bound at one delta is one at every smaller delta, and at no larger
    holds = measured.epsilon_sound < bound if strict else measured.epsilon_sound <= bound
    return GUARANTEED if holds and not delta_exceeded(claim, measured) else NOT_GUARANTEED


def delta_exceeded(claim: Claim, measured: Measured) -> bool:
    """Whether what was run is at another, larger delta than the claim's, or at none that is known."""
    return claim.delta is not None and (measured.delta is None or measured.delta > claim.delta)

"""Verdicts on a claim: on its number by an interval, and on its epsilon.

A claim has one of five words, by a rule that stands next to it in `claims.csv`. `RULES` has all of them. Of several
readings of a claim the first one counts, and a number for context does not (`Claim.counted`). A claim that was run at
another scale than the paper's has no word, so it does not count either.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any

import scipy

from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.evidence import PAPER_SCALE
from runner.claims.intervals import EQUIVALENCE, LEVEL, Interval, more_runs, summarise
from runner.claims.measurement import FEWEST_RUNS, Measured, enough_runs, interval_of, means_of, own_precision
from runner.terminal import number

HOLDS, NOT_CONTRADICTED, DIFFERS, FAILS, OPEN = WORDS = ("holds", "not contradicted", "differs", "fails", "open")
CONFIRMED = (HOLDS, NOT_CONTRADICTED)
GUARANTEED, NOT_GUARANTEED, REFUTED = ON_EPSILON = ("guaranteed", "not guaranteed", "refuted")

WIDEST = 2  # margins that the half-width of an interval may have for *not contradicted*
_AS_MEASURED = ("n", "computed", "at_least", "epsilon", "epsilon_spent", "epsilon_sound", "epsilon_least", "delta")
_NEVER = 5  # runs that all have to fail before a number is taken for one that is never reached
NO_DIFFERENCE = "no difference beyond the margin"
_WORST_FIRST = (FAILS, DIFFERS, OPEN, NOT_CONTRADICTED)  # of several statements that all have to hold


def capitalised(text: str) -> str:
    """Begin a sentence with a capital letter, unless it begins with ε or δ."""
    return text[0].upper() + text[1:] if text[0].isascii() else text


@dataclass(frozen=True)
class ClaimRow:
    """A claim with its outcome.

    For columns that it shares with `runner.claims.measurement.Measured`, see there.

    verdict, rule, reason: one of the five words, the rule that gives it, and the reason if it is open. For context all
        are "", but for the reason to show it.
    guarantee: guaranteed, not guaranteed or refuted: the state of the claimed epsilon; "" if there is none to judge.
    measured: the number that is compared with the claim, if any. mean to max: statistics of the runs' numbers.
    measured_is: what that number is: "mean of 5", "best of 5", "one run", "by formula".
    difference: measured minus claimed, or minus the level that is to be passed; for an order, the claim's setting minus
        the other.
    interval_low, interval_high: the 95% interval of the difference. For a level, pages show the interval of the
        measured number, which is this one plus the level.
    runs_have, runs_needed: for an open claim, the present and the sufficient number of runs for each setting.
    own_precision: half the 95% interval of the claimed mean itself, if the paper's runs spread as the measured ones do.
    n_each, planned_each, spread_each: the recorded and the planned runs, "5 + 5", and the standard deviation of a run,
        of each setting that is compared (of its logarithm if a ratio is claimed); empty if unknown.
    statements: the number of statements of this kind, which all have to hold.
    """

    claim: Claim
    scale: str
    verdict: str = ""
    guarantee: str = ""
    rule: str = ""
    measured: float | None = None
    measured_is: str = ""
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    median: float | None = None
    max: float | None = None
    n: int = 0
    n_each: str = ""
    n_planned: int = 0
    n_diverged: int = 0
    computed: bool = False
    best_epoch_mean: float | None = None
    at_least: bool = False
    difference: float | None = None
    interval_low: float | None = None
    interval_high: float | None = None
    runs_have: int | None = None
    runs_needed: int | None = None
    own_precision: float | None = None
    planned_each: str = ""
    spread_each: str = ""
    statements: int = 1
    epsilon: float | None = None
    epsilon_spent: float | None = None
    epsilon_sound: float | None = None
    epsilon_least: float | None = None
    delta: float | None = None
    reason: str = ""
    how: str = ""

    @property
    def interval(self) -> Interval | None:
        """The interval of the difference, if there is one."""
        if self.interval_low is None or self.interval_high is None:
            return None
        return Interval(self.interval_low, self.interval_high)

    @property
    def bad(self) -> bool:
        """True if it fails or differs, or if its epsilon is refuted."""
        return self.verdict in (FAILS, DIFFERS) or self.guarantee == REFUTED

    @property
    def explanation(self) -> str:
        """A note for the reader: all that speaks for or against the verdict, then how it was measured."""
        parts = [self.reason, f"chosen here: {self.claim.open}" if self.claim.open else ""]
        if 0 < self.n < self.n_planned:
            parts.append(f"partial: {self.n} of {self.n_planned} runs")
        if self.n_diverged:
            parts.append(f"{self.n_diverged} diverged, counted as they ended")
        if self.guarantee == NOT_GUARANTEED and self.claim.exceeded_by(self.delta):
            run = "unknown" if self.delta is None else f"{self.delta:g}"
            parts.append(f"the δ of the runs, {run}, is above the claimed δ, {self.claim.delta:g}")
        sentences = filter(None, (*parts, self.how, self.claim.note))
        return ". ".join(map(capitalised, sentences))


def counted(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    """Select the rows that lists and totals are made of: one for each claim that has a word."""
    return [row for row in rows if row.claim.counts and row.verdict]


def count_words(rows: Sequence[ClaimRow]) -> Counter[str]:
    """Count claims by verdict."""
    return Counter(row.verdict for row in counted(rows))


def count_nulls(rows: Sequence[ClaimRow]) -> int:
    """Count the open claims that show no difference beyond their margin."""
    return sum(row.rule == NULL.text for row in counted(rows))


@dataclass(frozen=True)
class Rule:
    """A word, and the condition under which a claim gets it."""

    word: str
    text: str


EQUAL = Rule(HOLDS, "the 90% interval lies within the margin (an equivalence test at 5%)")
BETTER = Rule(HOLDS, "the 95% interval lies beyond the margin on the good side")
PASSED = Rule(HOLDS, "the 95% interval lies on the claimed side")
NEVER = Rule(HOLDS, f"as claimed, no run reaches it, of at least {_NEVER}")
DERIVED = Rule(HOLDS, "a formula gives the number within the margin, or better, or on the claimed side")
INSIDE = Rule(NOT_CONTRADICTED, f"the claim lies in the 95% interval, whose half-width is at most {WIDEST} margins")
OUTSIDE = Rule(DIFFERS, "the claim lies outside the 95% interval, which reaches into the margin")
CHOSEN = Rule(DIFFERS, "better by more than the margin, but at an epoch or setting picked on test data")
BEST_WITHIN = Rule(
    DIFFERS, "beyond the margin on the bad side by the mean, but not by the best of the runs, and the claim is a best"
)
BEYOND = Rule(FAILS, "the 95% interval lies beyond the margin on the bad side")
MISSED = Rule(FAILS, "the 95% interval lies on the other side")
UNREACHED = Rule(
    FAILS, "more runs never reach it than chance explains, by Fisher's exact test against the paper's runs"
)
REFUTED_BY_FORMULA = Rule(FAILS, "a formula gives a number beyond the margin, or on the other side")
NULL = Rule(OPEN, "of an order or a threshold, the 95% interval lies within the margin: no difference that matters")
WIDE = Rule(OPEN, "the 95% interval is too wide for any other word")
FEW = Rule(OPEN, f"fewer than {FEWEST_RUNS} runs of a setting, or of a best of k fewer than k, and no contradiction")
SOME = Rule(OPEN, "some runs never reach it, but too few to tell them from the paper's, or from half of all")
LACKING = Rule(OPEN, "a setting that is compared has no run, and the others do not contradict the claim")
UNMEASURED = Rule(OPEN, "no run")
RULES = (
    *(EQUAL, BETTER, PASSED, NEVER, DERIVED, INSIDE, OUTSIDE, CHOSEN, BEST_WITHIN),
    *(BEYOND, MISSED, UNREACHED, REFUTED_BY_FORMULA, NULL, WIDE, FEW, SOME, LACKING, UNMEASURED),
)


@dataclass(frozen=True)
class Verdict:
    """The outcome for a claim's number.

    rule: what decided; None for a number that is shown for context.
    interval: the 95% interval of measured minus claimed, or for an order of the claim's setting minus the other.
    reason: the reason for an open claim, or for no verdict.
    """

    rule: Rule | None
    interval: Interval | None = None
    reason: str = ""

    @property
    def word(self) -> str:
        """One of the five words, or "" for a number that is shown for context."""
        return self.rule.word if self.rule else ""


def judge(claim: Claim, measured: Measured, scale: str) -> ClaimRow:
    """Compare a claim with its measurement.

    At any scale but the paper's, only claims computed without runs are judged.
    """
    difference, guarantee = None, ""
    if measured.value is None:
        verdict = Verdict(None if claim.contextual else UNMEASURED)
    elif scale != PAPER_SCALE and not measured.computed:
        verdict = Verdict(None, _shown_alone(claim, measured))
    else:
        verdict, guarantee = verdict_of(claim, measured), privacy(claim, measured)
        difference = _difference(claim, measured.value)
        if claim.direction in ORDERS and measured.reference is not None:
            difference = measured.value - measured.reference
    interval, sizes, runs_needed = verdict.interval, [len(sample) for sample in measured.samples], None
    all_sizes = [len(sample) for statement in (measured, *measured.statements) for sample in statement.samples]
    fixed = measured.lacking or measured.at_least or measured.interval_at is not None  # more runs do not help
    if verdict.word == OPEN and verdict.rule is not NULL and all_sizes and not fixed:
        runs_needed = more_runs(lambda runs: verdict_of(claim, measured.as_if(runs)).word != OPEN, min(all_sizes))
    return ClaimRow(
        claim,
        scale,
        verdict.word,
        guarantee,
        rule=verdict.rule.text if verdict.rule else "",
        measured=measured.value,
        measured_is=measured.what,
        **dict[str, Any](summarise(measured.values)),
        **{name: getattr(measured, name) for name in _AS_MEASURED},
        n_each=" + ".join(map(str, sizes)) if len(sizes) > 1 else "",
        n_planned=measured.planned,
        n_diverged=measured.diverged,
        best_epoch_mean=measured.best,
        difference=difference,
        interval_low=interval.low if interval else None,
        interval_high=interval.high if interval else None,
        runs_have=min(sizes, default=None),
        runs_needed=runs_needed,
        planned_each=" + ".join(map(str, measured.planned_each)),
        spread_each=" + ".join(f"{mean.spread.std:.4g}" for mean in means_of(measured)),
        statements=max(len(measured.statements), 1),
        own_precision=own_precision(claim, measured) if verdict.rule else None,
        reason=verdict.reason,
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
        return Verdict(None, _shown_alone(claim, measured), claim.because)
    if claim.copied:
        return Verdict(None, reason="copied from another paper, judged there")
    verdict = _worst(claim, measured) if len(measured.statements) > 1 else _statement_verdict(claim, measured)
    if measured.lacking and verdict.word != FAILS:
        return replace(verdict, rule=LACKING, reason=f"without a run: {', '.join(measured.lacking)}")
    return verdict


def _shown_alone(claim: Claim, measured: Measured) -> Interval | None:
    """Return the interval of a number that is not judged, or of a difference that no paper claims, if it has one."""
    if claim.direction != "none":
        return None
    if measured.interval_at is not None:
        return measured.interval_at(LEVEL)
    if claim.claimed or measured.comparison != "difference":
        return None
    return interval_of(replace(claim, direction=ORDERS[0]), measured)


def _worst(claim: Claim, measured: Measured) -> Verdict:
    """Judge several statements, which all have to hold: the worst word decides.

    All of m hold by chance no more often than one does. One of m true statements is contradicted at 95% with a
    probability of up to m times 5%, so each is contradicted only at 1 - 5%/m (Bonferroni).

    The interval belongs to the statement whose value is shown. If another one decides, its interval is in the reason.
    """
    count = len(measured.statements)
    verdicts = [(statement, _statement_verdict(claim, statement, count)) for statement in measured.statements]
    samples = measured.sample, measured.against
    shown = next(v for statement, v in verdicts if all(map(is_, (statement.sample, statement.against), samples)))
    for word in _WORST_FIRST:
        deciding = [(statement, verdict) for statement, verdict in verdicts if verdict.word == word]
        deciding = [pair for pair in deciding if pair[1].rule is not NULL] or deciding
        if deciding:
            statement, verdict = next((pair for pair in deciding if pair[1] is shown), deciding[0])
            where = verdict.reason
            if verdict is not shown and (interval := verdict.interval) is not None:
                level = 0.0 if claim.direction in ORDERS or claim.aim is None else claim.aim
                value = number(statement.value, bound="upper" if claim.unit == "epsilon" else None)
                low, high = number(interval.low + level), number(interval.high + level)
                where = f"such as one with {value}, which lies in [{low}, {high}]"
            text = f"{len(deciding)} of {count} statements: {word}"
            return Verdict(verdict.rule, shown.interval, f"{text}, {where}" if where else text)
    return shown


def _statement_verdict(claim: Claim, measured: Measured, statements: int = 1) -> Verdict:
    assert measured.value is not None
    if measured.computed:
        return Verdict(DERIVED if _holds(claim, measured) else REFUTED_BY_FORMULA)
    if measured.sample and any(map(math.isinf, measured.sample)):
        return _unreached_verdict(claim, measured.sample, statements)
    interval = interval_of(claim, measured)
    if interval is None:
        sizes = [len(sample) for sample in measured.samples]
        alike = "one run has no spread" if min(sizes, default=0) < 2 else "few runs that all came out the same"
        return Verdict(FEW, reason=alike if sizes else "no number of each run, so no interval")
    rule = _rule(claim, measured, statements)
    if rule.word != OPEN or rule is NULL:
        return Verdict(rule, interval, NO_DIFFERENCE if rule is NULL else "")
    if measured.at_least:
        return Verdict(rule, interval, "runs ended before it showed: only a bound is known")
    if measured.lacks:
        return Verdict(rule, interval, measured.lacks)
    few = measured.typical is not None and any(len(sample) < FEWEST_RUNS for sample in measured.samples)
    return Verdict(rule, interval, "the spread is that of the data set's settings" if few else "")


def _rule(claim: Claim, measured: Measured, statements: int) -> Rule:
    def at(level: float) -> Interval:
        interval = interval_of(claim, measured, level)
        assert interval is not None
        return interval

    enough = enough_runs(claim, measured)
    usual, strict = at(LEVEL), at(1 - (1 - LEVEL) / statements)
    if claim.direction in (*ORDERS, *THRESHOLDS):
        sign = 1 if claim.direction.startswith("above") else -1
        if enough and min(sign * usual.low, sign * usual.high) > 0:
            return PASSED
        if max(sign * strict.low, sign * strict.high) < 0:
            return MISSED
        if enough and claim.margin and usual.within(claim.margin):
            return NULL
        return WIDE if enough else FEW
    margin, sign = claim.margin or 0.0, _SIGNS.get(claim.direction, 0)
    if enough and at(EQUIVALENCE).within(margin):
        return EQUAL
    if strict.low > margin or strict.high < -margin:
        if strict.low * sign <= 0:
            return BEYOND if _best_beyond(claim, measured) else BEST_WITHIN
        return FEW if not enough else CHOSEN if measured.chosen_on_test else BETTER
    if not enough:
        return FEW
    if strict.low > 0 or strict.high < 0:
        return OUTSIDE
    return INSIDE if strict.half_width <= WIDEST * margin else WIDE


def _best_beyond(claim: Claim, measured: Measured) -> bool:
    """Return False if a mean is compared with a best, and the best of its own runs is not worse by the margin."""
    sign = _SIGNS.get(claim.direction, 0)
    if not claim.is_best or measured.statistic != "mean" or measured.comparison == "ratio" or not sign:
        return True
    best, *against = (max(sign * value for value in sample) for sample in measured.samples)
    return best - sum(against) - sign * (claim.aim or 0.0) < -(claim.margin or 0.0)


_SIGNS = {"higher": 1, "lower": -1}  # of a better number, by direction


def _unreached_verdict(claim: Claim, values: Sequence[float], statements: int) -> Verdict:
    """Judge the cost of reaching a target, if some runs never reach it: their cost is infinite.

    A finite claim means that all of the paper's runs reached the target. It fails if Fisher's exact test distinguishes
    the two numbers of runs at 2.5%, one-sided, divided by the number of statements. The claim that no run reaches it
    holds if none of five or more runs does. Two such runs would be no surprise even if half of all runs reached it.
    """
    never = sum(map(math.isinf, values))
    text = f"{never} of {len(values)} runs never reach it"
    if claim.direction == "above":
        return Verdict(NEVER if never == len(values) >= _NEVER else SOME, reason=text)
    table = [[never, len(values) - never], [0, claim.runs]]
    unlikely = scipy.stats.fisher_exact(table, alternative="greater").pvalue < (1 - LEVEL) / 2 / statements
    return Verdict(UNREACHED if unlikely else SOME, reason=text)


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
    return abs(difference) <= (claim.margin or 0.0) or difference * _SIGNS.get(claim.direction, 0) > 0


def privacy(claim: Claim, measured: Measured) -> str:
    """Judge the epsilon and delta that a claim names, for the runs that were made.

    They are guaranteed if they cover the sound epsilon, an upper bound, and the delta. If they do not, the claim may
    still be true. It is refuted only below a lower bound on the true epsilon. The word is "" for a claim without an
    epsilon, for training without privacy, and if no run got as far as the claim.
    """
    if claim.epsilon is None or measured.epsilon_sound is None or math.isinf(claim.epsilon[0]):
        return ""
    bound, strict = claim.epsilon
    at_no_smaller_delta = claim.delta is not None and measured.delta is not None and measured.delta >= claim.delta
    if measured.epsilon_least is not None and measured.epsilon_least > bound and at_no_smaller_delta:
        return REFUTED  # a lower bound at one delta is one at every smaller delta, and at no larger
    holds = measured.epsilon_sound < bound if strict else measured.epsilon_sound <= bound
    return GUARANTEED if holds and not claim.exceeded_by(measured.delta) else NOT_GUARANTEED

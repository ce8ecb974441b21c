"""A judged claim: the claim, its measurement and the verdict. Pages, tables and counts are made of these.

Of several readings of a claim the first one counts, and a number for context does not (`Claim.counted`). A claim that
was run at another scale than the paper's has no word, so it does not count either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runner.claims.claim import Claim
from runner.claims.statistics import Interval

NOT_GUARANTEED = "not guaranteed"


def capitalised(text: str) -> str:
    """Begin a sentence with a capital letter, unless it begins with ε or δ."""
    return text[0].upper() + text[1:] if text[0].isascii() else text


@dataclass(frozen=True)
class ClaimRow:
    """A claim with its outcome.

    verdict, rule, reason: one of the five words, the rule that gives it, and the reason if it is open. For context all
        are "", but for the reason to show it.
    guarantee: guaranteed, not guaranteed or refuted: the state of the claimed epsilon; "" if there is none to judge.
    measured: the number that is compared with the claim, if any. mean to max: statistics of the runs' numbers.
    measured_is: what that number is: "mean of 5", "best of 5", "one run", "by formula".
    n, n_planned, n_diverged: numbers of recorded, planned, and recorded but diverged runs.
    n_each: "5 + 5" for two settings.
    computed: True if it follows without runs.
    best_epoch_mean: the best epoch's accuracy, chosen on the evaluation data.
    at_least: True if the number is only a lower bound.
    difference: measured minus claimed, or minus the level that is to be passed; for an order, the claim's setting minus
        the other.
    interval_low, interval_high: the 95% interval of the difference. For a level, pages show the interval of the
        measured number, which is this one plus the level.
    runs_have, runs_needed: for an open claim, the present and the sufficient number of runs for each setting.
    own_precision: half the 95% interval of the claimed mean itself, if the paper's runs spread as the measured ones do.
    planned_each, spread_each: the planned runs, "5 + 5", and the standard deviation of a run, of each setting that is
        compared (of its logarithm if a ratio is claimed); empty if unknown.
    statements: the number of statements of this kind, which all have to hold.
    epsilon, epsilon_sound, epsilon_spent, epsilon_least, delta: see `runner.claims.measurement.Measured`.
    how: the way it was measured, in words.
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
    def explanation(self) -> str:
        """A note for the reader.

        It has the verdict's reason, the settings that the paper leaves open, missing and diverged runs, and a delta
        above the claimed one. Then come the way of measuring and the claim's own note.
        """
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


def count_guarantees(rows: Sequence[ClaimRow]) -> Counter[str]:
    """Count claims by the word on their epsilon, if they have one."""
    return Counter(row.guarantee for row in counted(rows) if row.guarantee)

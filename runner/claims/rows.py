"""A judged claim: what was claimed, what was measured, and what follows. Pages and tables are made of these."""

from __future__ import annotations

from dataclasses import dataclass

from runner.claims.claim import Claim
from runner.claims.statistics import Interval

NOT_GUARANTEED = "not guaranteed"


@dataclass(frozen=True)
class ClaimRow:
    """A claim with its outcome.

    verdict, reason: the word, and why there are too few runs or it is not judged.
    guarantee: whether the claimed epsilon holds: guaranteed, not guaranteed, refuted and so on.
    measured: the number that is compared with the claim; None where there is none. mean to max: of the runs' numbers.
    n, n_planned, n_diverged: recorded runs, planned ones, and of the recorded ones diverged. n_each: "5 + 5" of two
        settings, "6 x 5" of several.
    computed: whether it follows without runs.
    best_epoch_mean: the best epoch's accuracy, chosen on the evaluation data.
    at_least: whether no more is known than that the number is at least that.
    difference: measured less claimed; of an order, the claim's setting less the other.
    interval_low, interval_high: where that lies, at 95%.
    runs_have, runs_needed: of too few runs, how many of each setting there are, and how many would do.
    own_precision: half the 95% interval of the claimed mean itself, if the paper's runs spread as those measured.
    reproducible: whether the planned runs could show equality within the margin; None where that is not known.
    planned_each, spread_each: of the one or two settings that are compared, the planned runs and the standard deviation
        of a run (of its logarithm where a ratio is claimed), "5 + 5"; empty where they are not known.
    statements: how many statements of this kind all have to hold.
    epsilon, epsilon_sound, epsilon_tries, epsilon_least, delta: see `runner.claims.measured.Measured`.
    how: how it was measured, in words.
    """

    claim: Claim
    scale: str
    verdict: str
    guarantee: str
    measured: float | None = None
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
    reproducible: bool | None = None
    planned_each: str = ""
    spread_each: str = ""
    statements: int = 1
    epsilon: float | None = None
    epsilon_tries: float | None = None
    epsilon_sound: float | None = None
    epsilon_least: float | None = None
    delta: float | None = None
    reason: str = ""
    how: str = ""

    @property
    def interval(self) -> Interval | None:
        """The interval of the difference; None where there is none."""
        if self.interval_low is None or self.interval_high is None:
            return None
        return Interval(self.interval_low, self.interval_high)

    @property
    def explanation(self) -> str:
        """For the reader: the reason, what of the setting the paper leaves open, runs that lack or diverged, a delta
        above the claimed one, how it was measured, and the claim's own note.
        """
        parts = [self.reason, f"chosen here: {self.claim.open}" if self.claim.open else ""]
        if 0 < self.n < self.n_planned:
            parts.append(f"partial: {self.n} of {self.n_planned} runs")
        if self.n_diverged:
            parts.append(f"{self.n_diverged} diverged, counted as they ended")
        if self.guarantee == NOT_GUARANTEED and self.claim.exceeded_by(self.delta):
            run = "unknown" if self.delta is None else f"{self.delta:g}"
            parts.append(f"the δ of the runs, {run}, is above the claimed δ, {self.claim.delta:g}")
        return ". ".join(_capital(part) for part in (*parts, self.how, self.claim.note) if part)


def _capital(text: str) -> str:
    """Begin a sentence with a capital letter, but leave ε and δ."""
    return text[0].upper() + text[1:] if text[0].isascii() else text

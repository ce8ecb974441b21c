"""Claims next to measurements, as cells of a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.rows import ClaimRow
from runner.claims.statistics import Interval
from runner.claims.verdicts import FAILS, HOLDS, TOO_FEW_RUNS
from runner.report.files import Table, bound_text, number, plus_minus

CLAIMED_EPSILON = "the claimed ε is"  # guaranteed, or not

HEADER = (
    *("dataset", "method", "claimed", "margin", "at ε"),
    *("measured", "min / median / max", "n", "best epoch", "difference [95%]", "verdict"),
    *("ε of the run", "sound ε of the run", CLAIMED_EPSILON),
)


@dataclass(frozen=True)
class Cells:
    """A judged claim as texts, in the units of the claim; a dash for what there is not.

    measured: the number ± the standard deviation of the runs, if it is their mean. runs: "3 of 10" or "computed".
    spread: minimum / median / maximum.
    """

    dataset: str
    method: str
    claimed: str
    margin: str
    at: str
    measured: str
    spread: str
    runs: str
    best: str
    difference: str
    verdict: str
    epsilon: str
    sound: str
    guarantee: str

    @property
    def measured_of(self) -> str:
        """The number and, in brackets, its runs."""
        return f"{self.measured} ({self.runs})" if self.runs else self.measured


def cells_of(row: ClaimRow) -> Cells:
    """The cells of a judged claim."""
    claim, unit = row.claim, row.claim.unit
    std = row.std if row.measured == row.mean and not row.at_least else None  # of runs: of no maximum and no bound
    spread = [number(v, unit) for v in (row.min, row.median, row.max) if v is not None]
    return Cells(
        dataset=claim.dataset,
        method=method_text(claim),
        claimed=claim.claimed or "qualitative",
        margin=margin_text(row),
        at=claim.at_epsilon.replace("inf", "∞") or "–",
        measured=plus_minus(row.measured, std, unit, at_least=row.at_least),
        spread=" / ".join(spread) or "–",
        runs="computed" if row.computed else f"{row.n_each or row.n} of {row.n_planned}" if row.n_planned else "",
        best=plus_minus(row.best_epoch_mean, None, unit),
        difference=difference_text(row.difference, unit, row.interval, claim.level),
        verdict=verdict_text(row),
        epsilon=number(row.epsilon),
        sound=sound_text(row.epsilon_sound, row.epsilon_tries),
        guarantee=row.guarantee,
    )


def claim_cells(rows: Sequence[ClaimRow]) -> tuple[Sequence[str], list[list[str]]]:
    """Header and rows, one row a claim, in the order of HEADER."""
    return HEADER, [_row(cells_of(row)) for row in rows]


def claims_table(rows: Sequence[ClaimRow]) -> Table:
    """The claims of an item, for items that have no table of their own."""
    notes = [f"{row.claim.dataset}, {row.claim.method}: {row.explanation}." for row in rows if row.explanation]
    return Table(*claim_cells(rows), tuple(notes))


def _row(of: Cells) -> list[str]:
    what = [of.dataset, of.method, of.claimed, of.margin, of.at]
    found = [of.measured, of.spread, of.runs or "0 of 0", of.best, of.difference, of.verdict]
    return [*what, *found, of.epsilon, of.sound, of.guarantee]


def method_text(claim: Claim) -> str:
    """The method, what is claimed of it where that is not its accuracy, and in brackets how the paper is read."""
    what = "" if claim.quantity == "test_accuracy" else f": {claim.quantity.replace('_', ' ')}"
    return claim.method + what + (f" ({claim.reading})" if claim.reading else "")


def difference_text(difference: float | None, unit: str, interval: Interval | None, level: float | None = None) -> str:
    """A difference with its sign and its interval in brackets; a dash where there is neither.

    Where a level is claimed, the interval is that of what was measured, beside the level.
    """
    if interval is None:
        return "–" if difference is None else _signed(difference, unit)
    if level is not None:
        low, high = (number(end + level, unit) for end in (interval.low, interval.high))
        return f"[{low}, {high}] beside {number(level, unit)}"
    ends = f"[{_signed(interval.low, unit)}, {_signed(interval.high, unit)}]"
    return ends if difference is None else f"{_signed(difference, unit)} {ends}"


def _signed(value: float, unit: str) -> str:
    return ("+" if value >= 0 else "−") + number(abs(value), unit)


def margin_text(row: ClaimRow) -> str:
    """The margin, with the precision of the claimed mean itself where that is coarser; a dash where there is none."""
    if row.claim.margin is None or row.claim.direction in (*THRESHOLDS, *ORDERS):
        return "–"
    margin, own = row.claim.margin, row.own_precision
    return f"{margin:g}" if own is None else f"{margin:g} (own precision ±{own:.2g})"


def verdict_text(row: ClaimRow) -> str:
    """The verdict; of too few runs, how many of a setting there are of those that would do."""
    if row.verdict == TOO_FEW_RUNS and row.runs_needed:
        return f"{row.verdict} ({row.runs_have} of {row.runs_needed})"
    return f"{row.verdict} (by formula)" if row.verdict in (HOLDS, FAILS) else row.verdict


def sound_text(sound: float | None, tries: float | None) -> str:
    """The sound epsilon, and that of the tries that were made where a run could have made more."""
    text = bound_text(sound)
    return text if tries is None else f"{text} (tries made: {bound_text(tries)})"

"""Claims next to measurements, as cells of a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from runner.report.files import Table, bound_text, number, plus_minus
from runner.report.statistics import Interval
from runner.report.verdicts import NOT_JUDGED, NOT_RUN, Judged, explanation

CLAIMED_EPSILON = "the claimed ε is"  # guaranteed, or not

_MEASURED = ("measured", "min / median / max", "n", "best epoch", "difference [95%]", "verdict")
HEADER = (
    *("dataset", "method", "claimed", "tolerance", "at ε"),
    *_MEASURED,
    *("ε of the run", "sound ε of the run", CLAIMED_EPSILON),
)


def claim_cells(judged: Sequence[Judged]) -> tuple[Sequence[str], list[list[str]]]:
    """Header and rows, one row a claim, in the order of HEADER."""
    return HEADER, [_row(j) for j in judged]


def claims_table(judged: Sequence[Judged]) -> Table:
    """The claims of an item, for items that have no table of their own."""
    notes = [f"{j.claim.dataset}, {j.claim.method}: {explanation(j)}." for j in judged if explanation(j)]
    return Table(*claim_cells(judged), tuple(notes))


def _row(judged: Judged) -> list[str]:
    claim, measured = judged.claim, judged.measured
    unit = claim.unit
    return [
        *(claim.dataset, method_text(claim.method, claim.quantity)),
        claim.claimed_value or "qualitative",
        claim.tolerance or "–",
        claim.privacy_epsilon.replace("inf", "∞") or "–",
        *measured_text(judged),
        difference_text(judged.difference, unit, judged.decided.interval, claim.target),
        verdict_text(judged.verdict, judged.decided.more_runs, claim.ours),
        number(measured.epsilon),
        sound_text(measured.epsilon_sound, measured.epsilon_tries),
        judged.privacy,
    ]


def method_text(method: str, quantity: str) -> str:
    """The method, and what is claimed of it where that is not its accuracy."""
    return method if quantity == "test_accuracy" else f"{method}: {quantity.replace('_', ' ')}"


def measured_text(judged: Judged) -> list[str]:
    """Value ± standard deviation, minimum / median / maximum, n of planned, and the best epoch's accuracy."""
    measured, summary, unit = judged.measured, judged.summary, judged.claim.unit
    spread = "–"
    if summary.min is not None and summary.median is not None and summary.max is not None:
        spread = " / ".join(number(v, unit) for v in (summary.min, summary.median, summary.max))
    of_the_mean = measured.value == summary.mean and not measured.at_least
    std = summary.std if of_the_mean else None  # the std of runs is not that of their maximum, nor of bounds
    return [
        plus_minus(measured.value, std, unit, at_least=measured.at_least),
        spread,
        runs_count(judged),
        plus_minus(measured.best, None, unit),
    ]


def runs_count(judged: Judged) -> str:
    """`3 of 10`, or `computed`."""
    measured = judged.measured
    return "computed" if measured.computed else f"{measured.sizes or measured.n} of {measured.planned}"


def difference_text(difference: float | None, unit: str, interval: Interval | None, target: str) -> str:
    """A difference with its sign and its interval in brackets; a dash where there is neither.

    Where a level is claimed, `target`, the interval is that of what was measured, beside the level.
    """
    if interval is None:
        return "–" if difference is None else _signed(difference, unit)
    if target:
        level = float(target)
        low, high = (number(end + level, unit) for end in (interval.low, interval.high))
        return f"[{low}, {high}] beside {number(level, unit)}"
    ends = f"[{_signed(interval.low, unit)}, {_signed(interval.high, unit)}]"
    return ends if difference is None else f"{_signed(difference, unit)} {ends}"


def _signed(value: float, unit: str) -> str:
    return ("+" if value >= 0 else "−") + number(abs(value), unit)


def verdict_text(verdict: str, more_runs: int | str | None, ours: str) -> str:
    """The verdict, how many more seeds would decide it, and whether settings are this project's."""
    more = f" ({more_runs} more seed{'' if str(more_runs) == '1' else 's'})" if more_runs else ""
    return verdict + more + (", with settings of ours" if ours and verdict not in (NOT_RUN, NOT_JUDGED) else "")


def sound_text(sound: float | None, tries: float | None) -> str:
    """The sound epsilon, and that of the tries that were made where a run could have made more."""
    text = bound_text(sound)
    return text if tries is None else f"{text} (tries made: {bound_text(tries)})"

"""Claims next to measurements, as cells of a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from runner.report.files import Table, bound_text, number, plus_minus
from runner.report.verdicts import Judged, explanation

_MEASURED = ("measured", "min / median / max", "n", "best epoch", "difference", "verdict")
HEADER = (
    *("dataset", "method", "claimed", "at ε"),
    *_MEASURED,
    *("ε of the run", "sound ε of the run", "claimed ε holds?"),
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
        claim.privacy_epsilon.replace("inf", "∞") or "–",
        *measured_text(judged),
        difference_text(judged.difference, unit),
        judged.verdict,
        number(measured.epsilon),
        bound_text(measured.epsilon_sound),
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
    std = summary.std if measured.value == summary.mean else None  # the std of runs is not that of their maximum
    return [
        plus_minus(measured.value, std, unit, at_least=measured.at_least),
        spread,
        runs_count(judged),
        plus_minus(measured.best, None, unit),
    ]


def runs_count(judged: Judged) -> str:
    """`3 of 10`, or `computed`."""
    return "computed" if judged.measured.computed else f"{judged.measured.n} of {judged.measured.planned}"


def difference_text(difference: float | None, unit: str) -> str:
    """A difference with its sign; a dash where there is none."""
    if difference is None:
        return "–"
    return ("+" if difference >= 0 else "−") + number(abs(difference), unit)

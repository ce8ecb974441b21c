"""Judged claims: the rows of results/<paper>/<item>/claims.csv, and cells of a table for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter

from runner.claims.claim import ANOTHER_READING, ORDERS, THRESHOLDS, Claim, dataset_name, typed
from runner.claims.measurement import Measured
from runner.claims.runs import PAPER_SCALE
from runner.claims.statistics import Interval
from runner.claims.verdicts import CONFIRMED, NO_DIFFERENCE, NOT_GUARANTEED, OPEN, REFUTED, ClaimRow, judge
from runner.config import options_of
from runner.report.files import SIGNIFICANT, bound_text, cell, elsewhere, number, plus_minus, read_csv, write_csv
from runner.terminal import command

if TYPE_CHECKING:
    from runner.report.items import Paper


_CLAIM = (
    *("paper", "item", "dataset", "network", "method", "reading", "quantity", "at_epsilon", "at_delta", "claimed"),
    *("unit", "of", "source", "note", "sweep", "experiments", "number", "level", "margin", "direction"),
    *("open", "because", "counted"),
)
_TYPES = {name: TypeAdapter(kind) for name, kind in get_type_hints(ClaimRow).items() if name != "claim"}
_OUTCOME = tuple(_TYPES)
CLAIMED_EPSILON = "the claimed ε is"  # guaranteed, or not


def write_rows(folder: Path, rows: Sequence[ClaimRow]) -> Path:
    """Write claims.csv: a row for each claim, with its outcome.

    A difference ends with the last digit of the measured number. Further digits would be rounding errors, which depend
    on the processor.
    """
    lines = []
    for row in rows:
        outcome = {name: getattr(row, name) for name in _OUTCOME}
        if row.measured and math.isfinite(row.measured):
            places = SIGNIFICANT - 1 - math.floor(math.log10(abs(row.measured)))
            for name in ("difference", "interval_low", "interval_high"):
                outcome[name] = None if outcome[name] is None else round(outcome[name], places) + 0.0
        flags = {name: "yes" if value else "no" for name, value in outcome.items() if isinstance(value, bool)}
        lines.append(_claim_cells(row.claim) | outcome | flags)
    return write_csv(folder / "claims.csv", (*_CLAIM, *_OUTCOME), lines)


def rows_of(folder: Path, paper: Paper, items: Sequence[str] | None = None) -> list[ClaimRow]:
    """Read the judged claims of all items of a paper, or of the items named, from their last aggregation.

    The claims of an item without one are not run.

    Raises:
        ValueError: another version aggregated an item, or its claims have changed since.
    """
    judged: list[ClaimRow] = []
    for item in paper.items if items is None else map(paper.item, items):
        path = folder / paper.name / item.name / "claims.csv"
        claims = [claim for claim in paper.claims if claim.item == item.name]
        if not path.exists():
            judged += [judge(claim, Measured(), PAPER_SCALE) for claim in claims]
            continue
        rows = read_csv(path)
        same = [{name: row.get(name) for name in _CLAIM} for row in rows] == [*map(_claim_cells, claims)]
        if not same or any(tuple(row) != (*_CLAIM, *_OUTCOME) for row in rows):
            shrunk = folder.name != PAPER_SCALE and folder.name in options_of("scale")
            scale, root = (["--scale", folder.name], folder.parent) if shrunk else ([], folder)
            first = command("aggregate", paper.name, *scale, *elsewhere(root))
            raise ValueError(f"{path} is another version's. First run: {first}")
        judged += [_judged(claim, row) for row, claim in zip(rows, claims, strict=True)]
    return judged


def row_alone(cells: Mapping[str, str]) -> ClaimRow:
    """Make a judged claim from a row of claims.csv alone. The columns that the file lacks have their defaults."""
    fields: dict[str, Any] = {name: cells[name] for name in _CLAIM if name not in ("sweep", "experiments")}
    fields |= {name: float(cells[name]) if cells[name] else None for name in ("level", "margin")}
    pairs = tuple((name,) for name in cells["experiments"].split())
    return _judged(Claim("", pairs=pairs, **typed(fields)), cells)


def _judged(claim: Claim, cells: Mapping[str, str]) -> ClaimRow:
    """Read the columns of an outcome. An empty one has the default."""
    return ClaimRow(claim, **{name: kind.validate_python(cells[name]) for name, kind in _TYPES.items() if cells[name]})


def _claim_cells(claim: Claim) -> dict[str, Any]:
    return {name: cell(getattr(claim, name)) for name in _CLAIM} | {"experiments": " ".join(claim.experiments)}


@dataclass(frozen=True)
class Cells:
    """A judged claim as texts, in the units of the claim, with a dash for an empty cell.

    measured: the number, ± the standard deviation of the runs if it is their mean; of an order both settings' numbers.
    what_it_is: "mean of 5", "best of 5, mean 62.91 ± 0.90", "one run, 1 of 5 planned" or "by formula".
    spread: minimum / median / maximum.
    """

    dataset: str
    method: str
    claimed: str
    margin: str
    at_epsilon: str
    measured: str
    spread: str
    what_it_is: str
    best: str
    difference: str
    verdict: str
    epsilon: str
    sound: str
    guarantee: str

    @property
    def what(self) -> str:
        """The data set and the method."""
        return f"{self.dataset}, {self.method}"

    @property
    def measured_of(self) -> str:
        """The number and, in brackets, what it is."""
        return f"{self.measured} ({self.what_it_is})" if self.what_it_is else self.measured


def cells_of(row: ClaimRow) -> Cells:
    """Format a judged claim."""
    claim, unit, places = row.claim, row.claim.unit, places_of(row)
    std = row.std if row.measured == row.mean and not row.at_least else None  # none for a maximum or a bound
    spread = [plus_minus(v, None, unit) for v in (row.min, row.median, row.max) if v is not None]
    if unit == "epsilon" and row.measured == math.inf:
        measured = "not reached"
    else:
        measured = plus_minus(row.measured, std, unit, at_least=row.at_least, places=places)
    parts = [row.measured_is]
    if claim.statistic == "best" and row.mean is not None:
        parts.append(f"mean {plus_minus(row.mean, row.std, unit)}")
    if row.n < row.n_planned:
        parts.append(f"{row.n} of {row.n_planned} planned")
    no_margin = claim.margin is None or claim.direction in (*THRESHOLDS, *ORDERS)
    spent = "" if row.epsilon_spent is None else f" (spent: {bound_text(row.epsilon_spent)})"
    return Cells(
        dataset=dataset_name(claim.dataset),
        method=method_text(claim),
        claimed=claim.stated.replace("-", "−") if claim.stated.startswith("-") else claim.stated,
        margin="–" if no_margin else f"{claim.margin:g}",
        at_epsilon=claim.at_epsilon.text.replace("inf", "∞") or "–",
        measured=measured + _other_text(row, places),
        spread=" / ".join(spread) or "–",
        what_it_is=", ".join(filter(None, parts)),
        best=plus_minus(row.best_epoch_mean, None, unit),
        difference=_row_difference(row, places),
        verdict=verdict_text(row),
        epsilon=bound_text(row.epsilon),
        sound=bound_text(row.epsilon_sound) + spent,
        guarantee=row.guarantee or "–",
    )


def _other_text(row: ClaimRow, places: int | None) -> str:
    """Format the number of the other setting of an order; "" if the measured number is itself the difference."""
    if row.claim.direction not in ORDERS or row.measured is None or row.difference in (None, row.measured):
        return ""
    spread, runs = (text.partition(" + ")[2] for text in (row.spread_each, row.n_each))
    std = float(spread) if spread and runs not in ("", "1") else None  # one run has none of its own
    return f" against {plus_minus(row.measured - row.difference, std, row.claim.unit, places=places)}"


def chosen_cells(rows: Sequence[ClaimRow], columns: Mapping[str, str]) -> list[list[str]]:
    """Format some cells of judged claims, a row for each claim. `columns` has the names of the cells, by heading."""
    return [[getattr(cells, name) for name in columns.values()] for cells in map(cells_of, rows)]


def method_text(claim: Claim) -> str:
    """Name the method, the quantity unless it is the accuracy, and in brackets the interpretation of the paper."""
    quantity = claim.quantity.replace("_", " ").replace("epsilon", "ε")
    what = "" if claim.quantity == "test_accuracy" else f": {quantity}"
    return claim.method + what + (f" ({claim.reading})" if claim.reading else "")


def places_of(row: ClaimRow) -> int | None:
    """Return the decimals that the spread of the runs supports: as many as its second significant digit has.

    An accuracy and a difference of accuracies have at most two, also without a spread, as the largest of the runs has
    none. None for other numbers without one.
    """
    spread = row.interval.half_width / 2 if row.std is None and row.interval is not None else row.std
    if row.mean not in (None, row.measured) or not spread or not math.isfinite(spread):
        return 2 if row.claim.unit in ("%", "points") else None
    places = max(0, 1 - math.floor(math.log10(spread)))
    return min(places, 2) if row.claim.unit in ("%", "points") else places


def _row_difference(row: ClaimRow, places: int | None) -> str:
    """Format the difference of a judged claim. That of a computed ε has its decimals and is rounded up like it."""
    claim, difference = row.claim, row.difference
    if claim.unit == "epsilon" and row.computed and not row.at_least and difference is not None:
        text = number(difference, places=len(bound_text(row.measured).partition(".")[2]), bound="upper")
        return text if text.startswith("−") else f"+{text}"
    level = claim.level if claim.direction in THRESHOLDS else None
    return difference_text(difference if level is None else None, claim.unit, row.interval, level, places)


def difference_text(
    difference: float | None,
    unit: str,
    interval: Interval | None,
    level: float | None = None,
    places: int | None = None,
) -> str:
    """Format a difference with its sign and its interval in brackets; a dash if there is neither.

    If a level is claimed, the text is the interval of the measured number, next to the level.
    """
    if interval is None:
        return "–" if difference is None else signed(difference, unit, places)
    if level is not None:
        low, high = (number(end + level, unit, places=places) for end in (interval.low, interval.high))
        return f"[{low}, {high}], threshold {number(level, unit)}"
    ends = f"[{signed(interval.low, unit, places)}, {signed(interval.high, unit, places)}]"
    return ends if difference is None else f"{signed(difference, unit, places)} {ends}"


def signed(value: float, unit: str, places: int | None) -> str:
    """Format a number with its sign. One that would round to zero has its first digit instead."""
    text = number(abs(value), unit, places=places)
    if round(value, 9) and not text.strip("0."):
        text = f"{abs(value):.1g}"
    return ("−" if value < 0 and text.strip("0.") else "+") + text


def verdict_text(row: ClaimRow) -> str:
    """Format the word with, in brackets, what belongs to it: the needed runs, a formula, and that it is not counted."""
    if not row.verdict:
        return "for context" if row.claim.contextual else "–"
    parts = ["by formula"] if row.computed else []
    if row.verdict == OPEN:
        needed = f"about {row.runs_needed} runs needed" if row.runs_needed else ""
        needed = f"{NO_DIFFERENCE} of {row.claim.margin:g}" if row.reason.endswith(NO_DIFFERENCE) else needed
        parts.append("not run" if row.measured is None else needed)
    if row.claim.counted == ANOTHER_READING:
        parts.append("another reading, not counted")
    notes = ", ".join(filter(None, parts))
    return f"{row.verdict} ({notes})" if notes else row.verdict


def wrong_epsilon(row: ClaimRow) -> bool:
    """Return True if a number holds or is not contradicted, but at an ε that is refuted or not guaranteed."""
    return row.verdict in CONFIRMED and row.guarantee in (NOT_GUARANTEED, REFUTED)


def sound_bound_text(epsilon: float) -> str:
    """Format a sound epsilon for a sentence, rounded up: with two decimals, from 100 with none."""
    text = number(epsilon, places=2 if epsilon < 100 else 0 if epsilon < 10_000 else None, bound="upper")
    return f"{int(text):,}" if 10_000 <= epsilon < math.inf else text

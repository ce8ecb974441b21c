"""The judged claims of an item in results/<paper>/<item>/claims.csv."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter

from runner.claims.claim import Claim, typed
from runner.claims.judgement import ClaimRow
from runner.claims.measurement import Measured
from runner.claims.runs import PAPER_SCALE
from runner.claims.verdicts import judge
from runner.config import options_of
from runner.report.files import SIGNIFICANT, cell, elsewhere, read_csv, write_csv
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
    chosen = [item.name for item in paper.items] if items is None else [paper.item(name).name for name in items]
    return [row for name in chosen for row in _item_rows(folder, paper, name)]


def _item_rows(folder: Path, paper: Paper, item: str) -> list[ClaimRow]:
    path = folder / paper.name / item / "claims.csv"
    claims = [claim for claim in paper.claims if claim.item == item]
    if not path.exists():
        return [judge(claim, Measured(), PAPER_SCALE) for claim in claims]
    rows = read_csv(path)
    same = [{name: row.get(name) for name in _CLAIM} for row in rows] == [*map(_claim_cells, claims)]
    if not same or any(tuple(row) != (*_CLAIM, *_OUTCOME) for row in rows):
        shrunk = folder.name != PAPER_SCALE and folder.name in options_of("scale")
        scale, root = (["--scale", folder.name], folder.parent) if shrunk else ([], folder)
        first = command("aggregate", paper.name, *scale, *elsewhere(root))
        raise ValueError(f"{path} is another version's. First run: {first}")
    return [_judged(claim, row) for row, claim in zip(rows, claims, strict=True)]


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

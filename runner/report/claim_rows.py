"""The judged claims of an item as results/<paper>/<item>/claims.csv has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from runner.claims.claim import Claim
from runner.claims.evidence import PAPER_SCALE
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import NOT_RUN
from runner.report.files import read_csv, write_csv
from runner.report.items import Item, Paper

_CLAIM = (
    *("paper", "item", "dataset", "network", "method", "quantity", "at_epsilon", "at_delta", "claimed", "unit", "of"),
    *("source", "accounting", "note", "sweep", "experiments", "number", "level", "margin", "direction", "open"),
    "because",
)
_TYPES = {name: kind for name, kind in get_type_hints(ClaimRow).items() if name != "claim"}
_OUTCOME = tuple(field.name for field in fields(ClaimRow) if field.name != "claim")


def write_rows(folder: Path, rows: Sequence[ClaimRow]) -> Path:
    """Write claims.csv: a row a claim, what is claimed and what came of it."""
    cells = [{**_of_claim(row.claim), **{name: _cell(getattr(row, name)) for name in _OUTCOME}} for row in rows]
    return write_csv(folder / "claims.csv", (*_CLAIM, *_OUTCOME), cells)


def read_rows(folder: Path, paper: Paper, item: Item) -> list[ClaimRow]:
    """The judged claims of an item as they were last aggregated; as not run if they never were.

    Args:
        folder: of the results.

    Raises:
        ValueError: they were aggregated by another version, or of other claims.
    """
    path = folder / paper.name / item.name / "claims.csv"
    claims = [claim for claim in paper.claims if claim.item == item.name]
    if not path.exists():
        return [ClaimRow(claim, PAPER_SCALE, NOT_RUN, NOT_RUN) for claim in claims]
    rows = read_csv(path)
    named = ("dataset", "method", "quantity", "claimed", "at_epsilon")
    now = [[getattr(claim, name) for name in named] for claim in claims]
    if any(tuple(row) != (*_CLAIM, *_OUTCOME) for row in rows) or [[row[n] for n in named] for row in rows] != now:
        raise ValueError(f"{path} is another version's: aggregate {paper.name}, too, and then this one again.")
    return [
        ClaimRow(claim, **{name: _value(name, row[name]) for name in _OUTCOME})
        for row, claim in zip(rows, claims, strict=True)
    ]


def _of_claim(claim: Claim) -> dict[str, Any]:
    return {**{name: getattr(claim, name) for name in _CLAIM}, "experiments": " ".join(claim.experiments)}


def _cell(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _value(name: str, text: str) -> Any:
    """A cell as the type that its field has."""
    kind = _TYPES[name]
    if kind is str:
        return text
    if not text:
        return None
    if kind in (bool, bool | None):
        return text == "yes"
    return int(text) if kind in (int, int | None) else float(text)

"""CSV and Markdown, written the same way every time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Table:
    """A table for people and, with the same cells, for programs. None is an empty cell."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = field(default_factory=tuple)


def cell(value: Any) -> str:
    """Floats to six significant digits, None to nothing."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    """One header line, then one line a row; a column that a row lacks is empty."""
    cells = [[cell(row.get(column)) for column in columns] for row in rows]
    return write_text(path, pd.DataFrame(cells, columns=list(columns)).to_csv(index=False, lineterminator="\n"))


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by column name, every value as text."""
    rows: list[dict[str, str]] = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    return rows


def write_table_csv(path: Path, table: Table) -> Path:
    """The cells of a table as CSV, without its notes."""
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    return write_csv(path, list(table.header), rows)


def write_text(path: Path, text: str) -> Path:
    """Write a text file and the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def markdown(table: Table) -> str:
    """A Markdown table, then its notes as paragraphs, each once."""
    lines = [_line(table.header), _line(["---"] * len(table.header))]
    lines += [_line([cell(value) for value in row]) for row in table.rows]
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in dict.fromkeys(table.notes))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def plus_minus(mean: float | None, std: float | None, unit: str = "", *, at_least: bool = False) -> str:
    """`98.02 ± 0.11`; without a standard deviation one number, without a mean a dash.

    `≥ 2.999` of a lower bound: rounded down, so that it stays one.
    """
    if mean is None:
        return "–"
    if at_least:
        mean = _rounded(mean, ROUND_FLOOR)
    return ("≥ " if at_least else "") + number(mean, unit) + ("" if std is None else f" ± {number(std, unit)}")


def number(value: float, unit: str = "") -> str:
    """Percentages with two decimals, everything else with four significant digits."""
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    value = round(value, 9)  # the mean of 97.85 and 97.92 is a half, however it was summed
    return f"{value:.2f}" if unit == "%" else f"{value:.4g}"


def epsilon_text(value: float | None) -> str:
    """An epsilon with four significant digits, ∞ for none, a dash where nothing was measured."""
    if value is None:
        return "–"
    return f"{value:.4g}" if math.isfinite(value) else "∞"


def bound_text(value: float | None) -> str:
    """The same of a sound epsilon: rounded up, so that the upper bound stays one."""
    return epsilon_text(None if value is None else _rounded(value, ROUND_CEILING))


def _rounded(value: float, rounding: str) -> float:
    """To four significant digits; to 1e-9 first: 0.87, however it was computed, is not to become 0.8701."""
    if not math.isfinite(value):
        return value
    return float(Context(prec=4, rounding=rounding).create_decimal(repr(round(value, 9))))

"""CSV and Markdown, written the same way every time."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.claims.summary import summarise
from runner.terminal import bound_text as bound_text
from runner.terminal import number as number


@dataclass(frozen=True)
class Table:
    """A table for people and, with the same cells, for programs. None is an empty cell."""

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = field(default_factory=tuple)

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> Table:
        """A table of rows that name their own cells, each all of them and in the same order; of one row at least."""
        return cls(list(rows[0]), [list(row.values()) for row in rows], notes)


def cell(value: Any) -> str:
    """A cell as programs read it: floats to six significant digits, None to nothing. People read `number`."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    """One header line, then one line a row; a column that a row lacks is empty.

    Raises:
        ValueError: two columns have one name.
    """
    if len(set(columns)) < len(columns):
        raise ValueError(f"{path}: two columns have one name, of {', '.join(columns)}.")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    return write_text(path, text.getvalue())


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by column name, every value as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


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


def aligned(table: Table) -> str:
    """The header and the rows of a table of texts in columns, for a terminal."""
    lines = [table.header, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_text, cells)) + " |"


def _text(cell: str) -> str:
    """A cell of a Markdown table that ends neither its cell nor its row, and is no HTML."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", " ".join(cell.splitlines()).replace("|", "\\|"))


def mean_text(values: Sequence[float], unit: str = "") -> str:
    """`98.02 ± 0.11`: mean and standard deviation of the runs' values, see `plus_minus`."""
    summary = summarise(values)
    return plus_minus(summary.mean, summary.std, unit)


def spread_text(values: Sequence[float], unit: str = "") -> str:
    """`97.9 / 98.02 / 98.1`: minimum, median and maximum of the runs' values; a dash where there are none."""
    summary = summarise(values)
    return " / ".join(number(v, unit) for v in (summary.min, summary.median, summary.max)) if values else "–"


def delta_text(*deltas: float) -> str:
    """`δ = 1e-5`; of several each once."""
    texts = (f"{delta:g}".replace("e-0", "e-") for delta in sorted(set(deltas)))
    return f"δ = {' or '.join(texts)}"


def plus_minus(mean: float | None, std: float | None, unit: str = "", *, at_least: bool = False) -> str:
    """`98.02 ± 0.11`; without a standard deviation one number, without a mean a dash; `≥ 2.999` of a lower bound."""
    if mean is None:
        return "–"
    spread = "" if std is None else f" ± {number(std, unit)}"
    return f"≥ {number(mean, unit, bound='lower')}{spread}" if at_least else number(mean, unit) + spread

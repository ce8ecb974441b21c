"""CSV and Markdown files with reproducible formatting."""

import csv
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from runner.claims.intervals import summarise
from runner.config import RESULTS
from runner.files import write_whole
from runner.terminal import bound_text as bound_text
from runner.terminal import number as number


@dataclass(frozen=True)
class Table:
    """A table for people and, with the same cells, for programs. None gives an empty cell.

    shown: the columns for people, at most seven. The CSV file has all. By default people see all columns, too.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = field(default_factory=tuple)
    shown: Sequence[str] = ()

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], notes: Sequence[str] = (), shown: Sequence[str] = ()) -> "Table":
        """Make a table of at least one row, from rows that all have the same names in the same order."""
        return cls(list(rows[0]), [list(row.values()) for row in rows], notes, shown)


SIGNIFICANT = 6  # digits of a number in a CSV file


def cell(value: Any) -> str:
    """Format a cell for programs: floats with `SIGNIFICANT` digits, None as empty. For people see `number`."""
    if value is None:
        return ""
    return f"{value:.{SIGNIFICANT}g}" if isinstance(value, float) else str(value)


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Format one header line, then one line for each row; a column that a row lacks is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write a CSV file (see `csv_text`).

    Raises:
        ValueError: two columns have one name.
    """
    if len(set(columns)) < len(columns):
        raise ValueError(f"{path}: two columns have one name, of {', '.join(columns)}.")
    return write_text(path, csv_text(columns, rows))


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file by column name, every value as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_table_csv(path: Path, table: Table) -> Path:
    """Write the cells of a table as CSV, without its notes."""
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    return write_csv(path, list(table.header), rows)


def elsewhere(results: Path) -> list[str]:
    """Return the option that names a results folder; none for the default folder and the scales in it."""
    folder = results.expanduser().resolve()
    return [] if RESULTS in (folder, folder.parent) else ["--results", str(folder)]


def write_text(path: Path, text: str) -> Path:
    """Write a text file, whole or not at all, and create its folders."""
    write_whole(path, text, replace=True)
    return path


def markdown(table: Table) -> str:
    """Format the shown columns as a Markdown table, then the notes as paragraphs, each once."""
    places = [list(table.header).index(name) for name in table.shown] if table.shown else range(len(table.header))
    lines = [_line([table.header[place] for place in places]), _line(["---"] * len(places))]
    lines += [_line([cell(row[place]) for place in places]) for row in table.rows]
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in dict.fromkeys(table.notes))


def aligned(table: Table, width: int | None = None) -> str:
    """Format header and rows of a table of texts as aligned columns, for a terminal.

    The widest cells are wrapped until the table fits into a `width`, if there is one: see `terminal_width`.

    >>> print(aligned(Table(("a", "text"), [("1", "two words")]), 8))
    a  text
    1  two
       words
    """
    lines = [list(table.header), *map(list, table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    least = [max(max(map(len, cell.split() or [""])) for cell in column) for column in zip(*lines, strict=True)]
    while width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        spare, widest = max((w - m, number) for number, (w, m) in enumerate(zip(widths, least, strict=True)))
        if spare == 0:
            break
        widths[widest] -= 1
    rows = list[tuple[str, ...]]()
    for line in lines:
        wrapped = [textwrap.wrap(cell, w) or [""] for cell, w in zip(line, widths, strict=True)]
        rows += zip_longest(*wrapped, fillvalue="")
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def terminal_width() -> int | None:
    """Return the columns of the terminal that is written to, or None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _line(cells: Sequence[str]) -> str:
    """Join the cells of a Markdown row. A text ends neither its column nor its row, and is no HTML."""
    texts = (" ".join(text.splitlines()).replace("|", "\\|") for text in cells)
    return f"| {' | '.join(re.sub(r'<(?=[A-Za-z/!?])', '&lt;', text) for text in texts)} |"


def enumerated(texts: Sequence[str], word: str = "and") -> str:
    """List texts in a sentence: `a, b and c`."""
    return f" {word} ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def mean_text(values: Sequence[float], unit: str = "") -> str:
    """Format mean and standard deviation of the runs' values: `98.02 ± 0.11` (see `plus_minus`)."""
    summary = summarise(values)
    return plus_minus(summary["mean"], summary["std"], unit)


def spread_text(values: Sequence[float], unit: str = "") -> str:
    """Format minimum, median and maximum of the runs' values: `97.9 / 98.02 / 98.1`; a dash without values."""
    summary = summarise(values)
    return " / ".join(number(v, unit) for v in (summary["min"], summary["median"], summary["max"])) if values else "–"


def delta_text(*deltas: float) -> str:
    """Format deltas, each once: `δ = 1e-5`."""
    texts = (f"{delta:g}".replace("e-0", "e-") for delta in sorted(set(deltas)))
    return f"δ = {' or '.join(texts)}"


def plus_minus(
    mean: float | None, std: float | None, unit: str = "", *, at_least: bool = False, places: int | None = None
) -> str:
    """Format a mean and its standard deviation, if known: `98.02 ± 0.11`, or `≥ 2.999` for a lower bound.

    A dash if there is no mean. An ε, whose unit is "epsilon", is rounded up unless it is a lower bound.
    """
    if mean is None:
        return "–"
    bound: Literal["lower", "upper"] | None = "lower" if at_least else "upper" if unit == "epsilon" else None
    text = number(mean, unit, places=places, bound=bound)
    spread = "" if std is None else f" ± {number(std, unit, places=places)}"
    return f"{'≥ ' if at_least else ''}{text}{spread}"

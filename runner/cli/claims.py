"""A table of judged claims: `python -m runner claims --guarantee refuted`.

It reads the claims.csv of the last aggregation, and computes nothing. Rows that count as no claim, such as another
reading of one, are left out unless `--all` asks for them.

Exit codes: 0 shown, 2 bad input (no such folder, item or word) with one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.claims.verdicts import ON_EPSILON, WORDS
from runner.config import REPOSITORY, RESULTS
from runner.report.claim_rows import chosen_cells, row_alone
from runner.report.files import Table, aligned, csv_text, read_csv, terminal_width
from runner.terminal import Parser, nearest

_FILTERS = {
    "paper": "of these papers: lipschitz,losing_less",
    "item": "of these items: fig-3,table-1",
    "verdict": f"with these words on the number, of {', '.join(WORDS)}",
    "guarantee": f"whose claimed ε is {', '.join(ON_EPSILON[:-1])} or {ON_EPSILON[-1]}",
}
_FIXED = {"verdict": WORDS, "guarantee": ON_EPSILON}
_COLUMNS = {  # headings, and the cells below them
    "claim": "what", "paper's number": "claimed", "here": "measured_of", "verdict": "verdict",
    "claimed ε": "at_epsilon", "sound ε": "sound", "the claimed ε is": "guarantee",
}  # fmt: skip
_ALIKE = str.maketrans(" _", "--")

Row = Mapping[str, str]


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner claims", description="Print a table of the papers' claims.")
    for name, text in _FILTERS.items():
        parser.add_argument(f"--{name}", help=f"only those {text}")
    parser.add_argument("--all", action="store_true", help="also other readings of a claim, and numbers for context")
    parser.add_argument("--csv", action="store_true", help="print all columns as CSV")
    parser.add_argument("--results", type=Path, help="the runs' runtime.results_root")
    chosen = parser.parse_args(arguments)
    usual = (
        RESULTS if any(RESULTS.glob("*/*/claims.csv")) else REPOSITORY / "results"
    )  # an installed package has tables
    folder = chosen.results.expanduser() if chosen.results else usual
    judged = [(row, row_alone(row)) for path in sorted(folder.glob("*/*/claims.csv")) for row in read_csv(path)]
    rows = [row for row, _ in judged]
    if not rows:
        raise ValueError(f"{folder} has no aggregated claims: expected PAPER/ITEM/claims.csv in it.")
    matching = judged
    for name in _FILTERS:
        if text := getattr(chosen, name):
            values = _values(name, text, rows)
            matching = [(row, claim_row) for row, claim_row in matching if row[name] in values]
    counted = [(row, claim_row) for row, claim_row in matching if claim_row.claim.counts]
    shown = matching if chosen.all else counted
    if chosen.csv:
        print(csv_text(list(dict.fromkeys(name for row in rows for name in row)), [row for row, _ in shown]), end="")
        return 0
    claims = [claim_row for _, claim_row in shown]
    cells = zip(claims, chosen_cells(claims, _COLUMNS), strict=True)
    table = Table(("place", *_COLUMNS), [[f"{row.claim.paper}/{row.claim.item}", *cell] for row, cell in cells])
    print(aligned(table, terminal_width()))
    print(f"{len(counted)} of {sum(claim_row.claim.counts for _, claim_row in judged)} claims.")
    if uncounted := len(matching) - len(counted):
        print(f"Of other readings or for context, and so not counted: {uncounted}. `--all` shows such rows, too.")
    return 0


def _values(name: str, text: str, rows: Sequence[Row]) -> set[str]:
    """Return the values of a column that were asked for, in which a dash may stand for a space or an underscore."""
    by_column = {
        column: {value.translate(_ALIKE): value for value in _FIXED.get(column, sorted({row[column] for row in rows}))}
        for column in _FILTERS
    }
    values = [value.strip() for value in text.split(",")]
    for value in values:
        if (plain := value.translate(_ALIKE)) in by_column[name]:
            continue
        hints = [f"Try --{column} {value}." for column in _FILTERS if plain in by_column[column]]
        way = hints[0] if hints else nearest(value, list(by_column[name].values()))
        raise ValueError(f"No claim has the {name} {value!r}. {way}")
    return {by_column[name][value.translate(_ALIKE)] for value in values}

"""A table of judged claims: `python -m runner claims --guarantee refuted`.

It reads the claims.csv of the last aggregation, and computes nothing.

Exit codes: 0 shown, 2 bad input (no such folder, item or word) with one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.claims.counts import counted_once, judged
from runner.claims.rows import ClaimRow
from runner.claims.runs import grouped
from runner.config import RESULTS
from runner.report.cells import chosen_cells
from runner.report.claim_rows import row_alone
from runner.report.files import Table, aligned, csv_text, read_csv
from runner.terminal import Parser, nearest

_FILTERS = {
    "paper": "of these papers: lipschitz,losing_less",
    "item": "of these items: fig-3,table-1",
    "verdict": "with these verdicts on the number: fails,not-reproduced",
    "guarantee": "whose claimed ε is: refuted,not-guaranteed",
}
_COLUMNS = {  # headings, and the cells below them
    "claim": "what", "paper's number": "claimed", "here": "measured_of", "verdict": "verdict", "claimed ε": "at",
    "sound ε": "sound", "the claimed ε is": "guarantee",
}  # fmt: skip
_ALIKE = str.maketrans(" _", "--")

Row = Mapping[str, str]


def main(arguments: Sequence[str]) -> int:
    """Print the table, and return the exit code.

    Raises:
        ValueError: there are no claims in the folder, or none has a value that was asked for.
    """
    parser = Parser(prog="python -m runner claims", description="Print a table of the papers' claims.")
    for name, text in _FILTERS.items():
        parser.add_argument(f"--{name}", help=f"only those {text}")
    parser.add_argument("--csv", action="store_true", help="print all columns as CSV")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the runs' runtime.results_root")
    chosen = parser.parse_args(arguments)
    folder = chosen.results.expanduser()
    every = [(row, row_alone(row)) for path in sorted(folder.glob("*/*/claims.csv")) for row in read_csv(path)]
    if not every:
        raise ValueError(f"{folder} has no aggregated claims: expected PAPER/ITEM/claims.csv in it.")
    shown, once = every, _counted([of for _, of in every])
    for name in _FILTERS:
        if asked := getattr(chosen, name):
            wanted = _values(name, asked, [row for row, _ in every])
            shown = [(row, of) for row, of in shown if row[name] in wanted]
    if chosen.csv:
        print(
            csv_text(list(dict.fromkeys(name for row, _ in every for name in row)), [row for row, _ in shown]), end=""
        )
        return 0
    rows = [of for _, of in shown]
    cells = zip(rows, chosen_cells(rows, _COLUMNS), strict=True)
    print(aligned(Table(("place", *_COLUMNS), [[f"{of.claim.paper}/{of.claim.item}", *cell] for of, cell in cells])))
    count = sum(id(of) in once for of in rows)
    print(f"{len(shown)} of {len(every)} rows. They count as {count} of {len(once)} claims.")
    print("Of several readings of a claim the first counts, and rows for context do not count.")
    return 0


def _counted(rows: Sequence[ClaimRow]) -> set[int]:
    """Return the `id` of each row that counts as a claim in the results' totals."""
    by_paper = grouped(rows, lambda row: row.claim.paper).values()
    return {id(row) for its in by_paper for row in counted_once(its) if judged(row)}


def _values(name: str, asked: str, rows: Sequence[Row]) -> set[str]:
    """Return the values of a column that were asked for, in which a dash may stand for a space or an underscore."""
    known = {column: {row[column].translate(_ALIKE): row[column] for row in rows} for column in _FILTERS}
    values = [value.strip() for value in asked.split(",")]
    for value in values:
        if (plain := value.translate(_ALIKE)) not in known[name]:
            others = [f"Try --{column} {value}." for column in _FILTERS if plain in known[column]]
            way = others[0] if others else nearest(value, sorted(known[name].values()))
            raise ValueError(f"No claim has the {name} {value!r}. {way}")
    return {known[name][value.translate(_ALIKE)] for value in values}

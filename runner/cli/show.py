"""What is recorded: your own runs (`show`), the papers' claims (`claims`), a run, item or study in words (`explain`).

`python -m runner show` prints a table of the recorded runs that are not committed here.
A row is a setting, with the mean and the standard deviation of its runs. The columns after the sound ε are the fields
of the config in which the rows differ, without details such as diagnostics: `--csv` has all.

`python -m runner claims --guarantee refuted` reads the claims.csv of the last aggregation, and computes nothing. Rows
that count as no claim, such as another reading of one, are left out unless `--all` asks for them.

Exit codes: 0 shown, 1 shown, but some files cannot be read, 2 no such folder, column, value, run, item or study, or a
damaged record. Each problem gets one sentence.
"""

import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from runner.claims.evidence import grouped
from runner.claims.verdicts import ON_EPSILON, WORDS
from runner.config import PAPER, REPOSITORY, RESULTS, ConfigError
from runner.records.store import Record, columns_of
from runner.report import items
from runner.report.claim_rows import chosen_cells, row_alone
from runner.report.formats import Table, aligned, cell, csv_text, read_csv, terminal_width
from runner.report.listing import explain_command, own_records, records_table
from runner.terminal import Parser, nearest

# Columns of the table that have other names as CSV, where a name needs no quotes.
_AS_CSV = {"run": "run_id", "accuracy": "test_accuracy", "ε": "epsilon", "sound ε": "epsilon_sound"}

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

Columns = Mapping[str, Any]
Row = Mapping[str, str]


def main(arguments: Sequence[str]) -> int:
    chosen = _parser().parse_args(arguments)
    folder = chosen.results.expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder.")
    if chosen.last < 1:
        raise ConfigError(f"--last {chosen.last} is not 1 or more.")
    records, refused = own_records(folder)
    for sentence in refused:
        print(f"show: {sentence}", file=sys.stderr)
    if not (records or refused):
        unsure = "" if shutil.which("git") else " (without git, results/runs counts as the repository's)"
        print(f"No runs in {folder} but those of this repository{unsure}: python -m runner --help says how to run one.")
        return 0
    scales = grouped(records, lambda record: record["config"]["scale"]["name"])
    if chosen.scale in scales:
        records = scales[chosen.scale]
        _show(_selected([columns_of(record) for record in records], chosen), records, chosen)
    elif records:
        counts = ", ".join(f"{len(runs)} of --scale {name}" for name, runs in scales.items())
        print(f"You have no runs at the scale {chosen.scale}, but {counts}.")
    return 1 if refused else 0


def _parser() -> Parser:
    parser = Parser(prog="python -m runner show", description="Print a table of your own runs, a row a setting.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the runs' runtime.results_root")
    parser.add_argument("--last", type=int, default=30, help="number of rows, the last ones (default: 30)")
    parser.add_argument("--scale", default=PAPER, help="of runs at this scale: paper (default) or smoke, as the demo's")
    parser.add_argument("--runs", action="store_true", help="a row a run")
    parser.add_argument(
        "--where", nargs="+", action="extend", default=[], metavar="COLUMN=VALUE",
        help="only runs with all these values: activation=tanh seed=1",
    )  # fmt: skip
    parser.add_argument(
        "--sort", metavar="COLUMN", help="smallest first: accuracy, optimizer.lr (default: oldest first)"
    )
    parser.add_argument("--reverse", action="store_true", help="in the opposite order")
    parser.add_argument("--csv", action="store_true", help="print all runs with all columns as CSV")
    return parser


def _selected(runs: Sequence[Columns], chosen: Namespace) -> list[list[Columns]]:
    """Return the rows to show, in order, each with its runs: one run, or all runs of a setting."""
    for text in chosen.where:
        runs = _where(runs, text)
    rows: dict[str, list[Columns]] = {}
    for run in runs:
        key = run["run_id" if chosen.runs or chosen.csv else "setting_id"]
        rows[key] = [*rows.pop(key, []), run]  # at the end: the setting with the latest run is the last
    ordered = list(rows.values())
    if chosen.sort:
        name = _column(chosen.sort, [*runs, {"runs": None}])
        ordered = sorted(ordered, key=lambda row: _rank(row, name))
    return ordered[::-1] if chosen.reverse else ordered


def _where(runs: Sequence[Columns], text: str) -> list[Columns]:
    column, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--where {text} is no COLUMN=VALUE.")
    name = _column(column, runs)
    matching = [run for run in runs if _is(run.get(name), value)]
    if not matching:
        holders = dict.fromkeys(field for run in runs for field in run if field != name and _is(run[field], value))
        near = [f"{field}={value}" for field in holders if field.startswith(f"{name}.")]
        values = ["null" if run.get(name) is None else cell(run[name]) for run in runs]
        hint = f"Did you mean {' or '.join(near)}?" if near else nearest(value, values)
        raise ConfigError(f"No run has {column}={value}. {hint}")
    return matching


def _column(column: str, runs: Sequence[Columns]) -> str:
    name = _AS_CSV.get(column, column)
    names = dict.fromkeys(field for run in runs for field in run)
    if name not in names:
        inner = [field for field in names if field.rpartition(".")[2] == column]
        hint = f"Did you mean {' or '.join(inner)}?" if inner else nearest(column, [*names, *_AS_CSV])
        raise ConfigError(f"There is no column {column!r}. {hint}")
    return name


def _is(value: Any, text: str) -> bool:
    """Return True if a value is written like this, in any case: 1.0 is 1, and null is None."""
    if value is None:
        return text.casefold() in ("null", "none")
    try:
        return float(value) == float(text)
    except (TypeError, ValueError):
        return str(value).replace(" ", "").casefold() == text.replace(" ", "").casefold()


def _rank(row: Sequence[Columns], name: str) -> tuple[int, float, str]:
    """Order rows by the mean of their numbers in a column, then those with texts, then those without a value."""
    values = [len(row)] if name == "runs" else [run[name] for run in row if run.get(name) is not None]
    if not values:
        return 2, 0.0, ""
    if all(isinstance(value, (int, float)) for value in values):
        return 0, fmean(values), ""
    return 1, 0.0, str(values[-1])


def _show(rows: Sequence[Sequence[Columns]], records: Sequence[Record], chosen: Namespace) -> None:
    if chosen.csv:
        runs = [run for row in rows for run in row]
        print(csv_text(list(dict.fromkeys(name for run in runs for name in run)), runs), end="")
        return
    by_id = {record["run_id"]: record for record in records}
    shown = [[by_id[run["run_id"]] for run in row] for row in rows[-chosen.last :]]
    table = records_table(shown, by_setting=not chosen.runs)
    print("\n".join([aligned(table, terminal_width()), *table.notes]))
    if len(rows) > len(shown):
        print(f"These are the last {len(shown)} of {len(rows)} {'runs' if chosen.runs else 'settings'}.")
    print(f"The last one: {explain_command(shown[-1][-1], chosen.results)}")


def claims(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner claims", description="Print a table of the papers' claims.")
    for name, text in _FILTERS.items():
        parser.add_argument(f"--{name}", help=f"only those {text}")
    parser.add_argument("--all", action="store_true", help="also other readings of a claim, and numbers for context")
    parser.add_argument("--csv", action="store_true", help="print all columns as CSV")
    parser.add_argument("--results", type=Path, help="the runs' runtime.results_root")
    chosen = parser.parse_args(arguments)
    tables = RESULTS if any(RESULTS.glob("*/*/claims.csv")) else REPOSITORY / "results"  # of an installed package
    folder = chosen.results.expanduser() if chosen.results else tables
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
    claim_rows = [claim_row for _, claim_row in shown]
    cells = zip(claim_rows, chosen_cells(claim_rows, _COLUMNS), strict=True)
    table = Table(("place", *_COLUMNS), [[f"{row.claim.paper}/{row.claim.item}", *cell] for row, cell in cells])
    print(aligned(table, terminal_width()))
    print(f"{len(counted)} of {sum(claim_row.claim.counts for _, claim_row in judged)} claims.")
    if uncounted := len(matching) - len(counted):
        print(f"Of other readings or for context, and so not counted: {uncounted}. `--all` shows such rows, too.")
    return 0


def _values(name: str, text: str, rows: Sequence[Row]) -> set[str]:
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


def explain(arguments: Sequence[str]) -> int:
    """Explain a recorded run (its training, releases, cost), an item of a paper or a study."""
    parser = Parser(prog="python -m runner explain", description=explain.__doc__)
    parser.add_argument(
        "what",
        help="the beginning of the id of a run or a setting (9f3a), an item (tempered_sigmoid/fig-3), or a study with "
        "a page (studies/composition)",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the runs' runtime.results_root")
    chosen = parser.parse_args(arguments)
    results = chosen.results.expanduser()
    if re.fullmatch("[0-9a-f]{1,12}", chosen.what):
        path = items.find_run(results, chosen.what)
        from runner.report.explain import run_text  # here, because items and studies need no PyTorch
        from runner.study.page import runs_of_studies

        print(run_text(path, results, runs_of_studies(results, path)))
    elif chosen.what.startswith("studies/"):
        print(items.study_text(results, Path(chosen.what).stem))
    else:
        print(items.item_text(results, *items.find_item(chosen.what)))
    return 0

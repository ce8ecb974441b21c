"""The page of a paper: what was found, then a table of claims for each of the paper's own tables and figures."""

from __future__ import annotations

from collections.abc import Sequence

from runner.claims.blocks import dataset_name
from runner.claims.rows import ClaimRow
from runner.claims.runs import grouped
from runner.claims.verdicts import DIFFERS, FAILS, GUARANTEED, NOT_GUARANTEED, NOT_REPRODUCED, REFUTED
from runner.report.cells import cells_of, sound_bound_text, wrong_epsilon
from runner.report.files import Table, markdown
from runner.report.items import Item, Paper

HEADER = ("claim", "paper", "here (runs)", "verdict", "ε paper → sound", "difference [95%]")
LONG = 12  # rows of a table, above which it is folded
_BAD = (DIFFERS, NOT_REPRODUCED, FAILS)
_HOLDS = {GUARANTEED: " ✓", NOT_GUARANTEED: " ✗", REFUTED: " ✗"}

HOW_TO_READ = """*Here*: mean ± standard deviation of the runs, with the number of runs, of those planned if some are
missing. An order has the numbers of both settings. *ε paper → sound*: the ε that the paper names, then a proven upper
bound for the runs here. ✓: the claimed ε is guaranteed for them. ✗: it is not. *Difference*: measured minus claimed,
with its 95% interval; for a gain that is judged as an order, the gain. What the verdicts mean: [the index of
results](../README.md). All columns, margins and notes: `claims.csv` of each table.
"""


def page(paper: Paper, rows: Sequence[ClaimRow], statement: str, figure: str, mark: str) -> str:
    """Write the page of a paper.

    Args:
        rows: its claims as last aggregated.
        statement: its finding, "" if there is none.
        figure: the path of its figure from the page, "" if there is none.
        mark: a text that marks runs of another scale than the paper's.
    """
    parts = [f"# {paper.title}\n{mark}"]
    if paper.idea:
        parts.append(f"The idea: {paper.idea}.\n")
    if statement:
        parts.append(f"{statement}\n")
    if figure:
        parts.append(f"![{paper.title}]({figure})\n")
    parts += [f"- {remark.format(results='../')}\n" for remark in paper.remarks]
    parts.append(HOW_TO_READ)
    parts.append(tables_of(paper, rows))
    if chosen := open_settings(rows):
        parts.append(f"## Settings that the paper leaves open\n\nChosen here:\n\n{chosen}")
    return "\n".join(parts)


def tables_of(paper: Paper, rows: Sequence[ClaimRow]) -> str:
    """Write a section for each item that has claims, the headline first; long ones are folded."""
    sections = []
    for place, item in enumerate(paper.items):
        judged = [row for row in rows if row.claim.item == item.name]
        if judged:
            sections.append(_section(item, judged, folded=place > 0 and len(judged) > LONG))
    return "\n".join(sections)


def _section(item: Item, rows: Sequence[ClaimRow], *, folded: bool) -> str:
    notes = _notes(rows)
    table = _table(rows) + (f"\n{notes}" if notes else "")
    files = f"[All columns]({item.name}/claims.csv)"
    if not folded:
        return f"## {item.title}\n\n{table}\n{files}\n"
    summary = f"<details><summary>{len(rows)} claims</summary>"
    return f"## {item.title}\n\n{summary}\n\n{table}\n{files}\n\n</details>\n"


def _table(rows: Sequence[ClaimRow]) -> str:
    """Write a table; the rows of each data set stand below its name if there are several."""
    by_dataset = grouped(rows, lambda row: row.claim.dataset)
    lines: list[list[str]] = []
    for dataset, of in by_dataset.items():
        if len(by_dataset) > 1:
            lines.append([f"**{dataset_name(dataset)}**", *[""] * (len(HEADER) - 1)])
        lines += [_cells(row) for row in of]
    return markdown(Table(HEADER, lines))


def _cells(row: ClaimRow) -> list[str]:
    of = cells_of(row)
    verdict = f"**{of.verdict}**" if row.verdict in _BAD else of.verdict
    if wrong_epsilon(row):
        verdict += f", **ε {row.guarantee}**"
    return [of.method, of.claimed, of.measured_of, verdict, epsilon_text(row), of.difference]


def epsilon_text(row: ClaimRow) -> str:
    """The ε that the paper names and the sound one of the runs; a mark says if the claimed ε is guaranteed for them."""
    claimed = row.claim.at_epsilon or (row.claim.claimed if row.claim.quantity.startswith("epsilon") else "")
    if claimed == "inf" or not claimed or row.epsilon_sound is None:
        return "–"
    return f"{claimed} → {sound_bound_text(row.epsilon_sound)}{_HOLDS.get(row.guarantee, '')}"


def _notes(rows: Sequence[ClaimRow]) -> str:
    """The notes of rows as a list; a note of all rows is said once, of some with their names."""
    texts: dict[str, list[ClaimRow]] = {}
    for row in rows:
        for text in (row.reason, row.claim.note):
            if text:
                texts.setdefault(text, []).append(row)
    lines = []
    for text, of in texts.items():
        names = "" if len(of) == len(rows) else f"{_named(of, rows)}: "
        lines.append(f"- {names}{text}.\n")
    return "".join(lines)


def _named(of: Sequence[ClaimRow], rows: Sequence[ClaimRow]) -> str:
    """Name some rows of a table by their methods; data sets and readings are named if others are not among them."""
    names = []
    for method, there in grouped(of, lambda row: row.claim.method).items():
        every = [row for row in rows if row.claim.method == method]
        datasets = {row.claim.dataset for row in there}
        whole = len(there) == sum(row.claim.dataset in datasets for row in every)
        by_reading = {"": there} if whole else grouped(there, lambda row: row.claim.reading)
        for reading, some in by_reading.items():
            name = f"{method} ({reading})" if reading else method
            alike = [row for row in every if not reading or row.claim.reading == reading]
            on = ", ".join(dict.fromkeys(dataset_name(row.claim.dataset) for row in some))
            names.append(name if len(some) == len(alike) else f"{name} on {on}")
    return "; ".join(names)


def open_settings(rows: Sequence[ClaimRow]) -> str:
    """List what the paper leaves open and this project chose."""
    chosen = grouped((row.claim for row in rows if row.claim.open), lambda claim: claim.open)
    items = {text: ", ".join(dict.fromkeys(claim.item for claim in of)) for text, of in chosen.items()}
    return "".join(f"- {text} ({named}).\n" for text, named in items.items())

"""The page of a paper: what was found, then a table of claims for each of the paper's own tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.claims.blocks import dataset_name
from runner.claims.rows import ClaimRow, capitalised
from runner.claims.runs import grouped
from runner.claims.verdicts import DIFFERS, FAILS, GUARANTEED, NOT_GUARANTEED, REFUTED
from runner.report.cells import cells_of, method_text, sound_bound_text, wrong_epsilon
from runner.report.counted import of_paper
from runner.report.files import Table, markdown, number
from runner.report.items import Item, Paper

HEADER = ("claim", "paper", "here (what it is)", "verdict", "ε paper → sound", "difference [95%]", "margin")
LONG = 12  # rows of a table, above which it is folded
_BAD = (DIFFERS, FAILS)
_HOLDS = {GUARANTEED: " ✓", NOT_GUARANTEED: " ✗", REFUTED: " ✗"}

HOW_TO_READ = """*Paper*: a best has in brackets of what. *In words*: the paper gives no number, and the threshold in
the last column but one is chosen here. *Here*: the number, and in brackets what it is. ± is the standard deviation of
the runs behind a mean. *3 of 10 planned*: seven runs are missing. An order has the numbers of both settings. *ε paper
→ sound*: the ε that the paper names, then a proven upper bound for the runs here, rounded up. A lower bound (≥) stands
where it refutes the claim. ✓: the claimed ε is guaranteed for them, for exact noise ([theirs is not
exact](../../docs/privacy.md#known-limits)). ✗: it is not. *Difference*: measured minus claimed, with the 95% interval
of the number in the row: of a mean, or of the best of as many further runs. For a gain that is judged as an order, it
is the gain. *[a, b], threshold t*: the interval of the measured number, which has to lie on the claimed side of t.
*Margin*: the difference that counts as equal. Intervals include the spread of the paper's own runs: `of` in each
`claims.csv` has their number. What the verdicts mean: [the index of results](../README.md#what-the-words-mean).
"""


def page(paper: Paper, rows: Sequence[ClaimRow], statement: str, drawn: Item | None, mark: str) -> str:
    """Write the page of a paper.

    Args:
        rows: its claims as last aggregated.
        statement: its finding, "" if there is none.
        drawn: its item with the figure to show, if there is one.
        mark: a text that marks runs of another scale than the paper's.
    """
    parts = [f"# {paper.title}\n{mark}"]
    if paper.idea:
        parts.append(f"The idea: {paper.idea}.\n")
    if statement:
        parts.append(f"{statement}\n")
    if drawn:
        parts.append(f"![{drawn.title}]({drawn.name}/figure.svg)\n")
    parts.append(of_paper(rows))
    parts += [f"- {remark.format(results='../')}\n" for remark in paper.remarks]
    parts.append(HOW_TO_READ)
    parts.append(tables_of(paper, rows))
    if chosen := open_settings(rows):
        where = "The column `open` of each `claims.csv` has them by row."
        parts.append(f"## Settings that the paper leaves open\n\nChosen here. {where}\n\n{chosen}")
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
        lines += map(_line, of)
    return markdown(Table(HEADER, lines))


def _line(row: ClaimRow) -> list[str]:
    of = cells_of(row)
    verdict = f"**{of.verdict}**" if row.verdict in _BAD and row.claim.counts else of.verdict
    if wrong_epsilon(row) or row.guarantee == REFUTED:
        verdict += f", **ε {row.guarantee}**"
    return [of.method, of.claimed, of.measured_of, verdict, epsilon_text(row), of.difference, of.margin]


def epsilon_text(row: ClaimRow) -> str:
    """The ε that the paper names and the sound one of the runs; a mark says if the claimed ε is guaranteed for them."""
    claimed = row.claim.at_epsilon or (row.claim.claimed if row.claim.quantity.startswith("epsilon") else "")
    if claimed == "inf" or not claimed:
        return "–"
    if row.epsilon_sound is None:
        return row.claim.at_epsilon or "–"
    least = f"≥ {number(row.epsilon_least, bound='lower')}, ≤ " if row.guarantee == REFUTED else ""
    return f"{claimed} → {least}{sound_bound_text(row.epsilon_sound)}{_HOLDS.get(row.guarantee, '')}"


def _notes(rows: Sequence[ClaimRow]) -> str:
    """The notes of rows as a list, no sentence twice; sentences of some rows alone have these rows' names.

    If a claim of one experiment is not run, a note has the reason.
    """
    of_rows = [(row, row.how if row.measured is None and row.claim.alone else row.reason) for row in rows]
    parts = [(row, [*map(capitalised, _sentences(why) + _sentences(row.claim.note))]) for row, why in of_rows]
    return "".join(f"- {line}.\n" for line in _by_rows(_rows_of(parts), rows))


def _by_rows(of_sentence: Mapping[str, Sequence[ClaimRow]], rows: Sequence[ClaimRow]) -> list[str]:
    """Join the sentences that the same rows have, after the names of these rows if others lack them."""
    lines = []
    for sentences in grouped(of_sentence, lambda sentence: tuple(map(id, of_sentence[sentence]))).values():
        of = of_sentence[sentences[0]]
        names = "" if len(of) == len(rows) else f"{_named(of, rows)}: "
        lines.append(f"{names}{'. '.join(sentences)}")
    return lines


def _rows_of(parts: Sequence[tuple[ClaimRow, Sequence[str]]]) -> dict[str, list[ClaimRow]]:
    """List the rows of each part of a text."""
    found: dict[str, list[ClaimRow]] = {}
    for row, of_row in parts:
        for part in dict.fromkeys(of_row):
            found.setdefault(part, []).append(row)
    return found


def _sentences(text: str) -> list[str]:
    return [sentence for sentence in text.split(". ") if sentence]


def _named(of: Sequence[ClaimRow], rows: Sequence[ClaimRow]) -> str:
    """Name some rows of a table by their methods.

    Quantities, data sets and readings are named if others of the method are not among the rows.
    """
    names = []
    of_method = grouped(rows, lambda row: row.claim.method)
    apart = {name for name, its in of_method.items() if len({row.claim.quantity for row in its}) > 1 and {*its} - {*of}}

    def name_of(row: ClaimRow) -> str:
        return method_text(replace(row.claim, reading="")) if row.claim.method in apart else row.claim.method

    for method, there in grouped(of, name_of).items():
        every = [row for row in rows if name_of(row) == method]
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
    """List what the paper leaves open and this project chose, for each item, or for several that are alike."""
    items: dict[str, list[str]] = {}
    for item, of in grouped((row for row in rows if row.claim.open), lambda row: row.claim.item).items():
        items.setdefault(_open_text(of), []).append(item)
    return "".join(f"- {', '.join(names)}:{text}" for text, names in items.items())


def _open_text(rows: Sequence[ClaimRow]) -> str:
    """Write what is open in all rows and words of lists in some, then a line for each sentence of some rows."""
    parts = _rows_of([(row, _words(row.claim.open)) for row in rows])
    every = [part for part, of in parts.items() if len(of) == len(rows)]
    some = ", ".join(part for part in parts if part not in every and part[0].islower())
    lists = ", ".join(part for part in every if part[0].islower()), f"in some rows {some}" if some else ""
    first = ["; ".join(filter(None, lists)), *(part for part in every if not part[0].islower())]
    rest = {part: of for part, of in parts.items() if part not in every and not part[0].islower()}
    text = "".join(f" {sentence}." for sentence in first if sentence)
    return f"{text}\n" + "".join(f"  - {line}.\n" for line in _by_rows(rest, rows))


def _words(text: str) -> list[str]:
    """Split a text into sentences, and those that begin with a small letter, which are lists, into their words."""
    words: list[str] = []
    for sentence in _sentences(text):
        words += sentence.split(", ") if sentence[0].islower() else [sentence]
    return words

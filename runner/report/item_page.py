"""The page of a table or figure of a paper: its picture, the table as printed, all of its claims and their notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.claims.claim import dataset_name
from runner.claims.judgement import ClaimRow, by_word, capitalised
from runner.claims.runs import grouped
from runner.claims.verdicts import (
    DIFFERS,
    FAILS,
    GUARANTEED,
    HOLDS,
    NOT_CONTRADICTED,
    NOT_GUARANTEED,
    OPEN,
    REFUTED,
)
from runner.report.cells import cells_of, method_text, sound_bound_text, wrong_epsilon
from runner.report.files import Table, enumerated, markdown, number
from runner.report.items import Item, Paper

HEADER = ("claim", "paper", "here (what it is)", "verdict", "ε paper → sound", "difference [95%]", "margin")
_BAD = (DIFFERS, FAILS)
_PLURAL = {HOLDS: "hold", NOT_CONTRADICTED: "are not contradicted", DIFFERS: "differ", FAILS: "fail", OPEN: "are open"}
_SINGULAR = {NOT_CONTRADICTED: "is not contradicted", OPEN: "is open"}
_HOLDS = {GUARANTEED: " ✓", NOT_GUARANTEED: " ✗", REFUTED: " ✗"}


def page(paper: Paper, item: Item, rows: Sequence[ClaimRow], table: str, mark: str, files: Sequence[str]) -> str:
    """Write the page of an item, which stands in the item's folder.

    Args:
        rows: its judged claims.
        table: its table in Markdown, "" if it has none.
        mark: a text that marks runs of another scale than the paper's.
        files: the names of the files in the folder.
    """
    parts = [f"# {paper.short}, {lowered(item.title)}\n{mark}"]
    if "figure.svg" in files:
        parts.append(f"![{alternative_text(item, rows)}](figure.svg)\n")
    if table:
        parts.append(table)
    if rows:
        parts.append(f"## Claims\n\n{claims_text(rows)}")
        parts.append("[How to read the table](../../README.md#how-to-read-a-table-of-claims).\n")
    if chosen := open_settings(rows):
        parts.append(f"## Settings that the paper leaves open\n\nChosen here: {chosen}")
    links = ", ".join(f"[{name}]({name})" for name in files if name.endswith(".csv"))
    data = f" Data: {links}." if links else ""
    parts.append(f"{commands(paper, item)}{data} [The whole paper](../README.md).\n")
    return "\n".join(parts)


def claims_text(rows: Sequence[ClaimRow]) -> str:
    """Write the table of claims, then their notes."""
    notes = _notes(rows)
    return _table(rows) + (f"\n{notes}" if notes else "")


def lowered(title: str) -> str:
    """Begin a title with a small letter, unless a name or a formula begins it."""
    return title[0].lower() + title[1:] if title[1:2].islower() else title


def alternative_text(item: Item, rows: Sequence[ClaimRow]) -> str:
    """Say what a figure shows, and how many of its claims have which word."""
    words = words_text(rows)
    return f"{item.title}{'; ' + words if words else ''}".replace("[", "(").replace("]", ")")


def words_text(rows: Sequence[ClaimRow]) -> str:
    """Count the claims of an item by their words: "of 4 claims, 2 hold, 1 fails and 1 is open"."""
    counts = {word: count for word, count in by_word(rows).items() if word and count}
    texts = [f"{count} {_SINGULAR.get(word, word) if count == 1 else _PLURAL[word]}" for word, count in counts.items()]
    total = sum(counts.values())
    return f"of {total} claim{'s' * (total > 1)}, {enumerated(texts)}" if texts else ""


def commands(paper: Paper, item: Item) -> str:
    """Name the commands that draw an item again and, if it has runs, train it again."""
    name, chosen = paper.name.replace("_", "-"), f"ITEMS={item.name}"
    again = f"Make it again: `make aggregate-{name} {chosen}`."
    return f"{again} Train its runs: `make reproduce-{name} {chosen}`." if paper.needs(item) else again


def _table(rows: Sequence[ClaimRow]) -> str:
    """Write a table; the rows of each data set stand below its name if there are several."""
    by_dataset = grouped(rows, lambda row: row.claim.dataset)
    lines: list[list[str]] = []
    for dataset, group in by_dataset.items():
        if len(by_dataset) > 1:
            lines.append([f"**{dataset_name(dataset)}**", *[""] * (len(HEADER) - 1)])
        lines += map(_line, group)
    return markdown(Table(HEADER, lines))


def _line(row: ClaimRow) -> list[str]:
    cells = cells_of(row)
    return [
        cells.method,
        cells.claimed,
        cells.measured_of,
        marked_verdict(row),
        epsilon_text(row),
        cells.difference,
        cells.margin,
    ]


def marked_verdict(row: ClaimRow) -> str:
    """Format the word on a claim, bold if it is a bad one that counts, with the word on its epsilon if that is bad."""
    text = cells_of(row).verdict
    verdict = f"**{text}**" if row.verdict in _BAD and row.claim.counts else text
    return f"{verdict}, **ε {row.guarantee}**" if wrong_epsilon(row) or row.guarantee == REFUTED else verdict


def epsilon_text(row: ClaimRow) -> str:
    """The ε that the paper names and the sound one of the runs; a mark says if the claimed ε is guaranteed for them."""
    of_epsilon = row.claim.quantity.startswith("epsilon") and not row.claim.at_epsilon
    claimed = row.claim.claimed if of_epsilon else row.claim.at_epsilon
    if not claimed or claimed.number == math.inf:
        return "–"
    if row.epsilon_sound is None:
        return row.claim.at_epsilon.text or "–"
    least = f"≥ {number(row.epsilon_least, bound='lower')}, ≤ " if row.guarantee == REFUTED else ""
    return f"{claimed} → {least}{sound_bound_text(row.epsilon_sound)}{_HOLDS.get(row.guarantee, '')}"


def _notes(rows: Sequence[ClaimRow]) -> str:
    """The notes of rows as a list, no sentence twice; sentences of some rows alone have these rows' names.

    If a claim of one experiment is not run, a note has the reason.
    """
    of_rows = [(row, row.how if row.measured is None and row.claim.alone else row.reason) for row in rows]
    parts = [
        (row, [*map(capitalised, _sentences(why) + _sentences(row.claim.note) + _cause(row))]) for row, why in of_rows
    ]
    return "".join(f"- {line}.\n" for line in _by_rows(_rows_of(parts), rows))


def _cause(row: ClaimRow) -> list[str]:
    """Return why a claim fails or differs, or why its epsilon is refuted, if it does."""
    return _sentences(row.claim.cause) if row.verdict in _BAD or row.guarantee == REFUTED else []


def _by_rows(of_sentence: Mapping[str, Sequence[ClaimRow]], rows: Sequence[ClaimRow]) -> list[str]:
    """Join the sentences that the same rows have, after the names of these rows if others lack them."""
    lines = []
    for sentences in grouped(of_sentence, lambda sentence: tuple(map(id, of_sentence[sentence]))).values():
        having = of_sentence[sentences[0]]
        names = "" if len(having) == len(rows) else f"{_named(having, rows)}: "
        lines.append(f"{names}{'. '.join(sentences)}")
    return lines


def _rows_of(parts: Sequence[tuple[ClaimRow, Sequence[str]]]) -> dict[str, list[ClaimRow]]:
    """List the rows of each part of a text."""
    rows_by_part: dict[str, list[ClaimRow]] = {}
    for row, of_row in parts:
        for part in dict.fromkeys(of_row):
            rows_by_part.setdefault(part, []).append(row)
    return rows_by_part


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
    """List what the paper leaves open and this project chose: what all rows have, then a line for what some have."""
    stated = [row for row in rows if row.claim.open]
    return _open_text(stated).lstrip() if stated else ""


def _open_text(rows: Sequence[ClaimRow]) -> str:
    """Write what is open in all rows and words of lists in some, then a line for each sentence of some rows."""
    parts = _rows_of([(row, _words(row.claim.open)) for row in rows])
    every = [part for part, of in parts.items() if len(of) == len(rows)]
    some = ", ".join(part for part in parts if part not in every and part[0].islower())
    lists = ", ".join(part for part in every if part[0].islower()), f"in some rows {some}" if some else ""
    first = ["; ".join(filter(None, lists)), *(part for part in every if not part[0].islower())]
    rest = {part: of for part, of in parts.items() if part not in every and not part[0].islower()}
    text = "".join(f" {sentence}." for sentence in first if sentence)
    return f"{text}\n" + "".join(f"\n- {line}." for line in _by_rows(rest, rows)) + "\n" * bool(rest)


def _words(text: str) -> list[str]:
    """Split a text into sentences, and those that begin with a small letter, which are lists, into their words."""
    words: list[str] = []
    for sentence in _sentences(text):
        words += sentence.split(", ") if sentence[0].islower() else [sentence]
    return words

"""The page of a table or figure of a paper: its picture, the table as printed, all of its claims and their notes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.claims import verdicts
from runner.claims.claim import dataset_name
from runner.claims.runs import grouped
from runner.claims.verdicts import ClaimRow, capitalised, count_words
from runner.report.claim_rows import cells_of, method_text, sound_bound_text, wrong_epsilon
from runner.report.files import Table, enumerated, markdown, number
from runner.report.items import Item, Paper

HEADER = ("claim", "paper", "here (what it is)", "verdict", "ε paper → sound", "difference [95%]", "margin")
_PLURAL = dict(zip(verdicts.WORDS, ("hold", "are not contradicted", "differ", "fail", "are open"), strict=True))
_SINGULAR = {verdicts.NOT_CONTRADICTED: "is not contradicted", verdicts.OPEN: "is open"}
_HOLDS = {verdicts.GUARANTEED: " ✓", verdicts.NOT_GUARANTEED: " ✗", verdicts.REFUTED: " ✗"}


def page(paper: Paper, item: Item, rows: Sequence[ClaimRow], table: str, mark: str, files: Sequence[str]) -> str:
    """Write the page of an item, which stands in the item's folder.

    Args:
        rows: its judged claims.
        table: its table in Markdown, "" if it has none.
        mark: a text that marks runs of another scale than the paper's.
        files: the names of the files in the folder.
    """
    title = item.title[0].lower() + item.title[1:] if item.title[1:2].islower() else item.title
    parts = [f"# {paper.short}, {title}\n{mark}"]
    if "figure.svg" in files:
        alternative = "; ".join(filter(None, (item.title, words_text(rows)))).replace("[", "(").replace("]", ")")
        parts.append(f"![{alternative}](figure.svg)\n")
    if table:
        parts.append(table)
    if rows:
        parts.append(f"## Claims\n\n{claims_text(rows)}")
        parts.append("[How to read the table](../../README.md#how-to-read-a-table-of-claims).\n")
    if chosen := open_settings(rows):
        parts.append(f"## Settings that the paper leaves open\n\nChosen here: {chosen}")
    links = ", ".join(f"[{name}]({name})" for name in files if name.endswith(".csv"))
    name = paper.name.replace("_", "-")
    commands = f"Make it again: `make aggregate-{name} ITEMS={item.name}`."
    if paper.needs(item):
        commands += f" Train its runs: `make reproduce-{name} ITEMS={item.name}`."
    parts.append(f"{commands}{f' Data: {links}.' if links else ''} [The whole paper](../README.md).\n")
    return "\n".join(parts)


def claims_text(rows: Sequence[ClaimRow]) -> str:
    """Write the table of claims, then their notes; the rows of a data set stand below its name if there are several."""
    by_dataset = grouped(rows, lambda row: row.claim.dataset)
    lines: list[list[str]] = []
    for dataset, group in by_dataset.items():
        if len(by_dataset) > 1:
            lines.append([f"**{dataset_name(dataset)}**", *[""] * (len(HEADER) - 1)])
        for row in group:
            cells = cells_of(row)
            texts = (cells.method, cells.claimed, cells.measured_of, marked_verdict(row), epsilon_text(row))
            lines.append([*texts, cells.difference, cells.margin])
    notes = _notes(rows)
    return markdown(Table(HEADER, lines)) + (f"\n{notes}" if notes else "")


def words_text(rows: Sequence[ClaimRow]) -> str:
    """Count the claims of an item by their words: "of 4 claims, 2 hold, 1 fails and 1 is open"."""
    words = count_words(rows)
    counts = {word: words[word] for word in verdicts.WORDS if words[word]}
    texts = [f"{count} {_SINGULAR.get(word, word) if count == 1 else _PLURAL[word]}" for word, count in counts.items()]
    total = sum(counts.values())
    return f"of {total} claim{'s' * (total > 1)}, {enumerated(texts)}" if texts else ""


def marked_verdict(row: ClaimRow) -> str:
    """Format the word on a claim, bold if it is a bad one that counts, with the word on its epsilon if that is bad."""
    text = cells_of(row).verdict
    verdict = f"**{text}**" if row.verdict in (verdicts.FAILS, verdicts.DIFFERS) and row.claim.counts else text
    return f"{verdict}, **ε {row.guarantee}**" if wrong_epsilon(row) or row.guarantee == verdicts.REFUTED else verdict


def epsilon_text(row: ClaimRow) -> str:
    """The ε that the paper names and the sound one of the runs; a mark says if the claimed ε is guaranteed for them."""
    is_epsilon = row.claim.quantity.startswith("epsilon") and not row.claim.at_epsilon
    claimed = row.claim.claimed if is_epsilon else row.claim.at_epsilon
    if not claimed or claimed.number == math.inf:
        return "–"
    if row.epsilon_sound is None:
        return row.claim.at_epsilon.text or "–"
    least = f"≥ {number(row.epsilon_least, bound='lower')}, ≤ " if row.guarantee == verdicts.REFUTED else ""
    return f"{claimed} → {least}{sound_bound_text(row.epsilon_sound)}{_HOLDS.get(row.guarantee, '')}"


def _notes(rows: Sequence[ClaimRow]) -> str:
    """The notes of rows as a list, no sentence twice; sentences of some rows alone have these rows' names.

    If a claim of one experiment is not run, a note has the reason. A claim that fails or differs, or whose epsilon is
    refuted, has its cause.
    """
    parts = []
    for row in rows:
        reason = row.how if row.measured is None and row.claim.alone else row.reason
        cause = row.claim.cause if row.bad else ""
        sentences = [s for text in (reason, row.claim.note) for s in _sentences(text)]
        parts.append((row, [*map(capitalised, [*sentences, *_sentences(cause)])]))
    return "".join(f"- {line}.\n" for line in _joined(_rows_by_part(parts), rows))


def _joined(rows_by_sentence: Mapping[str, Sequence[ClaimRow]], rows: Sequence[ClaimRow]) -> list[str]:
    """Join the sentences that the same rows have, after the names of these rows if others lack them."""
    lines = []
    for sentences in grouped(rows_by_sentence, lambda text: tuple(map(id, rows_by_sentence[text]))).values():
        having = rows_by_sentence[sentences[0]]
        names = "" if len(having) == len(rows) else f"{_names(having, rows)}: "
        lines.append(f"{names}{'. '.join(sentences)}")
    return lines


def _rows_by_part(parts: Sequence[tuple[ClaimRow, Sequence[str]]]) -> dict[str, list[ClaimRow]]:
    rows_by_part: dict[str, list[ClaimRow]] = {}
    for row, texts in parts:
        for text in dict.fromkeys(texts):
            rows_by_part.setdefault(text, []).append(row)
    return rows_by_part


def _sentences(text: str) -> list[str]:
    return [sentence for sentence in text.split(". ") if sentence]


def _names(having: Sequence[ClaimRow], rows: Sequence[ClaimRow]) -> str:
    """Name some rows of a table by their methods.

    Quantities, data sets and readings are named if others of the method are not among the rows.
    """
    by_method = grouped(rows, lambda row: row.claim.method)
    several = {m: g for m, g in by_method.items() if len({row.claim.quantity for row in g}) > 1}
    ambiguous = [method for method, group in several.items() if {*group} - {*having}]

    def name_of(row: ClaimRow) -> str:
        return method_text(replace(row.claim, reading="")) if row.claim.method in ambiguous else row.claim.method

    names = []
    for method, chosen in grouped(having, name_of).items():
        alike = [row for row in rows if name_of(row) == method]
        datasets = {row.claim.dataset for row in chosen}
        complete = len(chosen) == sum(row.claim.dataset in datasets for row in alike)
        by_reading = {"": chosen} if complete else grouped(chosen, lambda row: row.claim.reading)
        for reading, group in by_reading.items():
            name = f"{method} ({reading})" if reading else method
            readings = [row for row in alike if not reading or row.claim.reading == reading]
            places = ", ".join(dict.fromkeys(dataset_name(row.claim.dataset) for row in group))
            names.append(name if len(group) == len(readings) else f"{name} on {places}")
    return "; ".join(names)


def open_settings(rows: Sequence[ClaimRow]) -> str:
    """List what the paper leaves open and this project chose: what all rows have, then a line for what some have.

    A text that begins with a small letter is a list of words. Those that only some rows have stand in the first line.
    """
    stated = [row for row in rows if row.claim.open]
    if not stated:
        return ""
    parts = []
    for row in stated:
        sentences = _sentences(row.claim.open)
        parts.append((row, [w for text in sentences for w in (text.split(", ") if text[0].islower() else [text])]))
    rows_by_part = _rows_by_part(parts)
    common = [part for part, group in rows_by_part.items() if len(group) == len(stated)]
    partial = {part: group for part, group in rows_by_part.items() if part not in common}
    words = ", ".join(part for part in common if part[0].islower())
    some = ", ".join(part for part in partial if part[0].islower())
    lists = "; ".join(filter(None, (words, f"in some rows {some}" if some else "")))
    text = "".join(f" {part}." for part in (lists, *(p for p in common if not p[0].islower())) if part)
    lines = _joined({part: group for part, group in partial.items() if not part[0].islower()}, stated)
    return (f"{text}\n" + "".join(f"\n- {line}." for line in lines) + "\n" * bool(lines)).lstrip()

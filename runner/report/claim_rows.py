"""Judged claims: the rows of results/<paper>/<item>/claims.csv, their cells for people, and the page of an item."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import TypeAdapter

from runner.claims import verdicts
from runner.claims.claim import ANOTHER_READING, ORDERS, THRESHOLDS, Claim, dataset_name
from runner.claims.evidence import PAPER_SCALE, grouped
from runner.claims.intervals import Interval
from runner.claims.measurement import Measured
from runner.claims.verdicts import ClaimRow, capitalised, count_words, judge
from runner.config import options_of
from runner.report import formats
from runner.report.formats import Table, bound_text, elsewhere, enumerated, markdown, number, plus_minus
from runner.terminal import command

if TYPE_CHECKING:
    from runner.report.papers import Item, Paper

_CLAIM = (
    *("paper", "item", "dataset", "network", "method", "reading", "quantity", "at_epsilon", "at_delta", "claimed"),
    *("unit", "of", "source", "note", "sweep", "experiments", "number", "level", "margin", "direction"),
    *("open", "because", "counted"),
)
_TYPES = {name: TypeAdapter(kind) for name, kind in get_type_hints(ClaimRow).items() if name != "claim"}
_OUTCOME = tuple(_TYPES)
CLAIMED_EPSILON = "the claimed ε is"  # guaranteed, or not
HEADER = ("claim", "paper", "here (what it is)", "verdict", "ε paper → sound", "difference [95%]", "margin")
_PLURAL = dict(zip(verdicts.WORDS, ("hold", "are not contradicted", "differ", "fail", "are open"), strict=True))
_SINGULAR = {verdicts.NOT_CONTRADICTED: "is not contradicted", verdicts.OPEN: "is open"}
_HOLDS = {verdicts.GUARANTEED: " ✓", verdicts.NOT_GUARANTEED: " ✗", verdicts.REFUTED: " ✗"}


def write_rows(folder: Path, rows: Sequence[ClaimRow]) -> Path:
    """Write claims.csv: a row for each claim, with its outcome.

    A difference ends with the last digit of the measured number. Further digits would be rounding errors, which depend
    on the processor.
    """
    lines = []
    for row in rows:
        outcome = {name: getattr(row, name) for name in _OUTCOME}
        if row.measured and math.isfinite(row.measured):
            places = formats.SIGNIFICANT - 1 - math.floor(math.log10(abs(row.measured)))
            for name in ("difference", "interval_low", "interval_high"):
                outcome[name] = None if outcome[name] is None else round(outcome[name], places) + 0.0
        flags = {name: "yes" if value else "no" for name, value in outcome.items() if isinstance(value, bool)}
        lines.append(_claim_cells(row.claim) | outcome | flags)
    return formats.write_csv(folder / "claims.csv", (*_CLAIM, *_OUTCOME), lines)


def rows_of(folder: Path, paper: "Paper", items: Sequence[str] | None = None) -> list[ClaimRow]:
    """Read the judged claims of all items of a paper, or of the items named, from their last aggregation.

    The claims of an item without one are not run.

    Raises:
        ValueError: another version aggregated an item, or its claims have changed since.
    """
    judged: list[ClaimRow] = []
    for item in paper.items if items is None else map(paper.item, items):
        path = folder / paper.name / item.name / "claims.csv"
        claims = [claim for claim in paper.claims if claim.item == item.name]
        if not path.exists():
            judged += [judge(claim, Measured(), PAPER_SCALE) for claim in claims]
            continue
        rows = formats.read_csv(path)
        same = [{name: row.get(name) for name in _CLAIM} for row in rows] == [*map(_claim_cells, claims)]
        if not same or any(tuple(row) != (*_CLAIM, *_OUTCOME) for row in rows):
            shrunk = folder.name != PAPER_SCALE and folder.name in options_of("scale")
            scale, root = (["--scale", folder.name], folder.parent) if shrunk else ([], folder)
            first = command("aggregate", paper.name, *scale, *elsewhere(root))
            raise ValueError(f"{path} is another version's. First run: {first}")
        judged += [_judged(claim, row) for row, claim in zip(rows, claims, strict=True)]
    return judged


def row_alone(cells: Mapping[str, str]) -> ClaimRow:
    """Make a judged claim from a row of claims.csv alone. The columns that the file lacks have their defaults."""
    fields: dict[str, Any] = {name: cells[name] for name in _CLAIM if name not in ("sweep", "experiments")}
    fields |= {name: float(cells[name]) if cells[name] else None for name in ("level", "margin")}
    pairs = tuple((name,) for name in cells["experiments"].split())
    return _judged(Claim("", pairs=pairs, **fields), cells)


def _judged(claim: Claim, cells: Mapping[str, str]) -> ClaimRow:
    """Read the columns of an outcome. An empty one has the default."""
    return ClaimRow(claim, **{name: kind.validate_python(cells[name]) for name, kind in _TYPES.items() if cells[name]})


def _claim_cells(claim: Claim) -> dict[str, Any]:
    return {name: formats.cell(getattr(claim, name)) for name in _CLAIM} | {"experiments": " ".join(claim.experiments)}


def cells_of(row: ClaimRow) -> SimpleNamespace:
    """Format a judged claim as texts, in the units of the claim, with a dash for an empty cell.

    `measured` is the number, ± the standard deviation of the runs if it is their mean; of an order it has both
    settings' numbers. `measured_of` adds what it is: "mean of 5", "best of 5, mean 62.91 ± 0.90", "one run, 1 of 5
    planned" or "by formula". `spread` is minimum / median / maximum.
    """
    claim, unit, places = row.claim, row.claim.unit, _places(row)
    std = row.std if row.measured == row.mean and not row.at_least else None  # none for a maximum or a bound
    if unit == "epsilon" and row.measured == math.inf:
        measured = "not reached"
    else:
        measured = plus_minus(row.measured, std, unit, at_least=row.at_least, places=places)
    # The other setting of an order has a number of its own, unless the measured number is itself the difference.
    if claim.direction in ORDERS and row.measured is not None and row.difference not in (None, row.measured):
        spread, runs = (text.partition(" + ")[2] for text in (row.spread_each, row.n_each))
        std = float(spread) if spread and runs not in ("", "1") else None  # one run has none of its own
        measured += f" against {plus_minus(row.measured - row.difference, std, unit, places=places)}"
    parts = [row.measured_is]
    if claim.statistic == "best" and row.mean is not None:
        parts.append(f"mean {plus_minus(row.mean, row.std, unit)}")
    if row.n < row.n_planned:
        parts.append(f"{row.n} of {row.n_planned} planned")
    spent = "" if row.epsilon_spent is None else f" (spent: {bound_text(row.epsilon_spent)})"
    kind, dataset, method = ", ".join(filter(None, parts)), dataset_name(claim.dataset), method_text(claim)
    no_margin = claim.margin is None or claim.direction in (*THRESHOLDS, *ORDERS)
    return SimpleNamespace(
        dataset=dataset,
        method=method,
        what=f"{dataset}, {method}",
        claimed=claim.stated.replace("-", "−") if claim.stated.startswith("-") else claim.stated,
        margin="–" if no_margin else f"{claim.margin:g}",
        at_epsilon=claim.at_epsilon.replace("inf", "∞") or "–",
        measured=measured,
        measured_of=f"{measured} ({kind})" if kind else measured,
        spread=" / ".join(plus_minus(v, None, unit) for v in (row.min, row.median, row.max) if v is not None) or "–",
        best=plus_minus(row.best_epoch_mean, None, unit),
        difference=_row_difference(row, places),
        verdict=verdict_text(row),
        epsilon=bound_text(row.epsilon),
        sound=bound_text(row.epsilon_sound) + spent,
        guarantee=row.guarantee or "–",
    )


def chosen_cells(rows: Sequence[ClaimRow], columns: Mapping[str, str]) -> list[list[str]]:
    """Format some cells of judged claims, a row for each claim. `columns` has the names of the cells, by heading."""
    return [[getattr(cells, name) for name in columns.values()] for cells in map(cells_of, rows)]


def method_text(claim: Claim) -> str:
    """Name the method, the quantity unless it is the accuracy, and in brackets the interpretation of the paper."""
    quantity = claim.quantity.replace("_", " ").replace("epsilon", "ε")
    what = "" if claim.quantity == "test_accuracy" else f": {quantity}"
    return claim.method + what + (f" ({claim.reading})" if claim.reading else "")


def _places(row: ClaimRow) -> int | None:
    """Return the decimals that the spread of the runs supports: as many as its second significant digit has.

    An accuracy and a difference of accuracies have at most two, also without a spread, as the largest of the runs has
    none. None for other numbers without one.
    """
    spread = row.interval.half_width / 2 if row.std is None and row.interval is not None else row.std
    if row.mean not in (None, row.measured) or not spread or not math.isfinite(spread):
        return 2 if row.claim.unit in ("%", "points") else None
    places = max(0, 1 - math.floor(math.log10(spread)))
    return min(places, 2) if row.claim.unit in ("%", "points") else places


def _row_difference(row: ClaimRow, places: int | None) -> str:
    """Format the difference of a judged claim. That of a computed ε has its decimals and is rounded up like it."""
    claim, difference = row.claim, row.difference
    if claim.unit == "epsilon" and row.computed and not row.at_least and difference is not None:
        text = number(difference, places=len(bound_text(row.measured).partition(".")[2]), bound="upper")
        return text if text.startswith("−") else f"+{text}"
    level = claim.level if claim.direction in THRESHOLDS else None
    return difference_text(difference if level is None else None, claim.unit, row.interval, level, places)


def difference_text(
    difference: float | None,
    unit: str,
    interval: Interval | None,
    level: float | None = None,
    places: int | None = None,
) -> str:
    """Format a difference with its sign and its interval in brackets; a dash if there is neither.

    If a level is claimed, the text is the interval of the measured number, next to the level.
    """
    if interval is None:
        return "–" if difference is None else signed(difference, unit, places)
    if level is not None:
        low, high = (number(end + level, unit, places=places) for end in (interval.low, interval.high))
        return f"[{low}, {high}], threshold {number(level, unit)}"
    ends = f"[{signed(interval.low, unit, places)}, {signed(interval.high, unit, places)}]"
    return ends if difference is None else f"{signed(difference, unit, places)} {ends}"


def signed(value: float, unit: str, places: int | None) -> str:
    """Format a number with its sign. One that would round to zero has its first digit instead."""
    text = number(abs(value), unit, places=places)
    if round(value, 9) and not text.strip("0."):
        text = f"{abs(value):.1g}"
    return ("−" if value < 0 and text.strip("0.") else "+") + text


def verdict_text(row: ClaimRow) -> str:
    """Format the word with, in brackets, what belongs to it: the needed runs, a formula, and that it is not counted."""
    if not row.verdict:
        return "for context" if row.claim.contextual else "–"
    parts = ["by formula"] if row.computed else []
    if row.verdict == verdicts.OPEN:
        needed = f"about {row.runs_needed} runs needed" if row.runs_needed else ""
        if row.reason.endswith(verdicts.NO_DIFFERENCE):
            needed = f"{verdicts.NO_DIFFERENCE} of {row.claim.margin:g}"
        parts.append("not run" if row.measured is None else needed)
    if row.claim.counted == ANOTHER_READING:
        parts.append("another reading, not counted")
    notes = ", ".join(filter(None, parts))
    return f"{row.verdict} ({notes})" if notes else row.verdict


def wrong_epsilon(row: ClaimRow) -> bool:
    """Return True if a number holds or is not contradicted, but at an ε that is refuted or not guaranteed."""
    return row.verdict in verdicts.CONFIRMED and row.guarantee in (verdicts.NOT_GUARANTEED, verdicts.REFUTED)


def sound_bound_text(epsilon: float) -> str:
    """Format a sound epsilon for a sentence, rounded up: with two decimals, from 100 with none."""
    text = number(epsilon, places=2 if epsilon < 100 else 0 if epsilon < 10_000 else None, bound="upper")
    return f"{int(text):,}" if 10_000 <= epsilon < math.inf else text


def item_page(
    paper: "Paper", item: "Item", rows: Sequence[ClaimRow], table: str, mark: str, files: Sequence[str]
) -> str:
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
        gap = "\n\n" if chosen.startswith("- ") else " "
        parts.append(f"## Settings that the paper leaves open\n\nChosen here:{gap}{chosen}")
    links = ", ".join(f"[{name}]({name})" for name in files if name.endswith(".csv"))
    name = paper.name.replace("_", "-")
    commands = f"Make it again: `make aggregate-{name} ITEMS={item.name}`."
    if paper.needs(item):
        commands += f" Train its runs: `make reproduce-{name} ITEMS={item.name}`."
    parts.append(f"{commands}{f' Data: {links}.' if links else ''} [The whole paper](../README.md).\n")
    return "\n".join(parts)


def claims_text(rows: Sequence[ClaimRow]) -> str:
    """Write the table of claims, then their notes, no sentence twice.

    The rows of a data set stand below its name if there are several. Sentences of some rows alone have their names.
    """
    by_dataset = grouped(rows, lambda row: row.claim.dataset)
    lines: list[list[str]] = []
    for dataset, group in by_dataset.items():
        if len(by_dataset) > 1:
            lines.append([f"**{dataset_name(dataset)}**", *[""] * (len(HEADER) - 1)])
        for row in group:
            cells = cells_of(row)
            texts = (cells.method, cells.claimed, cells.measured_of, marked_verdict(row), epsilon_text(row))
            lines.append([*texts, cells.difference, cells.margin])

    def sentences(row: ClaimRow) -> list[str]:
        """Why a claim of one experiment is not run, its note, and why it fails, differs, or has a refuted epsilon."""
        reason = row.how if row.measured is None and row.claim.alone else row.reason
        texts = (reason, row.claim.note, row.claim.cause if row.bad else "")
        return [capitalised(sentence) for text in texts for sentence in text.split(". ") if sentence]

    notes = "".join(f"- {line}.\n" for line in _joined(_rows_by_text(rows, sentences), rows))
    return markdown(Table(HEADER, lines)) + (f"\n{notes}" if notes else "")


def null_text(rows: Sequence[ClaimRow]) -> str:
    """Say how many of the open claims are nulls: "2 of them with no difference beyond the margin"; "" for none."""
    nulls = verdicts.count_nulls(rows)
    return f"{nulls} of them with {verdicts.NO_DIFFERENCE}" if nulls else ""


def words_text(rows: Sequence[ClaimRow]) -> str:
    """Count the claims of an item by their words: "of 4 claims, 2 hold, 1 fails and 1 is open"."""
    words = count_words(rows)
    counts = {word: words[word] for word in verdicts.WORDS if words[word]}
    texts = [f"{count} {_SINGULAR.get(word, word) if count == 1 else _PLURAL[word]}" for word, count in counts.items()]
    if nulls := null_text(rows):
        texts[-1] += f", {nulls}"
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
        return row.claim.at_epsilon or "–"
    least = f"≥ {number(row.epsilon_least, bound='lower')}, ≤ " if row.guarantee == verdicts.REFUTED else ""
    return f"{claimed} → {least}{sound_bound_text(row.epsilon_sound)}{_HOLDS.get(row.guarantee, '')}"


def _joined(rows_by_sentence: Mapping[str, Sequence[ClaimRow]], rows: Sequence[ClaimRow]) -> list[str]:
    """Join the sentences that the same rows have, after the names of these rows if others lack them."""
    lines = []
    for sentences in grouped(rows_by_sentence, lambda text: tuple(map(id, rows_by_sentence[text]))).values():
        having = rows_by_sentence[sentences[0]]
        names = "" if len(having) == len(rows) else f"{_names(having, rows)}: "
        lines.append(f"{names}{'. '.join(sentences)}")
    return lines


def _rows_by_text(rows: Sequence[ClaimRow], texts_of: Callable[[ClaimRow], Sequence[str]]) -> dict[str, list[ClaimRow]]:
    pairs = [(text, row) for row in rows for text in dict.fromkeys(texts_of(row))]
    return {text: [row for _, row in group] for text, group in grouped(pairs, lambda pair: pair[0]).items()}


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

    def parts(row: ClaimRow) -> list[str]:
        sentences = filter(None, row.claim.open.split(". "))
        return [part for text in sentences for part in (text.split(", ") if text[0].islower() else [text])]

    partial = _rows_by_text(stated, parts)
    common = [part for part, group in partial.items() if len(group) == len(stated)]
    partial = {part: group for part, group in partial.items() if part not in common}
    words, some = (", ".join(part for part in listed if part[0].islower()) for listed in (common, partial))
    lists = "; ".join(filter(None, (words, f"in some rows {some}" if some else "")))
    text = "".join(f" {part}." for part in (lists, *(p for p in common if not p[0].islower())) if part)
    lines = _joined({part: group for part, group in partial.items() if not part[0].islower()}, stated)
    return (f"{text}\n" + "".join(f"\n- {line}." for line in lines) + "\n" * bool(lines)).lstrip()

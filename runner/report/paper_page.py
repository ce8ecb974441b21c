"""The page of a paper: what was found, then a table of claims for each of the paper's own tables and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from runner.claims.rows import ClaimRow
from runner.claims.verdicts import (
    DIFFERS,
    FAILS,
    GUARANTEED,
    HOLDS,
    NOT_GUARANTEED,
    NOT_REPRODUCED,
    REFUTED,
    TOO_FEW_RUNS,
)
from runner.report.items import Item, Paper
from runner.terminal import number

HEADER = ("claim", "paper", "here (runs)", "verdict", "ε paper → sound", "difference [95%]")
OF_A_STUDY = ("measured", "here (runs)", "sound ε", "interval [95%]")
LONG = 12  # rows of a table, above which it is folded
_BAD = (DIFFERS, NOT_REPRODUCED, FAILS)
_HOLDS = {GUARANTEED: " ✓", NOT_GUARANTEED: " ✗", REFUTED: " ✗"}


HOW_TO_READ = """*Here*: mean ± standard deviation of the runs, with the number of runs, of those planned if some are
missing. *ε paper → sound*: the ε that the paper names, then a proven upper bound for the runs here. ✓: the claimed ε is
guaranteed for them. ✗: it is not. *Difference*: measured minus claimed, with its 95% interval. What the verdicts mean:
[the index of results](../README.md). All columns, margins and notes: `claims.csv` of each table.
"""


def page(paper: Paper, rows: Sequence[ClaimRow], statement: str, figure: str, mark: str) -> str:
    """Write the page of a paper but for its remarks on what has not run.

    Args:
        rows: its claims as last aggregated.
        statement: its finding, "" if there is none.
        figure: the path of its figure from the page, "" if there is none.
        mark: a text that marks runs of another scale than the paper's.
    """
    parts = [f"# {paper.title}\n{mark}"]
    if paper.idea:
        parts.append(f"{'The question' if paper.study else 'The idea'}: {paper.idea}.\n")
    if statement:
        parts.append(f"{statement}\n")
    if figure:
        parts.append(f"![{paper.title}]({figure})\n")
    parts += [f"- {remark.format(results='../')}\n" for remark in paper.remarks]
    parts.append(tables_of(paper, rows))
    if not paper.study:
        parts.append(f"## How to read the tables\n\n{HOW_TO_READ}")
    if chosen := open_settings(rows):
        parts.append(f"## Settings that the paper leaves open\n\nChosen here:\n\n{chosen}")
    return "\n".join(parts)


def tables_of(paper: Paper, rows: Sequence[ClaimRow]) -> str:
    """Write a section for each item that has claims, the headline first; long ones are folded."""
    sections = []
    for place, item in enumerate(paper.items):
        judged = [row for row in rows if row.claim.item == item.name]
        if judged:
            sections.append(_section(item, judged, paper.study, folded=place > 0 and len(judged) > LONG))
    return "\n".join(sections)


def _section(item: Item, rows: Sequence[ClaimRow], study: bool, *, folded: bool) -> str:
    notes = _notes(rows)
    table = "".join(_lines(rows, study)) + (f"\n{notes}" if notes else "")
    files = f"[All columns]({item.name}/claims.csv)"
    if not folded:
        return f"## {item.title}\n\n{table}\n{files}\n"
    summary = f"<details><summary>{len(rows)} {'numbers' if study else 'claims'}</summary>"
    return f"## {item.title}\n\n{summary}\n\n{table}\n{files}\n\n</details>\n"


def _lines(rows: Sequence[ClaimRow], study: bool) -> Iterable[str]:
    """The lines of a table; the rows of each data set stand below its name if there are several."""
    header = OF_A_STUDY if study else HEADER
    yield f"| {' | '.join(header)} |\n"
    yield "|" + "".join(" --- |" if name in ("claim", "verdict", "measured") else " ---: |" for name in header) + "\n"
    by_dataset: dict[str, list[ClaimRow]] = {}
    for row in rows:
        by_dataset.setdefault(row.claim.dataset, []).append(row)
    for dataset, of in by_dataset.items():
        if len(by_dataset) > 1:
            yield f"| **{dataset_name(dataset)}** |{' |' * (len(header) - 1)}\n"
        for row in of:
            yield "| " + " | ".join(_of_a_study(row) if study else cells(row)) + " |\n"


def _of_a_study(row: ClaimRow) -> list[str]:
    """The four cells of a number that no paper claims."""
    name = claim_text(row) + (f" at ε {row.claim.at_epsilon}" if row.claim.at_epsilon else "")
    sound = "–" if row.epsilon_sound is None else _bound(row.epsilon_sound)
    return [name, measured_text(row), sound, difference_text(row)]


def cells(row: ClaimRow) -> list[str]:
    """The six cells of a claim."""
    verdict = verdict_text(row)
    return [
        claim_text(row),
        row.claim.claimed or "in words",
        measured_text(row),
        f"**{verdict}**" if row.verdict in _BAD else verdict,
        epsilon_text(row),
        difference_text(row),
    ]


def dataset_name(dataset: str) -> str:
    """The name that people give a data set."""
    return {"CIFAR10": "CIFAR-10", "any": "any data set", "all": "all data sets"}.get(dataset, dataset)


def claim_text(row: ClaimRow) -> str:
    """The method, what is claimed of it if that is not its accuracy, and how the paper is read."""
    claim = row.claim
    what = "" if claim.quantity == "test_accuracy" else f", {claim.quantity.replace('_', ' ')}"
    return claim.method + what + (f" ({claim.reading})" if claim.reading else "")


def measured_text(row: ClaimRow) -> str:
    """The number here with the digits that its spread supports, and its runs, of those planned if some are missing."""
    if row.measured is None:
        return "–"
    runs = "by formula" if row.computed else _runs(row)
    std = row.std if row.measured == row.mean and not row.at_least else None
    places = _places(row)
    text = number(row.measured, row.claim.unit, places=places)
    if std is not None:
        text += f" ± {number(std, row.claim.unit, places=places)}"
    return f"{'≥ ' if row.at_least else ''}{_minus(text)} ({runs})"


def _runs(row: ClaimRow) -> str:
    each = row.n_each.replace(" ", "") if row.n_each else str(row.n)
    return each if row.n >= row.n_planned else f"{each} of {row.n_planned}"


def _places(row: ClaimRow) -> int | None:
    """Decimals: two significant digits of the standard deviation, at most two of an accuracy; None if unknown."""
    spread = row.std
    if spread is None and row.interval is not None and math.isfinite(row.interval.half_width):
        spread = row.interval.half_width / 2
    if not spread or not math.isfinite(spread):
        return None
    places = max(0, 1 - math.floor(math.log10(spread)))
    return min(places, 2) if row.claim.unit in ("%", "points") else places


def verdict_text(row: ClaimRow) -> str:
    """The verdict; for too few runs, the number that would do."""
    if row.verdict == TOO_FEW_RUNS and row.runs_needed:
        return f"{row.verdict} ({row.runs_have} of {row.runs_needed})"
    return f"{row.verdict} by formula" if row.verdict in (HOLDS, FAILS) else row.verdict


def epsilon_text(row: ClaimRow) -> str:
    """The ε that the paper names and the sound one of the runs; a mark says if the claimed ε is guaranteed for them."""
    claimed = row.claim.at_epsilon or (row.claim.claimed if row.claim.quantity.startswith("epsilon") else "")
    if claimed == "inf" or not claimed or row.epsilon_sound is None:
        return "–"
    return f"{claimed} → {_bound(row.epsilon_sound)}{_HOLDS.get(row.guarantee, '')}"


def _bound(epsilon: float) -> str:
    """An upper bound to two decimals, above a hundred to none, rounded up."""
    return number(epsilon, places=2 if epsilon < 100 else 0, bound="upper")


def difference_text(row: ClaimRow) -> str:
    """Measured minus claimed with its 95% interval; for a level, the interval of the number itself."""
    if row.interval is None or row.claim.level is not None:
        return ""
    places = _places(row)
    low, high = (_signed(end, places, row.claim.unit) for end in (row.interval.low, row.interval.high))
    found = "" if row.difference is None else _signed(row.difference, places, row.claim.unit) + " "
    return f"{found}[{low}, {high}]"


def _signed(value: float, places: int | None, unit: str) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return ("+" if value >= 0 else "−") + number(abs(value), unit, places=places)


def _minus(text: str) -> str:
    return f"−{text[1:]}" if text.startswith("-") else text


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
    """Name some rows of a table by their methods; a data set is named if the method's other rows are not among them."""
    names = []
    for method in dict.fromkeys(row.claim.method for row in of):
        there, every = ([row for row in among if row.claim.method == method] for among in (of, rows))
        datasets = ", ".join(dict.fromkeys(dataset_name(row.claim.dataset) for row in there))
        names.append(method if len(there) == len(every) else f"{method} on {datasets}")
    return "; ".join(names)


def open_settings(rows: Sequence[ClaimRow]) -> str:
    """List what the paper leaves open and this project chose."""
    chosen: dict[str, list[str]] = {}
    for row in rows:
        if row.claim.open:
            chosen.setdefault(row.claim.open, []).append(row.claim.item)
    return "".join(f"- {text} ({', '.join(dict.fromkeys(items))}).\n" for text, items in chosen.items())

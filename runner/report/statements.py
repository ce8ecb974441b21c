"""The findings: a few sentences for each paper and study, filled with numbers from its tables; README.md has most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.claims.claim import ORDERS
from runner.claims.judgement import ClaimRow
from runner.claims.runs import PAPER_SCALE
from runner.claims.statistics import Interval
from runner.claims.verdicts import GUARANTEED
from runner.config import REPOSITORY
from runner.report.cells import signed, sound_bound_text
from runner.report.claim_rows import rows_of
from runner.report.files import Table, markdown, write_text
from runner.report.items import Paper, Statement, Summary
from runner.report.leaderboard.comparison import standing
from runner.report.leaderboard.entries import Entry
from runner.report.noise import noise_text
from runner.report.papers import every_paper, load
from runner.report.studies import study_pages
from runner.terminal import number

_GUARDS = ("verdict", "guarantee")  # under which a statement holds
_DECIDED = ("better", "worse")
_BEGIN, _END = "<!-- results: written by `python -m runner aggregate` -->", "<!-- end of results -->"
_LIMITS = "docs/privacy.md#known-limits"


@dataclass(frozen=True)
class Sources:
    """Where statements take their numbers from. What no statement names is not computed.

    folder: the results, whose judged claims are read.
    study: returns the rows of a study's arms and effects by its name, with the texts of its table.csv and effects.csv.
    runs: returns the rows of its runs.
    board: returns the entries of the leaderboard.
    """

    folder: Path
    study: Callable[[str], Sequence[Mapping[str, str]]] = lambda _: ()
    runs: Callable[[str], Sequence[Mapping[str, str]]] = lambda _: ()
    board: Callable[[], Sequence[Entry]] = lambda: ()


class MissingError(ValueError):
    """A number lacks this part, such as the interval of a single run."""


@dataclass(frozen=True)
class Number:
    """A number in a text. The format chooses its part.

    {x} is the number, {x:size} its absolute value, {x:gain} the difference of two settings, and {x:interval} its
    95% interval. Where a claim is compared with a number, {x:interval} is that of measured minus claimed, and {x:range}
    that of the measured number. {x:sound} is the sound ε, {x:least} a lower bound on ε, {x:claimed} the claimed
    number, and {x:runs} the runs. Numbers have one decimal, those below one have two. A lower bound has two significant
    digits.
    """

    measured: float | None
    difference: float | None = None
    interval: Interval | None = None
    range: Interval | None = None
    sound: float | None = None
    least: float | None = None
    claimed: str | None = None
    runs: str | None = None

    @classmethod
    def of_claim(cls, row: ClaimRow) -> Number:
        """Return the number of a claim."""
        aim = 0.0 if row.claim.direction in (*ORDERS, "none") else row.claim.aim or 0.0
        return cls(
            row.measured,
            row.difference,
            row.interval,
            row.interval.less(-aim) if row.interval else None,
            row.epsilon_sound,
            row.measured if row.at_least else row.epsilon_least,
            row.claim.claimed.text,
            row.n_each or str(row.n),
        )

    @classmethod
    def of_study(cls, row: Mapping[str, str]) -> Number:
        """Return the number of a row of a study: of an arm its accuracy and its gain, or else an effect."""
        interval = Interval(float(row["low"]), float(row["high"])) if row["low"] else None
        if "effect" in row:
            return cls(float(row["effect"]), interval=interval)
        return cls(float(row["accuracy"]), float(row["gain"]) if row["gain"] else None, interval, runs=row["seeds"])

    def __format__(self, part: str) -> str:
        if part not in PARTS:
            raise ValueError(f"a number has no part {part!r}")
        field, text = PARTS[part]
        value = getattr(self, field)
        if value is None:
            raise MissingError(part)
        return text(value)


def _signed(value: float) -> str:
    return signed(value, "", 1 if abs(value) >= 1 else 2)


def _short(value: float) -> str:
    return _signed(value).removeprefix("+")


def _ends(interval: Interval) -> str:
    return f"[{_signed(interval.low)}, {_signed(interval.high)}]"


PARTS: dict[str, tuple[str, Callable[[Any], str]]] = {  # the field of each part, and its format
    "": ("measured", _short),
    "size": ("measured", lambda value: _short(abs(value))),
    "gain": ("difference", _short),
    "interval": ("interval", _ends),
    "range": ("range", _ends),
    "sound": ("sound", sound_bound_text),
    "least": ("least", lambda value: number(value, places=max(0, 1 - math.floor(math.log10(value))), bound="lower")),
    "claimed": ("claimed", str),
    "runs": ("runs", str),
}


def stated(name: str, statement: Statement | None, sources: Sources) -> str:
    """Write the statement of the paper or study of this name.

    It is empty if there is none, a number is missing, or a verdict or the number of decided arms is another one. Its
    `further` sentences are left out for the same reasons, each by itself.
    """
    if statement is None:
        return ""
    if statement.decided is not None and statement.decided != _decided(sources.study(name)):
        return ""
    numbers = _numbers(statement.numbers, name, sources)
    if numbers is None:
        return ""
    try:
        text = statement.text.format(**numbers)
    except MissingError:
        return ""
    return " ".join(filter(None, (text, *(stated(name, more, sources) for more in statement.further))))


def headline_of(stated: str) -> str:
    """Return the bold sentences that a statement begins with, or ""."""
    parts = stated.split("**")
    return parts[1] if stated.startswith("**") and len(parts) > 2 else ""


def _decided(rows: Sequence[Mapping[str, str]]) -> int:
    """Count the arms of a study that are better or worse than its baseline."""
    return sum("arm" in row and row["answer"] in _DECIDED for row in rows)


def _numbers(named: Mapping[str, Mapping[str, str]], paper: str, sources: Sources) -> dict[str, Number] | None:
    """Find the numbers of a statement by name; None as soon as there is one that cannot be stated."""
    numbers = {}
    for key, fields in named.items():
        number = _found(fields, paper, sources)
        if number is None:
            return None
        numbers[key] = number
    return numbers


def _found(fields: Mapping[str, str], paper: str, sources: Sources) -> Number | None:
    """Find the number that fields name; None if there is none, it was not measured, or it has another verdict."""
    if "study" in fields:
        return _of_study(fields, sources.study(fields["study"]))
    if "leaderboard" in fields:
        return _of_leaderboard(fields, sources.board())
    rows = rows_of(sources.folder, load(fields.get("paper", paper)))
    named = {name: value for name, value in fields.items() if name not in _GUARDS}
    row = next((row for row in rows if row.claim.has(named)), None)
    if row is None or row.measured is None:
        return None
    holds = all(getattr(row, name) in fields[name].split(", ") for name in _GUARDS if name in fields)
    return Number.of_claim(row) if holds else None


def _of_study(fields: Mapping[str, str], every: Sequence[Mapping[str, str]]) -> Number | None:
    """Find the only row of a study's tables that fields name; None if it has no number or is not there."""
    named = {name: value for name, value in fields.items() if name != "study"}.items()
    rows = [row for row in every if named <= row.items()]
    if len(rows) > 1:
        raise ValueError(f"{len(rows)} rows of {fields['study']} have {dict(named)}: a finding's number needs one.")
    row = rows[0] if rows else None
    return None if row is None or not (row.get("effect") or row.get("accuracy")) else Number.of_study(row)


def _of_leaderboard(fields: Mapping[str, str], board: Sequence[Entry]) -> Number | None:
    """Find the accuracy of a method's setting that stands on the leaderboard; None if there is none."""
    entry = standing(board, fields["dataset"], float(fields["epsilon"])).get(fields["leaderboard"])
    return None if entry is None else Number(entry.mean, runs=str(len(entry.accuracies)))


def findings_list(papers: Sequence[Paper], sources: Sources) -> str:
    """Write the findings of papers and studies as a numbered list, papers first; links are from results/README.md."""
    lines: list[str] = []
    for name, statement, page, link in _pages(papers, sources.folder):
        if statement and statement.readme and (text := stated(name, statement, sources)):
            lines.append(f"{len(lines) + 1}. {text} ([{link}]({page}/README.md))\n")
    return "".join(lines)


def _pages(papers: Sequence[Paper], folder: Path) -> list[tuple[str, Statement | None, str, str]]:
    pages = [(paper.name, paper.statement, paper.name, "every claim") for paper in papers]
    return pages + [(s.name, s.statement, f"studies/{s.name}", "the study") for s in study_pages(folder)]


def summary_table(papers: Sequence[Paper], sources: Sources) -> str:
    """Write the table of the README: what each paper claims, what was measured, at which sound ε, and the word for it.

    A row whose number was not measured says so.
    """
    rows = []
    for paper in papers:
        link = f"[{paper.short}](results/{paper.name}/README.md): {paper.idea}"
        for cells in summary_rows(paper, sources):
            rows.append([link, *cells])
            link = ""
    return markdown(Table(("paper", "it claims", "measured here", "at a sound ε of", "verdict"), rows))


def summary_rows(paper: Paper, sources: Sources) -> list[list[str]]:
    """Return a paper's rows of that table: the claim, what was measured, at which sound ε, and the word for it."""
    rows = []
    for summary in paper.summaries:
        numbers = _numbers(summary.numbers, paper.name, sources)
        try:
            if numbers is None:
                raise MissingError
            texts = [text.format(**numbers) for text in (summary.claims, summary.measured, summary.sound)]
        except MissingError:
            texts = [summary.claims.replace("{x:claimed}", "–"), "not run", "–"]
        rows.append([*texts, _word(summary, paper, sources.folder)])
    return rows


def _word(summary: Summary, paper: Paper, folder: Path) -> str:
    """Return the words for the claim `x` of a summary: on its number, and on its ε unless that is guaranteed."""
    if "x" not in summary.numbers:
        return "–"
    row = next(row for row in rows_of(folder, paper) if row.claim.has(summary.numbers["x"]))
    epsilon = f", ε {row.guarantee}" if row.guarantee and row.guarantee != GUARANTEED else ""
    return f"{row.verdict}{epsilon}" + ("" if row.claim.counts else " (another reading, not counted)")


def headlines(papers: Sequence[Paper], sources: Sources) -> str:
    """Write the first sentence of each study's finding, as a list; links are from the README."""
    lines = []
    for name, statement, page, link in _pages(papers, sources.folder):
        if link == "the study" and statement and statement.readme and (said := stated(name, statement, sources)):
            lines.append(f"- {headline_of(said)} ([study](results/{page}/README.md))\n")
    return "".join(lines)


def write_readme(sources: Sources) -> Path:
    """Replace the text between the markers of the README by the table of papers and the studies' headlines.

    Raises:
        ValueError: the README lacks these two markers, in this order.
    """
    readme = REPOSITORY / "README.md"
    before, begin, rest = readme.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{readme} has lost the markers of the list of findings.")
    papers, by_paper = every_paper(), {paper.name: rows_of(sources.folder, paper) for paper in every_paper()}
    of_noise = noise_text(sources.folder, PAPER_SCALE, by_paper, _LIMITS)
    found = (
        f"{summary_table(papers, sources)}\nSquare brackets are 95% intervals. [What the words "
        f"mean](results/README.md#what-the-words-mean), and [every claim with its reason](results/README.md).\n\n"
        f"{of_noise}\n"
        f"Compared at the same sound ε:\n\n{headlines(papers, sources)}"
    )
    return write_text(readme, f"{before}{_BEGIN}\n{found}{_END}{after}")

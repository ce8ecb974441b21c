"""The findings in README.md: a sentence or two for each paper, filled with numbers from its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.claims.rows import ClaimRow
from runner.report.claim_rows import rows_of
from runner.report.items import Paper
from runner.report.papers import load
from runner.terminal import number

_GUARDS = ("verdict", "guarantee")  # under which a statement holds


@dataclass(frozen=True)
class Number:
    """A number in a text. The format chooses its part.

    {x} is the number, {x:size} its absolute value, {x:gain} the difference of two settings, and {x:interval} its
    95% interval. {x:sound} is the sound ε, {x:claimed} the claimed number, and {x:runs} the runs.
    Numbers have one decimal, those below one have two.
    """

    row: ClaimRow

    def __format__(self, part: str) -> str:
        row = self.row
        if not part and row.measured is not None:
            return _short(row.measured)
        if part == "size" and row.measured is not None:
            return _short(abs(row.measured))
        if part == "gain" and row.difference is not None:
            return _short(row.difference)
        if part == "interval" and row.interval:
            return f"[{_signed(row.interval.low)}, {_signed(row.interval.high)}]"
        if part == "sound" and row.epsilon_sound is not None:
            return number(row.epsilon_sound, places=2 if row.epsilon_sound < 100 else 0, bound="upper")
        if part == "claimed":
            return row.claim.claimed
        if part == "runs":
            return row.n_each or str(row.n)
        raise ValueError(f"a number has no {part!r} here")


def _short(value: float) -> str:
    text = number(abs(value), places=1 if abs(value) >= 1 else 2)
    return f"−{text}" if value < 0 else text


def _signed(value: float) -> str:
    return _short(value) if value < 0 else f"+{_short(value)}"


def stated(paper: Paper, folder: Path) -> str:
    """Write the statement of a paper from the last aggregation; empty if a number is missing or a verdict another."""
    if paper.statement is None:
        return ""
    rows = rows_of(folder, paper)
    found = {name: _found(fields, rows, folder) for name, fields in paper.statement.numbers.items()}
    if any(each is None for each in found.values()):
        return ""
    return paper.statement.text.format(**found)


def _found(fields: Mapping[str, str], rows: Sequence[ClaimRow], folder: Path) -> Number | None:
    """Find the claim that fields name; None if there is none, it was not measured, or it has another verdict."""
    if "paper" in fields:  # another paper's claim
        rows = rows_of(folder, load(fields["paper"]))
    named = {name: value for name, value in fields.items() if name not in _GUARDS}
    row = next((row for row in rows if all(getattr(row.claim, name) == value for name, value in named.items())), None)
    if row is None or row.measured is None:
        return None
    holds = all(getattr(row, name) in fields[name].split(", ") for name in _GUARDS if name in fields)
    return Number(row) if holds else None


def findings_list(papers: Sequence[Paper], folder: Path) -> str:
    """Write the numbered list of README.md; links are from there."""
    lines: list[str] = []
    for paper in papers:
        if text := stated(paper, folder):
            name = paper.name.replace("_", " ")
            lines.append(f"{len(lines) + 1}. {text} ([{name}](results/{paper.name}/README.md))\n")
    return "".join(lines)

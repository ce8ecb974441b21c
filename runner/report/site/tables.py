"""The two tables with filters: every claim, and every row of the leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.claims.blocks import dataset_name
from runner.claims.claim import ANOTHER_READING, COUNTED, FOR_CONTEXT
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import ON_EPSILON, WORDS
from runner.report.cells import CLAIMED_EPSILON, cells_of, method_text, verdict_text
from runner.report.claim_rows import rows_of
from runner.report.files import bound_text, number, read_csv
from runner.report.items import Paper
from runner.report.leaderboard.methods import accuracy_text
from runner.report.paper_page import epsilon_text
from runner.report.site.text import anchor

Named = Mapping[str, str]
_EMPTY = ("", "–")
_ORDERED = {"verdict": WORDS, "counted": (COUNTED, ANOTHER_READING, FOR_CONTEXT), CLAIMED_EPSILON: ON_EPSILON}


@dataclass(frozen=True)
class Row:
    """A row of a table with filters.

    name, under: its first cell, and a smaller line below it.
    cells: its other cells, by heading.
    order: numbers to sort by instead of the text, by heading.
    filters: the values to filter by, by the name of the filter.
    more: texts that are shown when the row is opened, by name.
    links: addresses from the root of the site that are shown with them, by name.
    """

    name: str
    under: str
    cells: Named
    order: Mapping[str, float | None]
    filters: Named
    more: Named
    links: Named


@dataclass(frozen=True)
class FilterTable:
    """A table with filters; `first` is the heading of its first column, `chosen` the values of filters at first."""

    first: str
    rows: Sequence[Row]
    chosen: Named = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The headings."""
        return [self.first, *(self.rows[0].cells if self.rows else ())]

    @property
    def filters(self) -> dict[str, list[str]]:
        """The values of each filter, in the order of the rows, but words in their own order; a row may have none."""
        names = self.rows[0].filters if self.rows else ()
        there = {name: dict.fromkeys(row.filters[name] for row in self.rows if row.filters[name]) for name in names}
        return {name: [word for word in _ORDERED.get(name, of) if word in of] for name, of in there.items()}


def claims_table(results: Path, papers: Sequence[Paper], exists: Callable[[str], bool]) -> FilterTable:
    """Make the table of all claims, as last aggregated, with links to the files that exist in the site.

    Raises:
        ValueError: another version aggregated them.
    """
    rows = [_claim(row, paper, exists) for paper in papers for row in rows_of(results, paper)]
    return FilterTable("claim", rows, {"counted": COUNTED})


def _claim(row: ClaimRow, paper: Paper, exists: Callable[[str], bool]) -> Row:
    claim, of, item = row.claim, cells_of(row), paper.item(row.claim.item)
    folder = f"results/{paper.name}"
    links = {
        item.title: f"{folder}/index.html#{anchor(item.title)}",
        **{name: f"{folder}/{item.name}/{name}" for name in ("claims.csv", "runs.csv")},
    }
    return Row(
        name=method_text(claim),
        under=f"{dataset_name(claim.dataset)} · {paper_name(paper)}, {item.name}",
        cells={
            "claimed (paper)": of.claimed,
            "here (what it is)": of.measured_of,
            "verdict": verdict_text(row),
            "ε (paper → sound)": epsilon_text(row),
        },
        order={"claimed (paper)": claim.aim, "here (what it is)": row.measured, "ε (paper → sound)": row.epsilon_sound},
        filters={
            "paper": paper_name(paper),
            "data set": dataset_name(claim.dataset),
            "verdict": row.verdict,
            CLAIMED_EPSILON: row.guarantee,
            "counted": claim.counted,
        },
        more=_present(
            {
                "why this verdict": row.rule,
                "difference [95%]": of.difference,
                "margin": of.margin,
                "why this margin": claim.because if of.margin not in _EMPTY else "",
                "claimed at ε": of.at,
                "minimum / median / maximum": of.spread,
                "best epoch": of.best,
                "ε of the run": of.epsilon,
                "sound ε of the run": of.sound,
                CLAIMED_EPSILON: of.guarantee,
                "in the paper": claim.source,
                "note": row.explanation,
            }
        ),
        links={name: link for name, link in links.items() if exists(link.partition("#")[0])},
    )


def leaderboard_table(path: Path) -> FilterTable:
    """Make the table of all rows of leaderboard.csv."""
    return FilterTable("method", [_entry(row) for row in read_csv(path)])


def _entry(row: Named) -> Row:
    mean, low, high = (float(row[name]) if row[name] else None for name in ("mean", "low", "high"))
    sound, at_most = float(row["sound_epsilon"]), float(row["sound_epsilon_at_most"])
    interval = "–" if low is None else f"[{number(low, '%')}, {number(high, '%')}]"
    shown = ("dataset", "title", "mean", "std", "low", "high", "n", "sound_epsilon", "sound_epsilon_at_most")
    rest = {name.replace("_", " "): value for name, value in row.items() if name not in shown}
    return Row(
        name=row["title"],
        under=dataset_name(row["dataset"]),
        cells={
            "sound ε at most": f"{at_most:g}",
            "accuracy in % (runs)": accuracy_text(row),
            "[95%]": interval,
            "sound ε spent": bound_text(sound),
        },
        order={"sound ε at most": at_most, "accuracy in % (runs)": mean, "[95%]": low, "sound ε spent": sound},
        filters={
            "data set": dataset_name(row["dataset"]),
            "sound ε at most": f"{at_most:g}",
            "ends at this ε": row["made_for_it"],
            "settings of held-out images": row["held_out"],
        },
        more=_present(rest),
        links={},
    )


def paper_name(paper: Paper) -> str:
    """Return the short name of a paper, in words."""
    return paper.name.replace("_", " ")


def _present(texts: Named) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text not in _EMPTY}

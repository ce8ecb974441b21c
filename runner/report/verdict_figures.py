"""Figures of all claims: the number of claims by verdict, and of each paper the distance of each measured number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from runner.claims import verdicts
from runner.claims.blocks import dataset_name
from runner.claims.counts import counted_once, judged
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import CONSISTENT, FAILS, HOLDS, TOO_FEW_RUNS
from runner.report import plots
from runner.report.cells import method_text, wrong_epsilon
from runner.report.papers import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NO_EPSILON = "as claimed, but ε refuted or not guaranteed"
_COLOURS = {  # in the order of the bars
    verdicts.REPRODUCED: "#009E73",
    verdicts.EXCEEDS: "#0072B2",
    CONSISTENT: "#56B4E9",
    HOLDS: "#A6D9C7",
    _NO_EPSILON: "#CC79A7",
    verdicts.DIFFERS: "#E69F00",
    FAILS: "#E8A892",
    verdicts.NOT_REPRODUCED: "#C1440E",
    TOO_FEW_RUNS: "#C4C4C4",
    verdicts.NOT_RUN: "#ECECEC",
}
_BY_FORMULA = (HOLDS, FAILS)
_IN_STRIPS = [word for word in _COLOURS if word not in (*_BY_FORMULA, verdicts.NOT_RUN)]
_MARKERS = {verdicts.DIFFERS: "s", verdicts.NOT_REPRODUCED: "D", verdicts.EXCEEDS: "^", _NO_EPSILON: "X"}
_DARK = ("#009E73", "#0072B2", "#C1440E")  # colours behind white letters
_FARTHEST = 6  # margins from the claim, at the ends of a strip
_NARROWEST = 0.02  # share of a bar that two digits fit into
_LINE = 72  # characters of a claim's name
DISTANCES, TITLE = "distances", "How far is each measured number from the claim?"  # folder and title of a paper's own


def write_figures(folder: Path, by_paper: Mapping[str, Sequence[ClaimRow]], label: str) -> list[Path]:
    """Draw the counts of all papers, each claim once, and the distances of each paper's numbers, of all readings.

    Other scales than the paper's mark them.
    """
    with plots.style():
        titles = {name.replace("_", " "): counted_once(rows) for name, rows in by_paper.items()}
        written = plots.save(_counts(titles), folder / "verdicts", label)
        for name, rows in by_paper.items():
            if found := [row for row in rows if _has_distance(row)]:
                written += plots.save(_distances(found), folder / name / DISTANCES, label)
        return written


def _counts(by_paper: Mapping[str, Sequence[ClaimRow]]) -> Any:
    """Draw a bar for each paper, divided by verdict, and one for all papers."""
    from matplotlib.patches import Patch

    bars = {title: [row for row in rows if judged(row)] for title, rows in by_paper.items()}
    bars["all papers"] = [row for rows in bars.values() for row in rows]
    drawn = plots.figure(plots.WIDTH, 1.2 + 0.42 * len(bars))
    axes = drawn.add_subplot()
    places = [-place - (0.4 if place == len(bars) - 1 else 0) for place in range(len(bars))]
    for place, rows in zip(places, bars.values(), strict=True):
        _bar(axes, place, rows)
    axes.set_yticks(places, [title.capitalize() for title in bars])
    axes.set_xlim(0, 1.06)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    shown = [word for word in _COLOURS if any(_word(row) == word for row in bars["all papers"])]
    names = [f"{word} by formula, without runs" if word in _BY_FORMULA else word for word in shown]
    handles = [Patch(color=_COLOURS[word], label=name) for word, name in zip(shown, names, strict=True)]
    drawn.legend(handles=handles, loc="outside lower center", ncol=4, frameon=False, handlelength=1)
    drawn.suptitle(f"What became of the {len(bars['all papers'])} claims", fontsize=11)
    return drawn


def _bar(axes: Axes, place: float, rows: Sequence[ClaimRow]) -> None:
    """Divide a bar by verdict; a part that is too narrow for its number is drawn wider."""
    counts, left = Counter(map(_word, rows)), 0.0
    widths = {word: max(counts[word] / len(rows), _NARROWEST) for word in _COLOURS if counts[word]}
    for word, width in widths.items():
        share, colour = width / sum(widths.values()), _COLOURS[word]
        axes.barh(place, share, left=left, height=0.72, color=colour, edgecolor="white")
        letters: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
        text_colour = "white" if colour in _DARK else "#222222"
        axes.text(left + share / 2, place, str(counts[word]), color=text_colour, **letters)
        left += share
    axes.text(1.01, place, str(len(rows)), va="center")


def _word(row: ClaimRow) -> str:
    """Return the verdict, or another word if the number is as claimed but its ε is not guaranteed."""
    return _NO_EPSILON if wrong_epsilon(row) else row.verdict


def _distances(rows: Sequence[ClaimRow]) -> Any:
    """Draw a dot for each claim with a number and a margin, at its distance from the claim in margins."""
    drawn = plots.figure(plots.WIDTH, 1.6 + 0.19 * (1 + sum(map(_height, rows))))
    axes = drawn.add_subplot()
    _strips(axes, rows)
    handles = [
        axes.plot([], [], **_look(word), linewidth=0 if word == TOO_FEW_RUNS else 1.6, label=word)[0]
        for word in _IN_STRIPS
        if any(_word(row) == word for row in rows)
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncol=4, frameon=False)
    drawn.suptitle(TITLE, fontsize=11)
    return drawn


def _has_distance(row: ClaimRow) -> bool:
    numeric = row.claim.direction in ("higher", "lower", "match") and bool(row.claim.margin)
    return numeric and row.difference is not None and abs(row.difference) < float("inf") and row.verdict in _IN_STRIPS


def _strips(axes: Axes, rows: Sequence[ClaimRow]) -> None:
    items, top, names = [row.claim.item for row in rows], 0.0, {}
    for row in sorted(rows, key=lambda row: (items.index(row.claim.item), _distance(row))):
        place = top - _height(row) / 2
        _strip(axes, place, row)
        names[place] = _name(row)
        top -= _height(row)
    axes.axvspan(-1, 1, color="#009E73", alpha=0.1, linewidth=0)
    axes.axvline(0, color="#888888", linewidth=0.8)
    axes.set_yticks(list(names), list(names.values()), fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(top - 0.5, 0.5)
    axes.set_xlim(-_FARTHEST - 0.2, _FARTHEST + 0.2)
    axes.set_xticks([-6, -4, -2, 0, 2, 4, 6], ["≤ −6", "−4", "−2", "claim", "2", "4", "≥ 6"])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("distance in margins (right: better than claimed, or larger if neither is better)")


def _name(row: ClaimRow) -> str:
    """Name a claim by its item, its data set, its ε, and what is measured."""
    claim, item = row.claim, load(row.claim.paper).item(row.claim.item)
    sign, at = ("<" if claim.at_epsilon.startswith("<") else "="), claim.at_epsilon.lstrip("<")
    where = [item.title.partition(":")[0], dataset_name(claim.dataset)]
    where += [f"ε {sign} {at}"] if at not in ("", "inf") else []
    return fill(f"{', '.join(where)}: {method_text(claim)}", _LINE)


def _height(row: ClaimRow) -> float:
    """Return the height of a claim's row, by the lines of its name."""
    return 1 + 0.5 * _name(row).count("\n")


def _strip(axes: Axes, place: float, row: ClaimRow) -> None:
    at, interval = _distance(row), row.interval
    if interval is not None and row.verdict != TOO_FEW_RUNS:
        ends = sorted(_scale(row) * end for end in (interval.low, interval.high))
        axes.plot([max(ends[0], -_FARTHEST), min(ends[1], _FARTHEST)], [place, place], color=_COLOURS[_word(row)])
    look = _look(_word(row))
    if abs(at) > _FARTHEST:
        look["marker"] = "<" if at < 0 else ">"
    axes.plot(min(max(at, -_FARTHEST), _FARTHEST), place, clip_on=False, zorder=3, **look)


def _distance(row: ClaimRow) -> float:
    return _scale(row) * (row.difference or 0.0)


def _scale(row: ClaimRow) -> float:
    """Return one over the margin, with the sign that makes better numbers positive."""
    assert row.claim.margin
    return (-1 if row.claim.direction == "lower" else 1) / row.claim.margin


def _look(word: str) -> dict[str, Any]:
    hollow = word in (CONSISTENT, TOO_FEW_RUNS)
    colour = _COLOURS[word]
    return {
        "marker": _MARKERS.get(word, "o"),
        "markersize": 4.5 if word == TOO_FEW_RUNS else 6,
        "markerfacecolor": "white" if hollow else colour,
        "markeredgecolor": colour,
        "color": colour,
    }

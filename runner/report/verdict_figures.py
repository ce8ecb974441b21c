"""Figures of all claims: the number of claims by verdict, and of each paper the distance of each measured number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

from runner.claims.claim import dataset_name
from runner.claims.verdicts import DIFFERS, FAILS, HOLDS, NOT_CONTRADICTED, OPEN, ClaimRow, counted
from runner.report import plots
from runner.report.claim_rows import method_text, wrong_epsilon
from runner.report.papers import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Part: TypeAlias = tuple[str, bool]  # a word, and True if the claimed ε is refuted or not guaranteed
_COLOURS = {HOLDS: "#009E73", NOT_CONTRADICTED: "#56B4E9", DIFFERS: "#E69F00", FAILS: "#C1440E", OPEN: "#C4C4C4"}
_WRONG = "#CC79A7"  # of a number that holds or is not contradicted, at such an ε
_NO_EPSILON = "ε refuted or not guaranteed"
_PARTS = tuple((word, wrong) for word in _COLOURS for wrong in (False, True))
_MARKERS = {DIFFERS: "s", FAILS: "D"}
_DARK = ("#009E73", "#C1440E")  # colours behind white letters
_FARTHEST = 6  # margins from the claim, at the ends of a strip
_NARROWEST = 0.02  # share of a bar that two digits fit into
_LINE = 72  # characters of a claim's name
DISTANCES, TITLE = "distances", "How far is each measured number from the claim?"  # folder and title of a paper's own


def write_figures(folder: Path, by_paper: Mapping[str, Sequence[ClaimRow]], label: str) -> list[Path]:
    """Draw the counts of all papers, and the distances of the numbers that each paper's counted claims have."""
    with plots.style():
        claims = {name: counted(rows) for name, rows in by_paper.items()}
        titles = {name.replace("_", " "): rows for name, rows in claims.items()}
        written = plots.save(_counts(titles), folder / "verdicts", label)
        for name, rows in claims.items():
            numeric = [row for row in rows if row.claim.direction in ("higher", "lower", "match") and row.claim.margin]
            measured = [row for row in numeric if row.difference is not None and not row.computed]
            distant = [row for row in measured if abs(row.difference or 0.0) < math.inf]
            if distant:
                written += plots.save(_distances(distant), folder / name / DISTANCES, label)
        return written


def _counts(by_paper: Mapping[str, Sequence[ClaimRow]]) -> Any:
    """Draw a bar for each paper, divided by verdict, and one for all papers."""
    from matplotlib.patches import Patch

    bars = {**by_paper, "all papers": [row for rows in by_paper.values() for row in rows]}
    fig = plots.figure(plots.WIDTH, 1.2 + 0.42 * len(bars))
    axes = fig.add_subplot()
    places = [-place - (0.4 if place == len(bars) - 1 else 0) for place in range(len(bars))]
    for place, rows in zip(places, bars.values(), strict=True):
        _bar(axes, place, rows)
    axes.set_yticks(places, [title.capitalize() for title in bars])
    axes.set_xlim(0, 1.06)
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    shown = [part for part in _PARTS if any(_part(row) == part for row in bars["all papers"])]
    handles = [Patch(facecolor=_colour(p), edgecolor="white", hatch=_hatch(p), label=_label(p)) for p in shown]
    fig.legend(handles=handles, loc="outside lower center", ncol=3, frameon=False, handlelength=1)
    fig.suptitle(f"What became of the {len(bars['all papers'])} claims", fontsize=11)
    return fig


def _bar(axes: Axes, place: float, rows: Sequence[ClaimRow]) -> None:
    """Divide a bar by verdict; a part that is too narrow for its number is drawn wider."""
    counts, left = Counter(map(_part, rows)), 0.0
    widths = {part: max(counts[part] / len(rows), _NARROWEST) for part in _PARTS if counts[part]}
    for part, width in widths.items():
        share, colour = width / sum(widths.values()), _colour(part)
        axes.barh(place, share, left=left, height=0.72, color=colour, edgecolor="white", hatch=_hatch(part))
        letters: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
        text_colour = "white" if colour in _DARK else "#222222"
        axes.text(left + share / 2, place, str(counts[part]), color=text_colour, **letters)
        left += share
    axes.text(1.01, place, str(len(rows)), va="center")


def _part(row: ClaimRow) -> Part:
    return row.verdict, wrong_epsilon(row)


def _colour(part: Part) -> str:
    return _WRONG if part[1] else _COLOURS[part[0]]


def _hatch(part: Part) -> str | None:
    return "//" if part == (NOT_CONTRADICTED, True) else None


def _label(part: Part) -> str:
    return f"{part[0]}, {_NO_EPSILON}" if part[1] else part[0]


def _distances(rows: Sequence[ClaimRow]) -> Any:
    """Draw a dot for each claim with a number and a margin, at its distance from the claim in margins."""
    names = {id(row): _name(row) for row in rows}
    heights = {id(row): 1 + 0.5 * names[id(row)].count("\n") for row in rows}
    fig = plots.figure(plots.WIDTH, 1.6 + 0.19 * (1 + sum(heights.values())))
    axes = fig.add_subplot()
    items, top, ticks = [row.claim.item for row in rows], 0.0, {}
    for row in sorted(rows, key=lambda row: (items.index(row.claim.item), _scale(row) * (row.difference or 0.0))):
        place = top - heights[id(row)] / 2
        _strip(axes, place, row)
        ticks[place] = names[id(row)]
        top -= heights[id(row)]
    axes.axvspan(-1, 1, color="#009E73", alpha=0.1, linewidth=0)
    axes.axvline(0, color="#888888", linewidth=0.8)
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(top - 0.5, 0.5)
    axes.set_xlim(-_FARTHEST - 0.2, _FARTHEST + 0.2)
    axes.set_xticks([-6, -4, -2, 0, 2, 4, 6], ["≤ −6", "−4", "−2", "claim", "2", "4", "≥ 6"])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("distance in margins (right: better than claimed, or larger if neither is better)")
    handles = [
        axes.plot([], [], **_look(part), linewidth=0 if part[0] == OPEN else 1.6, label=_label(part))[0]
        for part in _PARTS
        if any(_part(row) == part for row in rows)
    ]
    fig.legend(handles=handles, loc="outside lower center", ncol=3, frameon=False)
    fig.suptitle(TITLE, fontsize=11)
    return fig


def _name(row: ClaimRow) -> str:
    """Name a claim by its item, its data set, its ε, and what is measured, in lines."""
    claim, epsilon = row.claim, row.claim.at_epsilon
    words = [load(claim.paper).item(claim.item).title.partition(":")[0], dataset_name(claim.dataset)]
    if epsilon and epsilon.text != "inf":
        words.append(f"ε {'<' if epsilon.sign == '<' else '='} {epsilon.text.lstrip('<')}")
    return fill(f"{', '.join(words)}: {method_text(claim)}", _LINE)


def _strip(axes: Axes, place: float, row: ClaimRow) -> None:
    scale, look = _scale(row), _look(_part(row))
    distance = scale * (row.difference or 0.0)
    if row.interval is not None and row.verdict != OPEN:
        low, high = sorted(scale * end for end in (row.interval.low, row.interval.high))
        axes.plot([max(low, -_FARTHEST), min(high, _FARTHEST)], [place, place], color=_colour(_part(row)))
    if abs(distance) > _FARTHEST:
        look["marker"] = "<" if distance < 0 else ">"
    axes.plot(min(max(distance, -_FARTHEST), _FARTHEST), place, clip_on=False, zorder=3, **look)


def _scale(row: ClaimRow) -> float:
    """Return one over the margin, with the sign that makes better numbers positive."""
    assert row.claim.margin
    return (-1 if row.claim.direction == "lower" else 1) / row.claim.margin


def _look(part: Part) -> dict[str, Any]:
    word, wrong = part
    hollow = word in (NOT_CONTRADICTED, OPEN)
    colour = _colour(part)
    return {
        "marker": "X" if wrong else _MARKERS.get(word, "o"),
        "markersize": 4.5 if word == OPEN else 6,
        "markerfacecolor": "white" if hollow else colour,
        "markeredgecolor": colour,
        "color": colour,
    }

"""Two figures of all claims: the number of claims by verdict, and the distance of each measured number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.claims import verdicts
from runner.claims.rows import ClaimRow
from runner.claims.verdicts import CONSISTENT, FAILS, HOLDS, NOT_JUDGED, TOO_FEW_RUNS
from runner.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {  # in the order of the bars
    verdicts.REPRODUCED: "#009E73",
    verdicts.EXCEEDS: "#0072B2",
    HOLDS: "#009E73",
    CONSISTENT: "#56B4E9",
    verdicts.DIFFERS: "#E69F00",
    FAILS: "#C1440E",
    verdicts.NOT_REPRODUCED: "#C1440E",
    TOO_FEW_RUNS: "#C4C4C4",
    verdicts.NOT_RUN: "#ECECEC",
}
_IN_STRIPS = [word for word in _COLOURS if word not in (HOLDS, FAILS, verdicts.NOT_RUN)]
_MARKERS = {verdicts.DIFFERS: "s", verdicts.NOT_REPRODUCED: "D", verdicts.EXCEEDS: "^"}
_DARK = ("#009E73", "#0072B2", "#C1440E")  # colours behind white letters
_FARTHEST = 6  # margins from the claim, at the ends of a strip
_FEWEST = 3  # claims with a number and a margin, for a panel
_NARROWEST = 0.006  # share of a bar that a digit fits into


def write_figures(folder: Path, by_paper: Mapping[str, Sequence[ClaimRow]], label: str = "") -> list[Path]:
    """Draw each figure into its own folder.

    Args:
        folder: the folder of results.
        by_paper: the claims of each paper by its title, each once.
        label: a mark for figures of another scale than the paper's.
    """
    with plots.style():
        counts, distances = _counts(by_paper), _distances(by_paper)
        written = plots.save(counts, folder / "verdicts", label)
        return [*written, *(plots.save(distances, folder / "strips", label) if distances else [])]


def _counts(by_paper: Mapping[str, Sequence[ClaimRow]]) -> Any:
    """Draw a bar for each paper, divided by verdict, and one for all papers."""
    from matplotlib.patches import Patch

    bars = {title: [row for row in rows if row.verdict != NOT_JUDGED] for title, rows in by_paper.items()}
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
    shown = [word for word in _COLOURS if any(row.verdict == word for row in bars["all papers"])]
    names = [f"{word} (by formula)" if _hatch(word) else word for word in shown]
    handles = [
        Patch(facecolor=_COLOURS[word], hatch=_hatch(word), edgecolor="white", label=name)
        for word, name in zip(shown, names, strict=True)
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncol=5, frameon=False, handlelength=1)
    drawn.suptitle(f"What became of the {len(bars['all papers'])} claims", fontsize=11)
    return drawn


def _bar(axes: Axes, place: float, rows: Sequence[ClaimRow]) -> None:
    counts, left = Counter(row.verdict for row in rows), 0.0
    for word, colour in _COLOURS.items():
        share = counts[word] / max(len(rows), 1)
        if not share:
            continue
        axes.barh(place, share, left=left, height=0.72, color=colour, hatch=_hatch(word), edgecolor="white")
        axes.text(
            left + share / 2,
            place,
            str(counts[word]) if share > _NARROWEST else "",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if colour in _DARK else "#222222",
            bbox={"boxstyle": "round,pad=.15", "fc": colour, "ec": "none"} if _hatch(word) else None,
        )
        left += share
    axes.text(1.01, place, str(len(rows)), va="center")


def _hatch(word: str) -> str | None:
    return "////" if word in (HOLDS, FAILS) else None


def _distances(by_paper: Mapping[str, Sequence[ClaimRow]]) -> Any:
    """Draw a dot for each claim with a number and a margin, at its distance from the claim in margins."""
    panels = {title: [row for row in rows if _has_distance(row)] for title, rows in by_paper.items()}
    panels = {title: rows for title, rows in panels.items() if len(rows) >= _FEWEST}
    if not panels:
        return None
    drawn = plots.figure(plots.WIDTH, 1.2 + 0.11 * sum(map(len, panels.values())))
    left, right = _halves(panels)
    columns: Any = drawn.subfigures(1, 2)
    for column, titles in zip(columns, (left, right), strict=True):
        heights = [len(panels[title]) + 12 for title in titles]
        grid = column.subplots(max(len(titles), 1), squeeze=False, height_ratios=heights or None)
        for axes, title in zip(grid.flat, titles, strict=False):
            _strips(axes, panels[title])
            axes.set_title(f"{title.capitalize()}: {len(panels[title])} claims", loc="left")
    handles = [
        grid.flat[0].plot([], [], **_look(word), linewidth=0 if word == TOO_FEW_RUNS else 1.6, label=word)[0]
        for word in _IN_STRIPS
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncol=len(handles), frameon=False)
    drawn.suptitle("How far is each measured number from the claim?", fontsize=11)
    return drawn


def _halves(panels: Mapping[str, Sequence[ClaimRow]]) -> tuple[list[str], list[str]]:
    """Divide the titles into two columns with about equal numbers of claims."""
    columns: tuple[list[str], list[str]] = ([], [])
    for title in sorted(panels, key=lambda title: -len(panels[title])):
        min(columns, key=lambda column: sum(len(panels[one]) + 12 for one in column)).append(title)
    return columns


def _has_distance(row: ClaimRow) -> bool:
    numeric = row.claim.direction in ("higher", "lower", "match") and bool(row.claim.margin)
    return numeric and row.difference is not None and abs(row.difference) < float("inf") and row.verdict in _IN_STRIPS


def _strips(axes: Axes, rows: Sequence[ClaimRow]) -> None:
    place, ticks = 0.0, {}
    for item in dict.fromkeys(row.claim.item for row in rows):
        of_item = sorted((row for row in rows if row.claim.item == item), key=_distance)
        for row in of_item:
            _strip(axes, place, row)
            place -= 1
        ticks[place + 1 + (len(of_item) - 1) / 2] = item.replace("fig-", "figure ").replace("-", " ").capitalize()
        place -= 1
    axes.axvspan(-1, 1, color="#009E73", alpha=0.1, linewidth=0)
    axes.axvline(0, color="#888888", linewidth=0.8)
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(place + 0.5, 1)
    axes.set_xlim(-_FARTHEST - 0.2, _FARTHEST + 0.2)
    axes.set_xticks([-6, -4, -2, 0, 2, 4, 6], ["≤ −6", "−4", "−2", "claim", "2", "4", "≥ 6"])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("distance in margins (right: better than claimed)")


def _strip(axes: Axes, place: float, row: ClaimRow) -> None:
    at, interval = _distance(row), row.interval
    if interval is not None and row.verdict != TOO_FEW_RUNS:
        ends = sorted(_scale(row) * end for end in (interval.low, interval.high))
        axes.plot([max(ends[0], -_FARTHEST), min(ends[1], _FARTHEST)], [place, place], color=_COLOURS[row.verdict])
    look = _look(row.verdict)
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

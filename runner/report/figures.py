"""Figures of all papers: the front page's, the counts of verdicts, and each paper's distances and prices.

The front page has the test accuracy of every method against the sound ε, and what the papers claim. It is made from the
entries of the leaderboard, their runs and the claims of the last aggregation.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any, TypeAlias

import numpy as np
import scipy  # its modules are imported at their first use

from runner.claims.claim import DATASETS, dataset_name
from runner.claims.evidence import Evidence, PlannedRun, Runs, grouped
from runner.claims.verdicts import DIFFERS, FAILS, HOLDS, NOT_CONTRADICTED, OPEN, ClaimRow, counted
from runner.report import plots
from runner.report.claim_rows import method_text, rows_of, wrong_epsilon
from runner.report.leaderboard.entries import Entry, standing
from runner.report.leaderboard.methods import FRONT, LOOKS, method_of
from runner.report.papers import Paper, load

History: TypeAlias = tuple[list[float], list[float]]  # by epoch: the sound epsilon, the accuracy (percent)
Star: TypeAlias = tuple[float, float]  # the epsilon and the accuracy (percent) of a claim

FRONT_FILE = "front.svg"
_FRONT_TITLE = "Accuracy that each method reaches at a proven privacy budget"
_BOUNDS = (0.5, 1.0, 2.0, 3.0)  # of the leaderboard, whose settings are drawn
_PANELS = {"MNIST": (88.0, 99.3), "FashionMNIST": (74.0, 91.0), "CIFAR10": (25.0, 72.0)}  # accuracies (percent) shown
_NOTE = (
    "Lines: mean of the seeds at the last epoch within each ε, with its 95% interval; dotted: one run. The settings\n"
    "are the leaderboard's. ☆: what a paper claims, at the ε that it counts. Arrows: what its method reaches at that\n"
    "sound ε. A method without a line was not run, or its noise or its data allow no sound ε up to 3."
)


@dataclass(frozen=True)
class Line:
    """A method on a data set: at each ε of a grid the mean accuracy and the half-width of its interval, in percent.

    runs: the runs of each setting at least; 1 has no interval.
    """

    method: str
    epsilons: np.ndarray
    mean: np.ndarray
    half: np.ndarray
    runs: int


def write_front(results: Path, entries: Sequence[Entry], runs: Iterable[PlannedRun]) -> Path:
    """Write front.svg into the results folder."""
    with plots.style():
        return plots.write_svg(draw_front(results, entries, runs), results / FRONT_FILE)


def draw_front(results: Path, entries: Sequence[Entry], runs: Iterable[PlannedRun]) -> "plots.Figure":
    """Draw a panel for each data set, a line for each method, and a star for each claim."""
    lines = lines_of(entries, runs)
    fig = plots.figure(11.5, 4.6)
    panels = fig.subplots(1, len(_PANELS))
    for axes, dataset in zip(panels, _PANELS, strict=True):
        shown = [lines[dataset, method] for method in FRONT if (dataset, method) in lines]
        _front_panel(axes, dataset, shown, stars(results, dataset))
    panels[0].set_ylabel("test accuracy (%)")
    fig.suptitle(_FRONT_TITLE, x=0.01, ha="left", fontsize=13, fontweight="bold")
    fig.supxlabel(_NOTE, x=0.01, ha="left", fontsize=8, color=plots.GREY)
    return fig


def lines_of(entries: Sequence[Entry], runs: Iterable[PlannedRun]) -> dict[tuple[str, str], Line]:
    """Return the line of the settings that stand on the leaderboard at each bound, by data set and method."""
    settings: dict[tuple[str, str], dict[float, str]] = {}
    for dataset, bound in product(_PANELS, _BOUNDS):
        for method, entry in standing(entries, dataset, bound).items():
            settings.setdefault((dataset, method), {})[bound] = entry.setting
    shown = {setting for bounds in settings.values() for setting in bounds.values()}
    recorded = {run.job.run_id: run for run in runs if run.record is not None and run.job.setting_id in shown}
    histories: dict[str, list[History]] = {}
    for run in recorded.values():
        # As on the leaderboard: a run with a guarantee, whose data decided its end, counts by what it spent.
        by_spent = run.has_spent and math.isfinite(run.final("epsilon_sound"))
        epsilons = run.history("epsilon_spent" if by_spent else "epsilon_sound")
        histories.setdefault(run.job.setting_id, []).append((epsilons, run.history("test_accuracy")))
    lines = {key: _line(key[1], bounds, histories) for key, bounds in settings.items()}
    return {key: line for key, line in lines.items() if line}


def _line(method: str, settings: Mapping[float, str], histories: Mapping[str, Sequence[History]]) -> Line | None:
    """Return the line of the settings that stand at each bound, or None if there is none."""
    reached = {bound: histories[setting] for bound, setting in settings.items() if setting in histories}
    if not reached:
        return None
    ends = [min(epsilons[-1], bound) for bound, runs in reached.items() for epsilons, _ in runs]
    grid = np.unique(np.r_[np.geomspace(_BOUNDS[0], _BOUNDS[-1], 80), _BOUNDS, ends])
    mean, half = np.full(len(grid), np.nan), np.full(len(grid), np.nan)
    for bound, runs in reached.items():
        table = np.full((len(runs), len(grid)), np.nan)
        for row, (epsilons, accuracies) in zip(table, runs, strict=True):
            places = _last_within(epsilons, grid)
            row[places >= 0] = np.array(accuracies)[places[places >= 0]]
        wide = half
        if len(runs) > 1:
            wide = scipy.stats.t.ppf(0.975, len(runs) - 1) * table.std(0, ddof=1) / math.sqrt(len(runs))
        below = max((other for other in settings if other < bound), default=0.0)
        above = min((other for other in settings if other > bound), default=math.inf)
        better = (grid > below) & (grid < above) & ~(mean >= table.mean(0))
        mean[better], half[better] = table.mean(0)[better], wide[better]
    inside = ~np.isnan(mean) & (grid <= max(ends) * 1.0001)
    most = max(map(len, reached.values()))
    return Line(method, grid[inside], mean[inside], half[inside], most) if inside.any() else None


def _last_within(epsilons: Sequence[float] | np.ndarray, bound: np.ndarray | float) -> np.ndarray:
    """Return the place of the last of rising epsilons within each bound, -1 where none is."""
    return np.asarray(np.searchsorted(epsilons, np.asarray(bound) * 1.0001, side="right") - 1)


def mean_within(line: Line, epsilon: float) -> float:
    """Return the mean at the last ε of a line that is within an epsilon."""
    return float(line.mean[max(0, int(_last_within(line.epsilons, epsilon)))])


def stars(results: Path, dataset: str) -> dict[str, Star]:
    """Return by method what methods.yaml names as its paper's claim, within the axis."""
    claims: dict[str, Star] = {}
    for method, front in FRONT.items():
        paper, item, name = front["claim"].split("/") if "claim" in front else ("", "", "")
        for row in rows_of(results, load(paper), [item]) if paper else ():
            claim = row.claim
            if (claim.dataset, claim.method) == (dataset, name) and claim.counts and claim.unit == "%":
                epsilon, accuracy = claim.at_epsilon.number, claim.claimed.number
                if epsilon is not None and accuracy is not None and _BOUNDS[0] <= epsilon <= _BOUNDS[-1]:
                    claims.setdefault(method, (epsilon, accuracy))
    return claims


def _front_panel(axes: "plots.Axes", dataset: str, lines: Sequence[Line], claims: Mapping[str, Star]) -> None:
    low, high = _PANELS[dataset]
    for line in lines:
        front: dict[str, Any] = FRONT[line.method]
        style = {"color": front["colour"], "linewidth": front.get("width", 1.8)}
        linestyle = ":" if line.runs == 1 else front.get("line", "-")
        axes.plot(line.epsilons, line.mean, linestyle=linestyle, drawstyle="steps-post", zorder=3, **style)
        axes.plot(line.epsilons[-1], line.mean[-1], "o", markersize=3.5, color=front["colour"], zorder=4)
        area: dict[str, Any] = {"step": "post", "color": front["colour"], "alpha": 0.16, "linewidth": 0}
        axes.fill_between(line.epsilons, line.mean - line.half, line.mean + line.half, **area)
    _label_ends(axes, lines, (high - low) * 0.05, high)
    reached = {line.method: line for line in lines}
    for method, (epsilon, accuracy) in claims.items():
        colour = FRONT[method]["colour"]
        axes.plot(epsilon, accuracy, "*", markersize=11, mfc="none", mec=colour, mew=1.3, zorder=6, clip_on=False)
        if method in reached:
            mean = mean_within(reached[method], epsilon)
            if accuracy - mean > 0.03 * (high - low):
                arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.1, "ls": "--", "shrinkA": 5, "shrinkB": 3}
                axes.annotate("", (epsilon, mean), (epsilon, accuracy), arrowprops=arrow, zorder=5)
    axes.set(title=dataset_name(dataset), xscale="log", xlim=(0.49, 3.1), ylim=(low, high), xlabel="sound ε, δ = 1e-5")
    axes.set_xticks(_BOUNDS, [f"{bound:g}" for bound in _BOUNDS])
    axes.minorticks_off()


def _label_ends(axes: "plots.Axes", lines: Sequence[Line], distance: float, high: float) -> None:
    """Write each method and its last accuracy at the end of its line, apart from the others and below the top."""
    ordered = sorted(lines, key=lambda line: -float(line.mean[-1]))
    down = distance * np.arange(len(ordered))
    ends = np.array([line.mean[-1] for line in ordered])
    nearest = scipy.optimize.isotonic_regression(ends + down, increasing=False).x  # with the distance
    places = np.minimum(nearest, high) - down
    for line, place in zip(ordered, places, strict=True):
        front = FRONT[line.method]
        text = f"{front['label']}  {line.mean[-1]:.1f}" + (" (1 run)" if line.runs == 1 else "")
        arrow = {"arrowstyle": "-", "color": front["colour"], "lw": 0.5, "shrinkA": 0, "shrinkB": 1, "relpos": (0, 0.5)}
        axes.annotate(
            text, (line.epsilons[-1], line.mean[-1]), (3.6, place), color=front["colour"], fontsize=8.5, va="center",
            annotation_clip=False, arrowprops=arrow,
        )  # fmt: skip


Part: TypeAlias = tuple[str, bool]  # a word, and True if the claimed ε is refuted or not guaranteed
_COLOURS = {HOLDS: "#009E73", NOT_CONTRADICTED: "#56B4E9", DIFFERS: "#E69F00", FAILS: "#C1440E", OPEN: "#C4C4C4"}
_WRONG = "#CC79A7"  # of a number that holds or is not contradicted, at such an ε
_PARTS = {  # hatch, colour and label
    (word, wrong): (
        "//" if wrong and word == NOT_CONTRADICTED else None,
        _WRONG if wrong else colour,
        f"{word}, ε refuted or not guaranteed" if wrong else word,
    )
    for word, colour in _COLOURS.items()
    for wrong in (False, True)
}
_MARKERS = {DIFFERS: "s", FAILS: "D"}
_DARK = ("#009E73", "#C1440E")  # colours behind white letters
_FARTHEST = 6  # margins from the claim, at the ends of a strip
_NARROWEST = 0.02  # share of a bar that two digits fit into
_LINE = 72  # characters of a claim's name
# Folders and titles of a paper's own figures.
DISTANCES, DISTANCES_TITLE = "distances", "How far is each measured number from the claim?"
PRICE, PRICE_TITLE = "price", "What does the accuracy of each run cost?"


def write_verdicts(folder: Path, by_paper: Mapping[str, Sequence[ClaimRow]], label: str) -> list[Path]:
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
    axes.set(xlim=(0, 1.06), xticks=[])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    shown = {_part(row) for row in bars["all papers"]}
    handles = [
        Patch(facecolor=colour, edgecolor="white", hatch=hatch, label=text)
        for part, (hatch, colour, text) in _PARTS.items()
        if part in shown
    ]
    fig.legend(handles=handles, loc="outside lower center", ncol=3, frameon=False, handlelength=1)
    fig.suptitle(f"What became of the {len(bars['all papers'])} claims", fontsize=11)
    return fig


def _bar(axes: "plots.Axes", place: float, rows: Sequence[ClaimRow]) -> None:
    """Divide a bar by verdict; a part that is too narrow for its number is drawn wider."""
    counts, left = Counter(map(_part, rows)), 0.0
    widths = {part: max(counts[part] / len(rows), _NARROWEST) for part in _PARTS if counts[part]}
    for part, width in widths.items():
        share, (hatch, colour, _) = width / sum(widths.values()), _PARTS[part]
        axes.barh(place, share, left=left, height=0.72, color=colour, edgecolor="white", hatch=hatch)
        letters: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
        text_colour = "white" if colour in _DARK else "#222222"
        axes.text(left + share / 2, place, str(counts[part]), color=text_colour, **letters)
        left += share
    axes.text(1.01, place, str(len(rows)), va="center")


def _part(row: ClaimRow) -> Part:
    return row.verdict, wrong_epsilon(row)


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
    axes.set(ylim=(top - 0.5, 0.5), xlim=(-_FARTHEST - 0.2, _FARTHEST + 0.2))
    axes.set_xticks([-6, -4, -2, 0, 2, 4, 6], ["≤ −6", "−4", "−2", "claim", "2", "4", "≥ 6"])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("distance in margins (right: better than claimed, or larger if neither is better)")
    handles = [
        axes.plot([], [], **_look(part), linewidth=0 if part[0] == OPEN else 1.6, label=_PARTS[part][2])[0]
        for part in _PARTS
        if part in {_part(row) for row in rows}
    ]
    fig.legend(handles=handles, loc="outside lower center", ncol=3, frameon=False)
    fig.suptitle(DISTANCES_TITLE, fontsize=11)
    return fig


def _name(row: ClaimRow) -> str:
    """Name a claim by its item, its data set, its ε, and what is measured, in lines."""
    claim, epsilon = row.claim, row.claim.at_epsilon
    words = [load(claim.paper).item(claim.item).title.partition(":")[0], dataset_name(claim.dataset)]
    if epsilon and epsilon != "inf":
        words.append(f"ε {'<' if epsilon.startswith('<') else '='} {epsilon.lstrip('<')}")
    return fill(f"{', '.join(words)}: {method_text(claim)}", _LINE)


def _strip(axes: "plots.Axes", place: float, row: ClaimRow) -> None:
    scale, look = _scale(row), _look(_part(row))
    distance = scale * (row.difference or 0.0)
    if row.interval is not None and row.verdict != OPEN:
        low, high = sorted(scale * end for end in (row.interval.low, row.interval.high))
        axes.plot([max(low, -_FARTHEST), min(high, _FARTHEST)], [place, place], color=look["color"])
    if abs(distance) > _FARTHEST:
        look["marker"] = "<" if distance < 0 else ">"
    axes.plot(min(max(distance, -_FARTHEST), _FARTHEST), place, clip_on=False, zorder=3, **look)


def _scale(row: ClaimRow) -> float:
    """Return one over the margin, with the sign that makes better numbers positive."""
    assert row.claim.margin
    return (-1 if row.claim.direction == "lower" else 1) / row.claim.margin


def _look(part: Part) -> dict[str, Any]:
    word, wrong = part
    colour, face = _PARTS[part][1], "white" if word in (NOT_CONTRADICTED, OPEN) else _PARTS[part][1]
    marker = {"marker": "X" if wrong else _MARKERS.get(word, "o"), "markersize": 4.5 if word == OPEN else 6}
    return {**marker, "markerfacecolor": face, "markeredgecolor": colour, "color": colour}


PRICE_SECTION = f"""
## Accuracy and its price

![{PRICE_TITLE}]({PRICE}/figure.svg)

A private run after its last epoch is two points: hollow at the ε that the paper counts, and filled at its sound ε if
that is finite. Triangles at the lower edge are runs that lie below it.
"""
_OTHER, _OTHER_LOOK = "other settings", ("#c4c4c4", "o")  # settings of no method on the leaderboard
_BEST_BELOW = "best at or below each sound ε"
_BELOW = 0.1  # share of the runs of a panel that may lie below it

Point = tuple[float, PlannedRun]  # epsilon of a run


def priced_runs(paper: Paper, evidence: Evidence) -> Runs:
    """Select the recorded private runs of a paper whose accuracy is on test images, after more than one epoch."""
    planned = (run for item in paper.items for sweep in paper.needs(item) for run in evidence.sweeps[sweep])
    recorded = {run.job.run_id: run for run in planned if run.record is not None}
    return Runs(
        run
        for run in recorded.values()
        if math.isfinite(run.final("epsilon")) and run.field("evaluation") == "test" and run.field("epochs") > 1
    )


def draw_price(runs: Runs) -> "plots.Figure | None":
    """Draw last accuracies against both epsilons, a panel for each data set; None without runs.

    A run is a hollow point at the epsilon that the paper counts, and a filled one at its sound epsilon if it has one.
    The grey line goes through the most accurate runs at or below each sound epsilon. A tenth of the runs may lie below
    the panels, and are triangles at the edge.
    """
    by_dataset = {name: chosen for name in DATASETS if (chosen := runs.where("dataset.name", name))}
    if not by_dataset:
        return None
    fig = plots.figure(plots.WIDTH, 3.6)
    panels = fig.subplots(1, len(by_dataset), squeeze=False)[0]
    for axes, (name, chosen) in zip(panels, by_dataset.items(), strict=True):
        as_paper = [(run.final("epsilon"), run) for run in chosen]
        sound = [(epsilon, run) for run in chosen if math.isfinite(epsilon := run.final("epsilon_sound"))]
        ordered = sorted(run.final("test_accuracy") for run in chosen)
        low, high = ordered[int(_BELOW * len(ordered))], ordered[-1]
        margin = 0.06 * (high - low) + 0.2
        _draw_points(axes, as_paper, low - margin, markerfacecolor="none")
        _draw_points(axes, sound, low - margin)
        curves = [([epsilon], [run.final("test_accuracy")]) for epsilon, run in sound]
        plots.draw_front(axes, curves, color=plots.GREY, linewidth=1, label=_BEST_BELOW)
        lowest, highest = (limit(epsilon for epsilon, _ in as_paper + sound) for limit in (min, max))
        far = [10.0**power for power in range(-1, 9, 3) if lowest <= 10.0**power <= highest]
        plots.log_axis(axes, "x", far if highest > 1e5 * lowest else ())  # fewer numbers, which are long
        axes.set(ylim=(low - margin, min(100.5, high + margin)), title=f"{dataset_name(name)}, {len(chosen)} runs")
        axes.set_xlabel("ε (hollow: as the paper counts; filled: sound)", fontsize=8)
    panels[0].set_ylabel("test accuracy (%)")
    plots.one_legend(fig, columns=5)
    return fig


def _draw_points(axes: "plots.Axes", points: Sequence[Point], low: float, **face: Any) -> None:
    by_method = grouped(points, lambda point: method_of(point[1].job))
    for method in sorted(by_method, key=["", *LOOKS].index):  # other settings are drawn first, below the others
        colour, marker = plots.LOOKS[LOOKS[method]] if method else _OTHER_LOOK
        style: dict[str, Any] = {"linestyle": "", "alpha": 0.7, "markersize": 5, "mew": 0.6, "color": colour, **face}
        seen = [(epsilon, run.final("test_accuracy")) for epsilon, run in by_method[method]]
        label = LOOKS[method] if method else _OTHER
        axes.plot(*zip(*seen, strict=True), marker=marker, label=label, zorder=2 + bool(method), **style)
        if below := [epsilon for epsilon, accuracy in seen if accuracy < low]:
            axes.plot(below, [low] * len(below), marker="v", clip_on=False, **style)

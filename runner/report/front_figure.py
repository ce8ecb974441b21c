"""The figure of the front page: test accuracy against the sound ε, every method, with what the papers claim.

It is made from the entries of the leaderboard, their runs and the claims of the last aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from runner.claims.claim import dataset_name
from runner.claims.runs import PlannedRun
from runner.report import plots
from runner.report.claim_rows import rows_of
from runner.report.leaderboard.comparison import standing
from runner.report.leaderboard.entries import Entry
from runner.report.leaderboard.methods import FRONT
from runner.report.papers import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

History: TypeAlias = tuple[list[float], list[float]]  # by epoch: the sound epsilon, the accuracy (percent)

FILE = "front.svg"
TITLE = "Accuracy that each method reaches at a proven privacy budget"
_BOUNDS = (0.5, 1.0, 2.0, 3.0)  # of the leaderboard, whose settings are drawn
_PANELS = {"MNIST": (88.0, 99.3), "FashionMNIST": (74.0, 91.0), "CIFAR10": (25.0, 72.0)}  # accuracies (percent) shown
_NOTE = (
    "Lines: mean of the seeds at the last epoch within each ε, with its 95% interval; dotted: one run. The settings\n"
    "are the leaderboard's. ☆: what a paper claims, at the ε that it counts. Arrows: what its method reaches at that\n"
    "sound ε. Where a method has no line, its noise or its data allow no sound ε up to 3."
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


def write(results: Path, entries: Sequence[Entry], runs: Iterable[PlannedRun]) -> Path:
    """Write front.svg into the results folder."""
    with plots.style():
        return plots.write_svg(draw(results, entries, runs), results / FILE)


def draw(results: Path, entries: Sequence[Entry], runs: Iterable[PlannedRun]) -> Figure:
    """Draw a panel for each data set, a line for each method, and a star for each claim."""
    lines = lines_of(entries, runs)
    fig = plots.figure(11.5, 4.6)
    panels = fig.subplots(1, len(_PANELS))
    for axes, dataset in zip(panels, _PANELS, strict=True):
        _panel(axes, dataset, [lines[dataset, m] for m in FRONT if (dataset, m) in lines], stars(results, dataset))
    panels[0].set_ylabel("test accuracy (%)")
    fig.suptitle(TITLE, x=0.01, ha="left", fontsize=13, fontweight="bold")
    fig.supxlabel(_NOTE, x=0.01, ha="left", fontsize=8, color="#767676")
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
    from scipy import stats

    ends = [min(run[0][-1], bound) for bound, setting in settings.items() for run in histories.get(setting, ())]
    if not ends:
        return None
    grid = np.unique(np.r_[np.geomspace(_BOUNDS[0], _BOUNDS[-1], 80), _BOUNDS, ends])
    mean, half = np.full(len(grid), np.nan), np.full(len(grid), np.nan)
    for bound, setting in settings.items():
        runs = histories.get(setting, ())
        if not runs:
            continue
        table = np.full((len(runs), len(grid)), np.nan)
        for row, (epsilons, accuracies) in zip(table, runs, strict=True):
            places = _last_within(epsilons, grid)
            row[places >= 0] = np.array(accuracies)[places[places >= 0]]
        wide = half
        if len(runs) > 1:
            wide = stats.t.ppf(0.975, len(runs) - 1) * table.std(0, ddof=1) / math.sqrt(len(runs))
        below = max((other for other in settings if other < bound), default=0.0)
        above = min((other for other in settings if other > bound), default=math.inf)
        better = (grid > below) & (grid < above) & ~(mean >= table.mean(0))
        mean[better], half[better] = table.mean(0)[better], wide[better]
    inside = ~np.isnan(mean) & (grid <= max(ends) * 1.0001)
    most = max(len(histories.get(setting, ())) for setting in settings.values())
    return Line(method, grid[inside], mean[inside], half[inside], most) if inside.any() else None


def _last_within(epsilons: Sequence[float] | np.ndarray, bound: np.ndarray | float) -> np.ndarray:
    """Return the place of the last of rising epsilons within each bound, -1 where none is."""
    return np.asarray(np.searchsorted(epsilons, np.asarray(bound) * 1.0001, side="right") - 1)


def mean_within(line: Line, epsilon: float) -> float:
    """Return the mean at the last ε of a line that is within an epsilon."""
    return float(line.mean[max(0, int(_last_within(line.epsilons, epsilon)))])


def stars(results: Path, dataset: str) -> dict[str, tuple[float, float]]:
    """Return by method the (ε, accuracy in percent) that methods.yaml names as its paper's claim, within the axis."""
    claims: dict[str, tuple[float, float]] = {}
    for method, front in FRONT.items():
        paper, item, name = front["claim"].split("/") if "claim" in front else ("", "", "")
        for row in rows_of(results, load(paper), [item]) if paper else ():
            claim = row.claim
            if (claim.dataset, claim.method) == (dataset, name) and claim.counts and claim.unit == "%":
                epsilon, accuracy = claim.at_epsilon.number, claim.claimed.number
                if epsilon is not None and accuracy is not None and _BOUNDS[0] <= epsilon <= _BOUNDS[-1]:
                    claims.setdefault(method, (epsilon, accuracy))
    return claims


def _panel(axes: Axes, dataset: str, lines: Sequence[Line], claims: Mapping[str, tuple[float, float]]) -> None:
    low, high = _PANELS[dataset]
    for line in lines:
        front: dict[str, Any] = FRONT[line.method]
        style = {"color": front["colour"], "linewidth": front.get("width", 1.8)}
        linestyle = ":" if line.runs == 1 else front.get("line", "-")
        axes.plot(line.epsilons, line.mean, linestyle=linestyle, drawstyle="steps-post", zorder=3, **style)
        axes.plot(line.epsilons[-1], line.mean[-1], "o", markersize=3.5, color=front["colour"], zorder=4)
        area: dict[str, Any] = {"step": "post", "color": front["colour"], "alpha": 0.16, "linewidth": 0}
        axes.fill_between(line.epsilons, line.mean - line.half, line.mean + line.half, **area)
    _label(axes, lines, (high - low) * 0.05, high)
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


def _label(axes: Axes, lines: Sequence[Line], distance: float, high: float) -> None:
    """Write each method and its last accuracy at the end of its line, apart from the others and below the top."""
    from scipy.optimize import isotonic_regression

    ordered = sorted(lines, key=lambda line: -float(line.mean[-1]))
    down = distance * np.arange(len(ordered))
    ends = np.array([line.mean[-1] for line in ordered])
    places = (
        np.minimum(isotonic_regression(ends + down, increasing=False).x, high) - down
    )  # the nearest with a distance
    for line, place in zip(ordered, places, strict=True):
        front = FRONT[line.method]
        text = f"{front['label']}  {line.mean[-1]:.1f}" + (" (1 run)" if line.runs == 1 else "")
        arrow = {"arrowstyle": "-", "color": front["colour"], "lw": 0.5, "shrinkA": 0, "shrinkB": 1, "relpos": (0, 0.5)}
        axes.annotate(
            text, (line.epsilons[-1], line.mean[-1]), (3.6, place), color=front["colour"], fontsize=8.5, va="center",
            annotation_clip=False, arrowprops=arrow,
        )  # fmt: skip

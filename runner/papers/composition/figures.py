"""Figures of the study: gains of parts alone and together, and the cells of a data set in order of accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from runner.claims.contrasts import Cell, estimate
from runner.claims.evidence import Evidence
from runner.claims.runs import Runs
from runner.papers.composition.choices import DATASETS, EPSILONS, PAPER
from runner.papers.composition.design import (
    CELLS,
    GAIN_OF_ALL,
    NEW,
    OLD,
    PARTS,
    SUM_OF_GAINS,
    gain_alone,
)
from runner.papers.composition.measures import accuracies_of, cells_at
from runner.report.items import Draw
from runner.report.plots import LOOKS, WIDTH, figure, mark_not_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {OLD: LOOKS["ReLU"][0], NEW: LOOKS["ideas combined"][0]}
_OTHERS = "0.6"
_PARTS = ("tanh", "losing-less loss", "AUTO-S", "ScatterNet")  # the methods that the parts come from
_GAINS: tuple[tuple[str, Mapping[Cell, float], dict[str, Any]], ...] = (  # name, weights, settings of the bar
    *((p.step, gain_alone(p), {"color": LOOKS[look][0]}) for p, look in zip(PARTS, _PARTS, strict=True)),
    ("sum of the four", SUM_OF_GAINS, {"color": "white", "edgecolor": _OTHERS, "hatch": "///"}),
    ("all four together", GAIN_OF_ALL, {"color": _COLOURS[NEW]}),
)


def adds_up(evidence: Evidence) -> Figure | None:
    """Draw a panel per data set and epsilon: gain of each part alone, their sum, of all together; 95% intervals."""
    found = {
        (dataset, epsilon): cells_at(evidence, f"{PAPER}/{dataset}", epsilon)
        for dataset in DATASETS
        for epsilon in EPSILONS
    }
    if not any(found.values()):
        return None
    drawn = figure(WIDTH, 5)
    panels = drawn.subplots(len(DATASETS), len(EPSILONS), sharex="row", sharey=True)
    for axes, ((dataset, epsilon), runs) in zip(panels.flat, found.items(), strict=True):
        sound = max((of.largest("epsilon_sound") for of in runs.values()), default=epsilon)
        axes.set_title(f"{DATASETS[dataset]}, sound ε ≤ {sound:.4g}")
        _gains(axes, runs)
    for axes in panels[-1]:
        axes.set_xlabel("gain over all old (points of test accuracy), 95% interval")
    return drawn


def _gains(axes: Axes, runs: Mapping[Cell, Runs]) -> None:
    """Draw a bar per gain, with its interval; gains that lack a cell are named, without a bar."""
    accuracies = accuracies_of(runs)
    for y, (_, weights, how) in enumerate(_GAINS):
        if (gain := estimate(accuracies, weights)) is None:
            axes.text(0, y, " not run", va="center", color=_OTHERS, fontsize=8)
            continue
        axes.barh(y, gain.value, height=0.65, zorder=2, **how)
        if gain.interval:
            axes.plot([gain.interval.low, gain.interval.high], [y, y], color="black", linewidth=1.2, zorder=3)
    axes.set_yticks(range(len(_GAINS)), [name for name, *_ in _GAINS])
    axes.set_ylim(len(_GAINS) - 0.4, -0.6)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(visible=False, axis="y")


def cells(dataset: str) -> Draw:
    """Return a figure with a column of panels per epsilon: accuracy by cell, worst first, above a matrix of dots."""

    def draw(evidence: Evidence) -> Figure | None:
        found = {epsilon: cells_at(evidence, f"{PAPER}/{dataset}", epsilon) for epsilon in EPSILONS}
        if not any(found.values()):
            return None
        drawn = figure(WIDTH, 5)
        above, below = drawn.subplots(2, len(EPSILONS), height_ratios=(3, 1))
        for place, (epsilon, runs) in enumerate(found.items()):
            order = sorted(runs, key=lambda cell: fmean(runs[cell].sample().values))
            _accuracies(above[place], order, runs)
            _matrix(below[place], order, named=place == 0)
            sound = max((of.largest("epsilon_sound") for of in runs.values()), default=epsilon)
            title = f"sound ε ≤ {sound:.4g}, {sum(map(len, runs.values()))} runs"
            above[place].set_title(title + ("" if len(runs) == len(CELLS) else f", {len(runs)} of 16 cells"))
        above[0].set_ylabel("test accuracy (%)")
        drawn.suptitle(
            f"{DATASETS[dataset]}: every combination of old (○) and new (●), the worst on the left", fontsize=10
        )
        return drawn

    return draw


def _accuracies(axes: Axes, order: list[Cell], runs: Mapping[Cell, Runs]) -> None:
    """Draw runs as dots and their mean as a bar; the cells with all parts old and all new have special colours."""
    if not order:
        mark_not_run(axes, without_ticks=True)
        return
    accuracies = accuracies_of(runs)
    for x, cell in enumerate(order):
        colour = _COLOURS.get(cell, _OTHERS)
        values = list(accuracies[cell].values())
        axes.plot([x] * len(values), values, "o", color=colour, markersize=3, alpha=0.5)
        axes.plot([x - 0.35, x + 0.35], [fmean(values)] * 2, color=colour, linewidth=2.5)
        if cell in _COLOURS:
            text = "all new" if cell == NEW else "all old"
            side = "right" if cell == NEW else "left"  # within the panel
            axes.annotate(text, (x, max(values)), (0, 6), textcoords="offset points", ha=side, color=colour)
    axes.set(xlim=(-0.6, len(order) - 0.4), xticks=[])
    axes.margins(y=0.12)


def _matrix(axes: Axes, order: list[Cell], *, named: bool) -> None:
    """Draw a dot per cell and part, full if the part is new."""
    for y in range(len(PARTS)):
        for x, cell in enumerate(order):
            new = cell[y]
            colour = _COLOURS.get(cell, _OTHERS)
            axes.plot(x, y, "o", color=colour, markerfacecolor=colour if new else "white", markersize=7)
        if y % 2:
            axes.axhspan(y - 0.5, y + 0.5, color="0.95", zorder=0)
    axes.set(xlim=(-0.6, max(len(order), 1) - 0.4), ylim=(len(PARTS) - 0.5, -0.5), xticks=[])
    axes.set_yticks(range(len(PARTS)), [part.step for part in PARTS] if named else [""] * len(PARTS))
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)

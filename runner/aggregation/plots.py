"""How figures look, how they are saved, and the figure that every paper has: accuracy against epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from runner.aggregation.evidence import PAPER_SCALE, Evidence, PlannedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "figure",  # with no date, the same figure is the same file
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "legend.frameon": True,
    "legend.framealpha": 0.85,
    "lines.linewidth": 1.5,
}
FILES = ("figure.svg", "figure.png")
COLOURS = {"tanh": "C0", "ReLU": "C1", "SGD tanh": "C2", "SGD ReLU": "C3"}


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures, for drawing and for saving."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # nothing of a user's own matplotlibrc
        matplotlib.rcParams.update(_STYLE)
        yield


def figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that no window system knows of."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(drawn: Figure, folder: Path, label: str = "") -> list[Path]:
    """figure.svg and figure.png in `folder`, with `label` across them where there is one ("smoke")."""
    if label:
        drawn.text(0.5, 0.5, label, size=70, color="red", alpha=0.12, ha="center", va="center", rotation=25)
        title = drawn.get_suptitle()
        mark = f"{label.upper()}: not a reproduction"
        drawn.suptitle(f"{mark}\n{title}" if title else mark, color="firebrick", fontsize=10)
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = (folder / name for name in FILES)
    drawn.savefig(svg, metadata={"Date": None, "Creator": None})
    drawn.savefig(png, dpi=150, metadata={"Software": None})
    return [svg, png]


@dataclass(frozen=True)
class Curve:
    """A line of an accuracy figure: the runs of one experiment, and the accuracy claimed for it (percent)."""

    sweep: str
    experiment: str
    label: str
    claimed: float | None = None


@dataclass(frozen=True)
class Panel:
    """One data set of an accuracy figure, with the epsilon that its accuracies are claimed at."""

    title: str
    curves: Sequence[Curve]
    epsilon: float | None = None


def runs_text(planned: Sequence[PlannedRun]) -> str:
    """`n = 3 of 10, 1 diverged`."""
    recorded = [run for run in planned if run.record is not None]
    diverged = sum(run.diverged for run in recorded)
    of = "" if len(recorded) == len(planned) else f" of {len(planned)}"
    return f"n = {len(recorded)}{of}" + (f", {diverged} diverged" if diverged else "")


def mark_not_run(axes: Axes) -> None:
    """Say so in the middle of a panel that has no run."""
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", fontsize=12, color="grey")


def accuracy_against_epsilon(evidence: Evidence, panels: Sequence[Panel]) -> Figure:
    """Mean and range of test accuracy by epoch against epsilon: by the configured accountant above, sound below.

    The mean is over the runs that reached the epoch; a cross marks where a run diverged. Dashed: claimed,
    at the paper's scale only: runs of another are on other data.
    """
    drawn = figure(3.6 * len(panels), 6.2)
    axes = drawn.subplots(2, len(panels), squeeze=False)
    for column, panel in enumerate(panels):
        for row, name in enumerate(("epsilon", "epsilon_sound")):
            _accuracy_panel(axes[row][column], evidence, panel, name)
        axes[0][column].set_title(panel.title)
        low = min(axes[row][column].get_ylim()[0] for row in range(2))
        high = max(axes[row][column].get_ylim()[1] for row in range(2))
        right = 1.03 * max(axes[row][column].get_xlim()[1] for row in range(2))
        for row in range(2):
            axes[row][column].set(xlim=(0, right), ylim=(low, high))
        axes[1][column].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    for row in range(2):
        axes[row][0].set_ylabel("test accuracy (%)")
    return drawn


def _accuracy_panel(axes: Axes, evidence: Evidence, panel: Panel, name: str) -> None:
    levels: list[float] = []
    comparable = evidence.scale == PAPER_SCALE
    for curve in panel.curves:
        planned = evidence.planned(curve.sweep, curve.experiment)
        recorded = [run for run in planned if run.record is not None]
        colour = COLOURS.get(curve.label, "C4")
        if comparable and curve.claimed is not None:
            axes.axhline(curve.claimed, color=colour, linestyle="--", linewidth=1, zorder=1)
            levels.append(curve.claimed)
        if not recorded:
            axes.plot([], [], color=colour, label=f"{curve.label}, not run")
            continue
        epsilon, mean, low, high = band(recorded, name, "test_accuracy")
        marker = "o" if len(mean) < 8 else ""  # one epoch alone makes no line
        text = f"{curve.label}, {runs_text(planned)}"
        axes.plot(epsilon, mean, color=colour, marker=marker, markersize=4, label=text)
        axes.fill_between(epsilon, low, high, color=colour, alpha=0.2, linewidth=0)
        levels += mean[len(mean) // 8 :]  # the first epochs may be anywhere
        for run in (run for run in recorded if run.diverged):
            axes.plot(run.history(name)[-1], run.history("test_accuracy")[-1], "x", color=colour, markersize=7)
    if comparable and any(curve.claimed is not None for curve in panel.curves):
        axes.plot([], [], color="grey", linestyle="--", linewidth=1, label="claimed")
    if comparable and panel.epsilon is not None:
        axes.axvline(panel.epsilon, color="grey", linestyle=":", linewidth=1, label=f"claimed ε = {panel.epsilon:g}")
    if levels:
        margin = 0.15 * (max(levels) - min(levels)) + 0.5
        axes.set_ylim(max(0, min(levels) - margin), min(100.5, max(levels) + margin))
    else:
        axes.set(xticks=[], yticks=[])
    if not any(evidence.recorded(curve.sweep, curve.experiment) for curve in panel.curves):
        mark_not_run(axes)
    axes.set_xlabel("ε of the runs, by the configured accountant" if name == "epsilon" else "sound ε of the same runs")


def band(runs: Sequence[PlannedRun], x: str, y: str) -> tuple[list[float], list[float], list[float], list[float]]:
    """x, and mean, minimum and maximum of y, by epoch: [epochs] each, over the runs that reached the epoch.

    x is the largest over those runs; runs of one setting agree in it.
    """
    xs, ys = [run.history(x) for run in runs], [run.history(y) for run in runs]
    columns: list[tuple[float, float, float, float]] = []
    for epoch in range(max(map(len, ys))):
        there = [values[epoch] for values in ys if len(values) > epoch]
        at = max(values[epoch] for values in xs if len(values) > epoch)
        columns.append((at, fmean(there), min(there), max(there)))
    epsilon, mean, low, high = (list(column) for column in zip(*columns, strict=True))
    return epsilon, mean, low, high

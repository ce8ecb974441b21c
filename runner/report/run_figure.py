"""Figure of all runs of a paper: test accuracy against what it costs, a point a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runner.claims.claim import DATASETS, dataset_name
from runner.claims.runs import Evidence, PlannedRun, Runs, grouped
from runner.report import plots
from runner.report.items import Paper
from runner.report.leaderboard.methods import LOOKS, method_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER, TITLE = "price", "What does the accuracy of each run cost?"  # of a paper's own
SECTION = f"""
## Accuracy and its price

![{TITLE}]({FOLDER}/figure.svg)

A private run after its last epoch is two points: hollow at the ε that the paper counts, and filled at its sound ε if
that is finite. Triangles at the lower edge are runs that lie below it.
"""
_OTHER, _OTHER_LOOK = "other settings", ("#c4c4c4", "o")  # settings of no method on the leaderboard
_FRONT = "best at or below each sound ε"
_BELOW = 0.1  # share of the runs of a panel that may lie below it

Point = tuple[float, PlannedRun]  # epsilon of a run


def runs_of(paper: Paper, evidence: Evidence) -> Runs:
    """Select the recorded private runs of a paper whose accuracy is on test images, after more than one epoch."""
    planned = (run for item in paper.items for sweep in paper.needs(item) for run in evidence.sweeps[sweep])
    recorded = {run.job.run_id: run for run in planned if run.record is not None}
    return Runs(
        run
        for run in recorded.values()
        if math.isfinite(run.final("epsilon")) and run.field("evaluation") == "test" and run.field("epochs") > 1
    )


def draw(runs: Runs) -> Figure | None:
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
        counted = [(run.final("epsilon"), run) for run in chosen]
        sound = [(epsilon, run) for run in chosen if math.isfinite(epsilon := run.final("epsilon_sound"))]
        ordered = sorted(run.final("test_accuracy") for run in chosen)
        low, high = ordered[int(_BELOW * len(ordered))], ordered[-1]
        margin = 0.06 * (high - low) + 0.2
        _draw_points(axes, counted, low - margin, markerfacecolor="none")
        _draw_points(axes, sound, low - margin)
        curves = [([epsilon], [run.final("test_accuracy")]) for epsilon, run in sound]
        plots.draw_front(axes, curves, color=plots.GREY, linewidth=1, label=_FRONT)
        lowest, highest = (limit(epsilon for epsilon, _ in counted + sound) for limit in (min, max))
        far = [10.0**power for power in range(-1, 9, 3) if lowest <= 10.0**power <= highest]
        plots.log_axis(axes, "x", far if highest > 1e5 * lowest else ())  # fewer numbers, which are long
        axes.set(ylim=(low - margin, min(100.5, high + margin)), title=f"{dataset_name(name)}, {len(chosen)} runs")
        axes.set_xlabel("ε (hollow: as the paper counts; filled: sound)", fontsize=8)
    panels[0].set_ylabel("test accuracy (%)")
    plots.one_legend(fig, columns=5)
    return fig


def _draw_points(axes: Axes, points: Sequence[Point], low: float, **face: Any) -> None:
    by_method = grouped(points, lambda point: method_of(point[1].job))
    for method in sorted(by_method, key=["", *LOOKS].index):  # other settings are drawn first, below the others
        colour, marker = plots.LOOKS[LOOKS[method]] if method else _OTHER_LOOK
        style: dict[str, Any] = {"linestyle": "", "alpha": 0.7, "markersize": 5, "mew": 0.6, "color": colour, **face}
        seen = [(epsilon, run.final("test_accuracy")) for epsilon, run in by_method[method]]
        label = LOOKS[method] if method else _OTHER
        axes.plot(*zip(*seen, strict=True), marker=marker, label=label, zorder=2 + bool(method), **style)
        if below := [epsilon for epsilon, accuracy in seen if accuracy < low]:
            axes.plot(below, [low] * len(below), marker="v", clip_on=False, **style)

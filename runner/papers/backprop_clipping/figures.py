"""Figure 5, drawn from runs. What the paper claims is hollow."""

from __future__ import annotations

from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.reading import claims_of
from runner.claims.runs import Runs
from runner.report.plots import legend_below, mark_not_run, name_not_run, panel_each, runs_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "backprop_clipping"
TABLE_1, FIG_5 = f"{PAPER}/table_1", f"{PAPER}/fig_5"


@cache
def claimed(dataset: str) -> tuple[float, float]:
    """The epsilon and the accuracy in percent claimed of algorithm 2 as printed on a data set ("mnist")."""
    experiment = f"{PAPER}/{dataset}_printed"
    (claim,) = claims_of(PAPER, item="table-1", alone=experiment, quantity="test_accuracy")
    assert claim.epsilon is not None
    assert claim.aim is not None
    return claim.epsilon[0], claim.aim


def figure_5(evidence: Evidence) -> Figure:
    """Accuracy of algorithm 2 as printed against epsilon, and without noise, a panel a data set."""
    drawn, panels = panel_each(4)
    for axes, dataset in panels:
        planned = Runs(run for s in (FIG_5, TABLE_1) for run in evidence.planned(s, f"{PAPER}/{dataset}_printed"))
        points(axes, planned, "epsilon", "backprop clipping, as printed", "C0", "o")
        for name, label, colour in (("clipping", "clipping, no noise", "C1"), ("sgd", "no clipping, no noise", "k")):
            runs = evidence.planned(TABLE_1, f"{PAPER}/{dataset}_{name}")
            if runs.recorded:
                mean = fmean(runs.finals("test_accuracy"))
                axes.axhline(mean, color=colour, linewidth=1, label=f"{label}, {runs_text(runs)}")
        if evidence.scale == PAPER_SCALE:
            star(axes, *claimed(dataset), "C0", "claimed", size=11)
        axes.set(xscale="log", xlabel="ε of the runs (zCDP), zero-out neighbours")
        if not planned.recorded:
            mark_not_run(axes)
        legend_below(axes)
    drawn.axes[0].set_ylabel("test accuracy (%)")
    return drawn


def star(axes: Axes, epsilon: float, accuracy: float, colour: str, label: str, size: float) -> None:
    """What is claimed: a hollow star."""
    axes.plot(epsilon, accuracy, "*", markersize=size, color=colour, markerfacecolor="none", label=label)


def points(axes: Axes, planned: Runs, name: str, label: str, colour: str, marker: str) -> None:
    """Mean and range of last-epoch accuracy of each setting, against its epsilon."""
    if not planned.recorded:
        name_not_run(axes, label, colour, marker)
        return
    settings = []
    for runs in planned.recorded.by(lambda run: run.job.setting_id).values():
        values = runs.finals("test_accuracy")
        settings.append((runs.largest(name), fmean(values), min(values), max(values)))
    epsilon, middle, low, high = zip(*sorted(settings), strict=True)
    axes.vlines(epsilon, low, high, color=colour, linewidth=1.5)
    axes.plot(epsilon, middle, marker, color=colour, markersize=5, label=f"{label}, {runs_text(planned)}")

"""Figure 5, drawn from runs, and the grid of figures 1 and 2. The paper's claims are hollow markers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.reading import claims_of
from runner.claims.rows import ClaimRow
from runner.claims.runs import Runs, last_accuracy
from runner.report.files import Table, number
from runner.report.plots import DATASETS, legend_below, mark_not_run, name_not_run, panel_each, runs_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "backprop_clipping"
TABLE_1, FIG_5, FIG_5_CODE, GRID = (f"{PAPER}/{name}" for name in ("table_1", "fig_5", "fig_5_code", "fig_1"))
_SEARCHED = ("epochs", "batch_size", "clipping.input_bound", "clipping.upstream_bound")


@cache
def claimed(dataset: str) -> tuple[float, float]:
    """Return the claimed epsilon and accuracy (percent) of algorithm 2 as printed, for a data set ("mnist")."""
    experiment = f"{PAPER}/{dataset}_printed"
    (claim,) = claims_of(PAPER, item="table-1", alone=experiment, quantity="test_accuracy")
    assert claim.epsilon is not None
    assert claim.aim is not None
    return claim.epsilon[0], claim.aim


def figure_5(evidence: Evidence) -> Figure:
    """Draw accuracy against epsilon, by data set: algorithm 2 as printed, with the code's noise, and without noise."""
    drawn, panels = panel_each(4)
    for axes, dataset in panels:
        planned = Runs(run for s in (FIG_5, TABLE_1) for run in evidence.planned(s, f"{PAPER}/{dataset}_printed"))
        points(axes, planned, "epsilon", "backpropagation clipping, as printed", "C0", "o")
        bug = (run for s in (FIG_5_CODE, TABLE_1) for run in evidence.planned(s, f"{PAPER}/{dataset}_original_bug"))
        points(axes, Runs(bug), "epsilon", "the code's noise (not private)", "C3", "v")
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


def grid(evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
    """Return the recorded settings of the grid, the most accurate first, with a mark for the paper's settings."""
    rows = []
    for dataset, title in DATASETS.items():
        runs = evidence.planned(GRID, f"{PAPER}/{dataset}_printed").recorded
        own = evidence.planned(TABLE_1, f"{PAPER}/{dataset}_printed")
        for run in sorted(runs, key=last_accuracy, reverse=True):
            settings = [run.field(name) for name in _SEARCHED]
            is_own = any(settings == [other.field(name) for name in _SEARCHED] for other in own)
            rows.append([title, *settings, number(last_accuracy(run), "%"), "yes" if is_own else ""])
    header = ("dataset", "epochs", "batch size", "input bound", "upstream bound", "accuracy (%)", "the paper's best")
    notes = (
        "Algorithm 2 as printed at the claimed ε, one seed a setting, accuracy on held-out training images. The paper "
        "searched with the bug, and does not say at which ε, so its best settings are no claim that runs could decide.",
    )
    return Table(header, rows, notes)


def star(axes: Axes, epsilon: float, accuracy: float, colour: str, label: str, size: float) -> None:
    """Draw a claim as a hollow star."""
    axes.plot(epsilon, accuracy, "*", markersize=size, color=colour, markerfacecolor="none", label=label)


def points(axes: Axes, planned: Runs, name: str, label: str, colour: str, marker: str) -> None:
    """Draw the mean and range of last-epoch accuracy of each setting, against its epsilon."""
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

"""Figure 5, drawn from runs. What the paper claims is hollow."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from runner.report.claims import claims_path, read_claims
from runner.report.evidence import PAPER_SCALE, Evidence
from runner.report.plots import DATASETS, figure, mark_not_run, runs_text
from runner.report.runs import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "backprop_clipping"


def figure_5(evidence: Evidence) -> Figure:
    """Accuracy of algorithm 2 as printed against epsilon, and without noise, a panel a data set."""
    claims = [c for c in read_claims(claims_path(PAPER)) if c.item == "table-1" and c.quantity == "test_accuracy"]
    drawn = figure(11, 4)
    for axes, (dataset, title) in zip(drawn.subplots(1, 3), DATASETS.items(), strict=True):
        own = f"{PAPER}/{dataset}_printed"
        planned = Runs(run for s in ("fig_5", "table_1") for run in evidence.planned(f"{PAPER}/{s}", own))
        points(axes, planned, "epsilon", "backprop clipping, as printed", "C0", "o")
        for name, label, colour in (("clipping", "clipping, no noise", "C1"), ("sgd", "no clipping, no noise", "k")):
            runs = evidence.planned(f"{PAPER}/table_1", f"{PAPER}/{dataset}_{name}")
            if runs.recorded:
                mean = fmean(runs.finals("test_accuracy"))
                axes.axhline(mean, color=colour, linewidth=1, label=f"{label}, {runs_text(runs)}")
        claim = next(c for c in claims if c.experiment == own)
        if evidence.scale == PAPER_SCALE and claim.epsilon is not None and claim.aim is not None:
            axes.plot(
                claim.epsilon[0], claim.aim, "*", markersize=11, color="C0", markerfacecolor="none", label="claimed"
            )
        axes.set_xscale("log")
        axes.set_title(title)
        axes.set_xlabel("ε of the runs (zCDP), zero-out neighbours")
        if not planned.recorded:
            mark_not_run(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17))
    drawn.axes[0].set_ylabel("test accuracy (%)")
    return drawn


def points(axes: Axes, planned: Runs, name: str, label: str, colour: str, marker: str) -> None:
    """Mean and range of last-epoch accuracy of each setting, against its epsilon."""
    if not planned.recorded:
        axes.plot([], [], marker, color=colour, label=f"{label}, not run")
        return
    points = []
    for runs in planned.recorded.by(lambda run: run.job.setting_id).values():
        values = runs.finals("test_accuracy")
        points.append((runs.largest(name), fmean(values), min(values), max(values)))
    epsilon, middle, low, high = zip(*sorted(points), strict=True)
    axes.vlines(epsilon, low, high, color=colour, linewidth=1.5)
    axes.plot(epsilon, middle, marker, color=colour, markersize=5, label=f"{label}, {runs_text(planned)}")

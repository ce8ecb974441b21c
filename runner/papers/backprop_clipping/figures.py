"""Figure 5, drawn from runs. What the paper claims is hollow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from runner.report.claims import claims_path, read_claims
from runner.report.evidence import PAPER_SCALE, Evidence, PlannedRun
from runner.report.plots import DATASETS, figure, mark_not_run, runs_text

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
        planned = [run for s in ("fig_5", "table_1") for run in evidence.planned(f"{PAPER}/{s}", own)]
        points(axes, planned, "epsilon", "backprop clipping, as printed", "C0", "o")
        for name, label, colour in (("clipping", "clipping, no noise", "C1"), ("sgd", "no clipping, no noise", "k")):
            runs = evidence.planned(f"{PAPER}/table_1", f"{PAPER}/{dataset}_{name}")
            recorded = [run.final("test_accuracy") for run in runs if run.record is not None]
            if recorded:
                axes.axhline(fmean(recorded), color=colour, linewidth=1, label=f"{label}, {runs_text(runs)}")
        claim = next(c for c in claims if c.experiment == own)
        if evidence.scale == PAPER_SCALE and claim.epsilon is not None and claim.aim is not None:
            axes.plot(
                claim.epsilon[0], claim.aim, "*", markersize=11, color="C0", markerfacecolor="none", label="claimed"
            )
        axes.set_xscale("log")
        axes.set_title(title)
        axes.set_xlabel("ε of the runs (zCDP), zero-out neighbours")
        if not any(run.record is not None for run in planned):
            mark_not_run(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17))
    drawn.axes[0].set_ylabel("test accuracy (%)")
    return drawn


def points(axes: Axes, planned: Sequence[PlannedRun], name: str, label: str, colour: str, marker: str) -> None:
    """Mean and range of last-epoch accuracy of each setting, against its epsilon."""
    by_setting: dict[str, list[PlannedRun]] = {}
    for run in (run for run in planned if run.record is not None):
        by_setting.setdefault(run.job.setting_id, []).append(run)
    text = f"{label}, {runs_text(planned)}"
    if not by_setting:
        axes.plot([], [], marker, color=colour, label=f"{label}, not run")
        return
    points = []
    for runs in by_setting.values():
        values = [run.final("test_accuracy") for run in runs]
        points.append((max(run.final(name) for run in runs), fmean(values), min(values), max(values)))
    epsilon, middle, low, high = zip(*sorted(points), strict=True)
    axes.vlines(epsilon, low, high, color=colour, linewidth=1.5)
    axes.plot(epsilon, middle, marker, color=colour, markersize=5, label=text)

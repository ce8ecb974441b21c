"""Figure 5, drawn from runs, and the grid of figures 1 and 2. The paper's claims are hollow stars."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

from runner.claims.judgement import ClaimRow
from runner.claims.runs import PAPER_SCALE, Evidence, Runs, last_accuracy
from runner.report import plots
from runner.report.files import Table, number
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "backprop_clipping"
PAPER_AXES = plots.PaperAxes(epsilon=(0.045, 8.0))
_TICKS = (0.05, 0.1, 0.5, 1, 5)
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
    lines = {
        "backpropagation clipping": ("backpropagation clipping, as printed", (FIG_5, TABLE_1), "printed"),
        "original bug": ("the code's noise (not private)", (FIG_5_CODE, TABLE_1), "original_bug"),
    }
    planned = {
        (dataset, look): Runs(run for s in sweeps for run in evidence.planned(s, f"{PAPER}/{dataset}_{name}"))
        for dataset in plots.DATASETS
        for look, (_, sweeps, name) in lines.items()
    }
    drawn, panels = plots.panel_each(4.2)
    for dataset, axes in panels.items():
        curves = [planned[dataset, look] for look in lines]
        axes.set_title(f"{plots.DATASETS[dataset]}\nas printed: {plots.runs_text(curves[0])}", fontsize=9)
        if not any(of.recorded for of in curves):
            plots.mark_not_run(axes)
        for look, (label, *_) in lines.items():
            points(axes, planned[dataset, look], "epsilon", label, look, counted=False)
        for name, label, look in (
            ("clipping", "clipping, no noise", "SGD, clipped"),
            ("sgd", "no clipping, no noise", "SGD, ReLU"),
        ):
            runs = evidence.planned(TABLE_1, f"{PAPER}/{dataset}_{name}")
            if runs.recorded:
                mean = fmean(runs.finals("test_accuracy"))
                axes.axhline(mean, color=plots.LOOKS[look][0], linewidth=1, label=f"{label}, {plots.runs_text(runs)}")
        if evidence.scale == PAPER_SCALE:
            epsilon, accuracy = claimed(dataset)
            colour = plots.LOOKS["backpropagation clipping"][0]
            axes.plot(epsilon, accuracy, color=colour, label="claimed", **plots.CLAIMED)
        plots.log_axis(axes, "x", _TICKS)
        axes.set_xlim(*PAPER_AXES.epsilon)
        axes.set_xlabel(f"{plots.AS_PAPER}\n(zCDP, zero-out neighbours)")
    plots.one_legend(drawn, 3)
    drawn.axes[0].set_ylabel("test accuracy (%), mean and range")
    return drawn


def grid(evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
    """Return the recorded settings of the grid, the most accurate first, with a mark for the paper's settings."""
    rows = []
    for dataset, title in plots.DATASETS.items():
        runs = evidence.planned(GRID, f"{PAPER}/{dataset}_printed").recorded
        own = evidence.planned(TABLE_1, f"{PAPER}/{dataset}_printed")
        for run in sorted(runs, key=last_accuracy, reverse=True):
            settings = [run.field(name) for name in _SEARCHED]
            is_own = any(settings == [other.field(name) for name in _SEARCHED] for other in own)
            rows.append([title, *settings, number(last_accuracy(run), "%"), "yes" if is_own else ""])
    header = ("dataset", "epochs", "batch size", "input bound", "upstream bound", "one run (%)", "the paper's best")
    notes = (
        "Algorithm 2 as printed at the claimed ε, one seed a setting, accuracy on held-out training images. The paper "
        "searched with too small noise, and does not say at which ε. So its best settings are no claim that runs could "
        "decide.",
    )
    return Table(header, rows, notes)


def points(axes: Axes, planned: Runs, name: str, label: str, look: str, *, counted: bool = True) -> None:
    """Draw the mean and range of last-epoch accuracy of each recorded setting, against its epsilon."""
    settings = []
    for runs in planned.recorded.by(lambda run: run.job.setting_id).values():
        values = runs.finals("test_accuracy")
        settings.append((runs.largest(name), fmean(values), min(values), max(values)))
    if settings:
        colour, marker = plots.LOOKS[look]
        epsilon, middle, low, high = zip(*sorted(settings), strict=True)
        axes.vlines(epsilon, low, high, color=colour, linewidth=1.5)
        text = f"{label}, {plots.runs_text(planned)}" if counted else label
        axes.plot(epsilon, middle, color=colour, marker=marker, markersize=5, linewidth=0.6, label=text)

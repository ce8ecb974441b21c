"""Figure 5 and the origin of 98.7% at an epsilon of 0.07, drawn from runs, and the grid of figures 1 and 2.

The paper's claims are hollow stars.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import fmean

from runner.claims.measure import prepared
from runner.claims.runs import PAPER_SCALE, Evidence, Runs, last_accuracy
from runner.claims.verdicts import ClaimRow
from runner.report import plots
from runner.report.files import Table, bound_text, delta_text, mean_text, number
from runner.report.papers import claims_of

PAPER = "backprop_clipping"
STATED = ("3", "1", "02", "01")  # the epsilons of the authors' script, as in the names of experiments

TABLE_1, FIG_5, FIG_5_CODE, GRID = (f"{PAPER}/{name}" for name in ("table_1", "fig_5", "fig_5_code", "fig_1"))
_SEARCHED = ("epochs", "batch_size", "clipping.input_bound", "clipping.upstream_bound")


_PLAIN = "DP-SGD with tanh, Tempered Sigmoid's settings"
_JOINT, _BUG = "layers as one release", "the code's noise, the printed network"
_STEPS = "ε of the steps"
_PLAIN_LARGE = "DP-Adam, tanh, this paper's batches"
_CORRECTED, _CORRECTED_JOINT = ([f"{name}_{stated}" for stated in STATED] for name in ("corrected", "corrected_joint"))
MECHANISMS = {  # label: look, sweeps, experiments
    "algorithm 2 as printed": ("backpropagation clipping", ["table_1", "fig_5"], ["printed"]),
    "the authors' corrected code": ("corrected", ["repo_mnist"], _CORRECTED),
    _JOINT: ("joint", ["table_1", "story", "repo_mnist"], ["joint", *_CORRECTED_JOINT]),
    _BUG: ("original bug", ["table_1", "fig_5_code"], ["original_bug"]),
    "the authors' code": ("original code", ["original_code"], ["original_code"]),
    _PLAIN: ("tanh", ["story_plain"], ["plain"]),
    _PLAIN_LARGE: ("tanh, large batches", ["story_plain"], ["plain_large"]),
}


def claimed(dataset: str) -> tuple[float, float]:
    """Return the claimed epsilon and accuracy (percent) of algorithm 2 as printed, for a data set ("mnist")."""
    claims = claims_of(PAPER, item="table-1", alone=f"{PAPER}/{dataset}_printed", quantity="test_accuracy")
    (point,) = plots.points_of(claims)
    return point


def figure_5(evidence: Evidence) -> plots.Figure:
    """Draw accuracy against epsilon, by data set: algorithm 2 as printed, with the code's noise, and without noise."""
    lines = (
        ("printed", FIG_5, "backpropagation clipping, as printed", "backpropagation clipping"),
        ("original_bug", FIG_5_CODE, "the code's noise (not private)", "original bug"),
    )
    levels = (("clipping", "clipping, no noise", "SGD, clipped"), ("sgd", "no clipping, no noise", "SGD, ReLU"))
    figure, panels = plots.panel_each(4.2)
    for dataset, axes in panels.items():
        printed, *_ = planned = [
            Runs(run for sweep in (more, TABLE_1) for run in evidence.planned(sweep, f"{PAPER}/{dataset}_{name}"))
            for name, more, *_ in lines
        ]
        axes.set_title(f"{plots.DATASETS[dataset]}\nas printed: {plots.runs_text(printed)}", fontsize=9)
        if not any(runs.recorded for runs in planned):
            plots.mark_not_run(axes)
        for runs, (*_, label, look) in zip(planned, lines, strict=True):
            points(axes, runs, "epsilon", label, look, counted=False)
        for name, label, look in levels:
            runs = evidence.planned(TABLE_1, f"{PAPER}/{dataset}_{name}")
            if runs.recorded:
                mean = fmean(runs.finals("test_accuracy"))
                axes.axhline(mean, color=plots.LOOKS[look][0], linewidth=1, label=f"{label}, {plots.runs_text(runs)}")
        if evidence.scale == PAPER_SCALE:
            colour = plots.LOOKS["backpropagation clipping"][0]
            axes.plot(*claimed(dataset), color=colour, label="claimed", **plots.CLAIMED)
        plots.log_axis(axes, "x", (0.05, 0.1, 0.5, 1, 5))
        axes.set_xlim(0.045, 8.0)
        axes.set_xlabel(f"{plots.AS_PAPER}\n(zCDP, zero-out neighbours)")
    plots.one_legend(figure, 3)
    figure.axes[0].set_ylabel("test accuracy (%), mean and range")
    return figure


def grid(evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
    """Return the recorded settings of the grid, the most accurate first, with a mark for the paper's settings."""
    rows = []
    for dataset, title in plots.DATASETS.items():
        searched, printed = (evidence.planned(sweep, f"{PAPER}/{dataset}_printed") for sweep in (GRID, TABLE_1))
        best = [[run.field(name) for name in _SEARCHED] for run in printed]
        for run in sorted(searched.recorded, key=last_accuracy, reverse=True):
            settings = [run.field(name) for name in _SEARCHED]
            rows.append([title, *settings, number(last_accuracy(run), "%"), "yes" if settings in best else ""])
    header = ("dataset", "epochs", "batch size", "input bound", "upstream bound", "one run (%)", "the paper's best")
    return Table(header, rows)


def points(axes: plots.Axes, planned: Runs, name: str, label: str, look: str, *, counted: bool = True) -> None:
    """Draw the mean and range of last-epoch accuracy of each recorded setting, against its epsilon."""
    settings = []
    for runs in planned.recorded.by(lambda run: run.job.setting_id).values():
        accuracies = runs.finals("test_accuracy")
        settings.append((runs.largest(name), fmean(accuracies), min(accuracies), max(accuracies)))
    if settings:
        colour, marker = plots.LOOKS[look]
        epsilon, middle, low, high = zip(*sorted(settings), strict=True)
        axes.vlines(epsilon, low, high, color=colour, linewidth=1.5)
        text = f"{label}, {plots.runs_text(planned)}" if counted else label
        axes.plot(epsilon, middle, color=colour, marker=marker, markersize=5, linewidth=0.6, label=text)


def story_table(evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
    """Return a row per mechanism and setting: epsilon, cost of the steps, sound epsilon, and accuracy."""
    header = (
        *("mechanism", "ε as it counts", _STEPS, "sound ε", "mean accuracy (%)", "n"),
        *("batch size", "epochs", "noise multiplier"),
    )
    rows: list[list[object]] = []
    reached: dict[str, tuple[float, int]] = {}  # mean accuracy and number of runs at the claimed epsilon
    claimed_epsilon, claimed_accuracy = claimed("mnist")
    for label in MECHANISMS:
        by_setting = _mechanism_runs(evidence, label).by(lambda run: run.job.setting_id).values()
        settings = [planned for planned in by_setting if planned.recorded]
        for planned in sorted(settings, key=lambda planned: planned.finals("epsilon")[0]):
            runs, first = planned.recorded, planned.recorded[0]
            accuracies = runs.finals("test_accuracy")
            costs = [bound_text(runs.largest(name)) for name in ("epsilon", "epsilon_spent", "epsilon_sound")]
            fields = [first.field("batch_size"), int(first.final("epoch")), number(first.final("noise_multiplier"))]
            rows.append([label, *costs, mean_text(accuracies, "%"), planned.recorded_of, *fields])
            if first.field("target_epsilon") == claimed_epsilon:
                reached[label] = fmean(accuracies), len(runs)
    notes = [
        "ε of the steps is by PLD. It is the sound ε only where pixels are taken as they are. Where there is none (∞), "
        "they are standardised by the mean and deviation of the training images, which no ledger holds."
    ]
    if {_JOINT, _PLAIN_LARGE, _BUG} <= reached.keys():
        (joint, clipped), (large, plain) = reached[_JOINT], reached[_PLAIN_LARGE]
        if max(joint, large) < claimed_accuracy - 1:
            notes.append(
                "The claimed accuracy is that of a code whose noise is too small by up to the batch size. With the "
                f"noise this ε needs, neither backpropagation clipping at these settings ({clipped} runs) nor DP-Adam "
                f"with the same batches ({plain} {'run' if plain == 1 else 'runs'}) came near it."
            )
    return Table(header, rows, notes, header[:-2])


def _mechanism_runs(evidence: Evidence, label: str) -> Runs:
    _, sweeps, names = MECHANISMS[label]
    pairs = product(sweeps, names)
    return Runs(run for sweep, name in pairs for run in evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/mnist_{name}"))


def story(evidence: Evidence) -> plots.Figure:
    """Draw accuracy against the claimed epsilons of the mechanisms, left, and the cost of their steps, right."""
    figure = plots.figure(plots.WIDTH, 5.4)
    left, right = figure.subplots(1, 2, sharey=True)
    claimed_epsilon, claimed_accuracy = claimed("mnist")
    delta = prepared(TABLE_1, f"{PAPER}/mnist_printed").config.delta
    titles = {"epsilon": "ε as each mechanism counts", "epsilon_spent": f"{_STEPS} of the same runs"}
    for axes, (name, title) in zip((left, right), titles.items(), strict=True):
        for label, (look, *_) in MECHANISMS.items():
            points(axes, _mechanism_runs(evidence, label), name, label, look)
        tanh = evidence.planned(f"{PAPER}/table_1_copied", "tempered_sigmoid/mnist_tanh")
        if tanh.recorded:
            by_epoch = plots.band(tanh.recorded, name, "test_accuracy")
            by_epoch.draw(axes, plots.LOOKS["tanh"], None, label=f"{_PLAIN}, by epoch, {plots.runs_text(tanh)}")
        if evidence.scale == PAPER_SCALE and axes is left:  # the claim is for this epsilon only
            text = f"claimed: {claimed_accuracy}% at ε = {claimed_epsilon}"
            colour = plots.LOOKS["backpropagation clipping"][0]
            axes.plot(claimed_epsilon, claimed_accuracy, color=colour, label=text, **plots.CLAIMED)
        plots.log_axis(axes, "x")
        axes.set_xlabel(f"{title} ({delta_text(delta)})")
    if left.dataLim.y1 > 0:
        plots.scale_by_error(left)
    plots.one_legend(figure, 2)
    return figure

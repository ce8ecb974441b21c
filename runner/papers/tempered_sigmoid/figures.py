"""The figures drawn from runs. All numbers that a claim is about are dashed."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from runner.papers.tempered_sigmoid import measures
from runner.report.claims import Claim, claims_path, read_claims
from runner.report.evidence import PAPER_SCALE, Evidence
from runner.report.plots import (
    COLOURS,
    DATASETS,
    Curve,
    Panel,
    accuracy_against_epsilon,
    figure,
    mark_not_run,
    runs_text,
)
from runner.report.runs import Runs
from runner.report.summary import summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "tempered_sigmoid"
TRIPLE = {
    "activation.scale": "scale s",
    "activation.inverse_temperature": "inverse temperature T",
    "activation.offset": "offset o",
}
MEANS = {
    "activation.scale": "mean_s",
    "activation.inverse_temperature": "mean_T",
    "activation.offset": "mean_o",
}


def _claims(item: str) -> list[Claim]:
    return [claim for claim in read_claims(claims_path(PAPER)) if claim.item == item]


def figure_3(evidence: Evidence) -> Figure:
    """Accuracy against epsilon, ReLU and tanh, a column a data set."""
    sweep = f"{PAPER}/fig_3"
    claims = {claim.experiment: claim for claim in _claims("fig-3")}
    panels = []
    for dataset, title in DATASETS.items():
        names = {label: f"{PAPER}/{dataset}_{label.lower()}" for label in ("tanh", "ReLU")}
        curves = [Curve(sweep, name, label, claims[name].aim) for label, name in names.items()]
        panels.append(Panel(title, curves, (claims[names["tanh"]].epsilon or (None,))[0]))
    return accuracy_against_epsilon(evidence, panels)


def figure_2(evidence: Evidence) -> Figure:
    """Accuracy over (s, T, o), a row a data set: the paper's scatter, then against each parameter alone."""
    sweep = f"{PAPER}/fig_2"
    rows = [d for d in DATASETS if evidence.recorded(sweep, f"{PAPER}/{d}_triple")]
    drawn = figure(13, 3.4 * len(rows) + 0.4)
    grid = drawn.add_gridspec(len(rows), 4, width_ratios=(1.35, 1, 1, 1))
    for row, dataset in enumerate(rows):
        experiment = f"{PAPER}/{dataset}_triple"
        planned, runs = evidence.planned(sweep, experiment), evidence.recorded(sweep, experiment)
        top = measures.top_triples(runs) if measures.enough_triples(len(runs), len(planned)) else Runs()
        space = drawn.add_subplot(grid[row, 0], projection="3d")
        _scatter_3d(drawn, space, runs, f"{DATASETS[dataset]}, {runs_text(planned)}")
        for column, field in enumerate(TRIPLE, start=1):
            axes = drawn.add_subplot(grid[row, column])
            claimed = _claimed_mean(experiment, field) if evidence.scale == PAPER_SCALE else None
            _against_one(axes, runs, top, field, claimed)
    named = {label: handle for a in drawn.axes for handle, label in zip(*a.get_legend_handles_labels(), strict=True)}
    drawn.legend(list(named.values()), list(named), loc="outside lower center", ncols=len(named))
    return drawn


def _claimed_mean(experiment: str, field: str) -> float | None:
    matching = [c for c in _claims("fig-2") if c.experiment == experiment and c.quantity == MEANS[field]]
    return matching[0].aim if matching else None


def _values(runs: Runs, field: str) -> list[float]:
    return [float(run.field(field)) for run in runs]


def _scatter_3d(drawn: Figure, axes: Any, runs: Runs, title: str) -> None:
    places = [_values(runs, field) for field in TRIPLE]
    points = axes.scatter(*places, c=runs.finals("test_accuracy"), cmap="YlGn", edgecolors="k", linewidths=0.3)
    for name, field in zip(("x", "y", "z"), TRIPLE, strict=True):
        getattr(axes, f"set_{name}label")(TRIPLE[field].rpartition(" ")[2], labelpad=-6)
        getattr(axes, f"{name}axis").set_tick_params(pad=-3, labelsize=7)
    axes.set_title(title)
    drawn.colorbar(points, ax=axes, shrink=0.6, pad=0.02, label="test accuracy (%)", location="left")


def _against_one(axes: Axes, runs: Runs, top: Runs, field: str, claimed: float | None) -> None:
    axes.scatter(_values(runs, field), runs.finals("test_accuracy"), s=14, color="0.6", label="triples")
    title = "" if claimed is None else f"claimed: {claimed:.3g}"
    if top:
        mean = statistics.fmean(_values(top, field))
        axes.scatter(_values(top, field), top.finals("test_accuracy"), s=18, color="C2", label="best tenth")
        axes.axvline(mean, color="C2", linewidth=1, label="mean of the best tenth")
        title = f"mean of best {len(top)}: {mean:.3g}, {title}"
    if claimed is not None:
        axes.axvline(claimed, color="k", linestyle="--", linewidth=1, label="claimed mean of the best tenth")
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(TRIPLE[field])
    axes.set_ylabel("test accuracy (%)")


_SCENARIOS = {
    "SGD ReLU": f"{PAPER}/mnist_sgd_relu_norms",
    "SGD tanh": f"{PAPER}/mnist_sgd_tanh_norms",
    "ReLU": f"{PAPER}/mnist_relu_norms",
    "tanh": f"{PAPER}/mnist_tanh_norms",
}
_SCENARIO_LABELS = {"ReLU": "DP-SGD ReLU", "tanh": "DP-SGD tanh"}


def figure_4(evidence: Evidence) -> Figure:
    """Mean per-example gradient norm before clipping by step; dashed, five times the level of SGD with
    ReLU.
    """
    drawn = figure(7, 4)
    axes = drawn.subplots()
    for label, experiment in _SCENARIOS.items():
        planned = evidence.planned(f"{PAPER}/fig_4", experiment)
        for run in planned.recorded:
            steps, norms = measures.gradient_norms(run)
            smooth = measures.triangular_average(norms)
            axes.plot(steps, smooth, color=COLOURS[label], linewidth=1, label=_scenario(label, planned))
            if label == "SGD ReLU" and evidence.scale == PAPER_SCALE:
                five = 5 * measures.level(steps, norms)
                axes.axhline(
                    five,
                    color="k",
                    linestyle="--",
                    linewidth=1,
                    label="5 x SGD ReLU: DP-SGD ReLU is claimed to be above",
                )
            if label == "ReLU":
                clip = float(run.job.config.clipping.norm)
                axes.axhline(clip, color="grey", linestyle=":", linewidth=1, label=f"clipping norm {clip:g}")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("mean per-example gradient norm")
    drawn.legend(loc="outside lower center", ncols=3)
    return drawn


def figure_5(evidence: Evidence) -> Figure:
    """Mean norm of an example's first activations by step, the three scenarios of the paper."""
    drawn = figure(7, 4)
    axes = drawn.subplots()
    for label in ("SGD ReLU", "ReLU", "tanh"):
        planned = evidence.planned(f"{PAPER}/fig_4", _SCENARIOS[label])
        for run in planned.recorded:
            steps, norms = measures.first_activation_norms(run)
            axes.plot(steps, norms, color=COLOURS[label], linewidth=1, label=_scenario(label, planned))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("step")
    axes.set_ylabel("norm of the first convolution's activations")
    drawn.legend(loc="outside lower center", ncols=3)
    return drawn


def _scenario(label: str, planned: Runs) -> str:
    return f"{_SCENARIO_LABELS.get(label, label)}, {runs_text(planned)}"


def class_accuracy(evidence: Evidence) -> Figure:
    """Last-epoch accuracy by class, ReLU and tanh: mean and range over the runs, a panel a data set."""
    drawn = figure(11, 3.8)
    for axes, (dataset, title) in zip(drawn.subplots(1, 3), DATASETS.items(), strict=True):
        for shift, label in ((-0.12, "tanh"), (0.12, "ReLU")):
            planned = evidence.planned(f"{PAPER}/fig_3", f"{PAPER}/{dataset}_{label.lower()}")
            runs = planned.recorded
            if not runs:
                axes.plot([], [], color=COLOURS[label], label=f"{label}, not run")
                continue
            by_run = [[float(v) for v in run.diagnostic("per_class_accuracy")[-1]] for run in runs]
            summaries = [summarise(values) for values in zip(*by_run, strict=True)]
            at = [c + shift for c in range(len(summaries))]
            ranges = ([s.min for s in summaries], [s.max for s in summaries])
            axes.vlines(at, *ranges, color=COLOURS[label], linewidth=1.5)
            std = statistics.fmean(measures.class_std(run) for run in runs)
            text = f"{label}, {runs_text(planned)}, std over classes {std:.2f}"
            axes.plot(at, [s.mean for s in summaries], "o", markersize=4, color=COLOURS[label], label=text)
        axes.set_title(title)
        axes.set_xlabel("class")
        axes.set_ylabel("accuracy (%)")
        axes.set_xticks(range(10))
        if not any(evidence.recorded(f"{PAPER}/fig_3", f"{PAPER}/{dataset}_{name}") for name in ("tanh", "relu")):
            axes.set_yticks([])
            mark_not_run(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17))
    return drawn

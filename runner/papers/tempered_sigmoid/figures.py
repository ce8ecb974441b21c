"""The figures drawn from runs. Claimed numbers are dashed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from runner.claims.diagnostics import first_activation_norms, level, mean_gradient_norms, triangular_average
from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.readers import class_accuracy_std
from runner.claims.runs import PlannedRun, Runs
from runner.papers.tempered_sigmoid import measures
from runner.report import plots
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "tempered_sigmoid"
NormsByStep: TypeAlias = Callable[[PlannedRun], tuple[list[int], list[float]]]  # steps, norms: [measurements] each
FIG_2, FIG_3, FIG_4 = (f"{PAPER}/fig_{number}" for number in (2, 3, 4))
TRIPLE = {  # the fields that figure 2 varies: the name, and the claimed quantity
    "activation.scale": ("scale s", "mean of s"),
    "activation.inverse_temperature": ("inverse temperature T", "mean of T"),
    "activation.offset": ("offset o", "mean of o"),
}
_DASHED: dict[str, Any] = {"color": "k", "linestyle": "--", "linewidth": 1}


def figure_3(evidence: Evidence) -> Figure | None:
    """Draw accuracy against epsilon, ReLU and tanh, a column per data set."""
    claims = {claim.alone: claim for claim in claims_of(PAPER, item="fig-3")}
    panels = []
    for dataset, title in plots.DATASETS.items():
        names = {label: f"{PAPER}/{dataset}_{label.lower()}" for label in ("tanh", "ReLU")}
        curves = [plots.Curve(FIG_3, name, label, claims[name].aim) for label, name in names.items()]
        panels.append(plots.Panel(title, curves, (claims[names["tanh"]].epsilon or (None,))[0]))
    return plots.accuracy_against_epsilon(evidence, panels)


def figure_2(evidence: Evidence) -> Figure:
    """Draw accuracy over (s, T, o), a row per data set: the paper's scatter, then against each parameter alone."""
    rows = [d for d in plots.DATASETS if evidence.recorded(FIG_2, f"{PAPER}/{d}_triple")]
    drawn = plots.figure(plots.WIDTH, 2.9 * len(rows) + 0.4)
    grid = drawn.add_gridspec(len(rows), 4, wspace=0.1, width_ratios=(1.35, 1, 1, 1))
    for row, dataset in enumerate(rows):
        experiment = f"{PAPER}/{dataset}_triple"
        planned, runs = evidence.planned(FIG_2, experiment), evidence.recorded(FIG_2, experiment)
        top = measures.top_triples(runs) if measures.enough_triples(planned) else Runs()
        space = drawn.add_subplot(grid[row, 0], projection="3d")
        _scatter_3d(drawn, space, runs, f"{plots.DATASETS[dataset]}, {plots.runs_text(planned)}")
        for column, field in enumerate(TRIPLE, start=1):
            axes = drawn.add_subplot(grid[row, column])
            claimed = _claimed_mean(experiment, field) if evidence.scale == PAPER_SCALE else None
            _against_one(axes, runs, top, field, claimed)
            if column == 1:
                axes.set_ylabel("test accuracy (%)")
    plots.one_legend(drawn)
    return drawn


def _claimed_mean(experiment: str, field: str) -> float | None:
    matching = claims_of(PAPER, item="fig-2", alone=experiment, quantity=TRIPLE[field][1])
    return matching[0].aim if matching else None


def _values(runs: Runs, field: str) -> list[float]:
    return [float(run.field(field)) for run in runs]


def _scatter_3d(drawn: Figure, axes: Any, runs: Runs, title: str) -> None:
    places = [_values(runs, field) for field in TRIPLE]
    points = axes.scatter(*places, c=runs.finals("test_accuracy"), cmap="YlGn", edgecolors="k", linewidths=0.3)
    for name, (label, _) in zip(("x", "y", "z"), TRIPLE.values(), strict=True):
        getattr(axes, f"set_{name}label")(label.rpartition(" ")[2], labelpad=-6)
        getattr(axes, f"{name}axis").set_tick_params(pad=-3, labelsize=8)
    axes.set_title(title)
    drawn.colorbar(points, ax=axes, shrink=0.6, pad=0.02, label="test accuracy (%)", location="left")


def _against_one(axes: Axes, runs: Runs, top: Runs, field: str, claimed: float | None) -> None:
    axes.scatter(_values(runs, field), runs.finals("test_accuracy"), s=14, color="0.6", label="triples")
    title = "" if claimed is None else f"claimed: {claimed:.3g}"
    if top:
        mean = statistics.fmean(_values(top, field))
        axes.scatter(_values(top, field), top.finals("test_accuracy"), s=18, color="C2", label="best tenth")
        axes.axvline(mean, color="C2", linewidth=1, label="mean of the best tenth")
        title = f"best {len(top)}: {mean:.3g}, {title}"
    if claimed is not None:
        axes.axvline(claimed, label="claimed mean of the best tenth", **_DASHED)
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(TRIPLE[field][0])


_SCENARIOS = {  # look of the curve: experiment, label
    "SGD, ReLU": ("mnist_sgd_relu_norms", "SGD, ReLU"),
    "SGD, tanh": ("mnist_sgd_tanh_norms", "SGD, tanh"),
    "ReLU": ("mnist_relu_norms", "DP-SGD, ReLU"),
    "tanh": ("mnist_tanh_norms", "DP-SGD, tanh"),
}


def figure_4(evidence: Evidence) -> Figure:
    """Draw mean per-example gradient norms before clipping by step; dashed, five times the level of SGD with ReLU."""

    def smooth(run: PlannedRun) -> tuple[list[int], list[float]]:
        steps, norms = mean_gradient_norms(run)
        return steps, triangular_average(norms)

    drawn = _by_step(evidence, _SCENARIOS, smooth)
    (axes,) = drawn.axes
    if evidence.scale == PAPER_SCALE and (sgd := _of_scenario(evidence, "SGD, ReLU").recorded):
        five = 5 * statistics.fmean(level(*mean_gradient_norms(run)) for run in sgd)
        axes.axhline(five, label="claimed: DP-SGD with ReLU is above 5 x SGD with ReLU", **_DASHED)
    for clip in {float(run.field("clipping.norm")) for run in _of_scenario(evidence, "ReLU").recorded}:
        axes.axhline(clip, color="grey", linestyle=":", linewidth=1, label=f"clipping norm {clip:g}")
    plots.log_axis(axes, "y")
    axes.set_ylabel("mean per-example gradient norm")
    plots.one_legend(drawn, 2)
    return drawn


def figure_5(evidence: Evidence) -> Figure:
    """Draw the mean norm of an example's first activations by step, for the three scenarios of the paper."""
    drawn = _by_step(evidence, ("SGD, ReLU", "ReLU", "tanh"), first_activation_norms)
    drawn.axes[0].set_ylim(bottom=0)
    drawn.axes[0].set_ylabel("norm of the first convolution's activations")
    plots.one_legend(drawn)
    return drawn


def _by_step(evidence: Evidence, scenarios: Iterable[str], norms: NormsByStep) -> Figure:
    drawn = plots.figure(plots.WIDTH, 4.6)
    axes = drawn.subplots()
    for place, scenario in enumerate(scenarios):
        planned = _of_scenario(evidence, scenario)
        if not planned.recorded:
            continue
        label, (colour, marker) = f"{_SCENARIOS[scenario][1]}, {plots.runs_text(planned)}", plots.LOOKS[scenario]
        of_runs = [norms(run) for run in planned.recorded]
        found = plots.band_of([([float(step) for step in steps], values) for steps, values in of_runs])
        found.draw(axes, colour, linewidth=1, **plots.spaced(found.x, place, marker), label=label)
    axes.set_xlabel("step")
    return drawn


def _of_scenario(evidence: Evidence, scenario: str) -> Runs:
    return evidence.planned(FIG_4, f"{PAPER}/{_SCENARIOS[scenario][0]}")


def class_accuracy(evidence: Evidence) -> Figure:
    """Draw last-epoch accuracy by class, ReLU and tanh: mean and range over the runs, a panel per data set."""
    planned = {
        dataset: {label: evidence.planned(FIG_3, f"{PAPER}/{dataset}_{label.lower()}") for label in ("tanh", "ReLU")}
        for dataset in plots.DATASETS
    }
    few = {d: "" if any(of.recorded for of in by_label.values()) else "not run" for d, by_label in planned.items()}
    drawn, panels = plots.panel_each(3.8, few)
    for axes, dataset in panels:
        for shift, (label, of) in zip((-0.12, 0.12), planned[dataset].items(), strict=True):
            if of.recorded:
                _by_class(axes, of, label, shift)
        axes.set(xlabel="class", xticks=range(10))
        plots.legend_below(axes)
    drawn.axes[0].set_ylabel("test accuracy (%)")
    return drawn


def _by_class(axes: Axes, planned: Runs, label: str, shift: float) -> None:
    runs, (colour, marker) = planned.recorded, plots.LOOKS[label]
    by_run = [[float(v) for v in run.diagnostic("per_class_accuracy")[-1]] for run in runs]
    by_class = list(zip(*by_run, strict=True))
    at = [c + shift for c in range(len(by_class))]
    axes.vlines(at, [min(c) for c in by_class], [max(c) for c in by_class], color=colour, linewidth=1.5)
    std = statistics.fmean(class_accuracy_std(run, -1) for run in runs)
    text = f"{label}, {plots.runs_text(planned)}, std {std:.2f} over classes"
    axes.plot(at, [statistics.fmean(c) for c in by_class], marker, markersize=4, color=colour, label=text)

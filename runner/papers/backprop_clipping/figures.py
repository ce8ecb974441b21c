"""The figures drawn from runs. What the paper claims is hollow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from runner.accounting import sound_epsilon
from runner.aggregation.claims import claims_path, read_claims
from runner.aggregation.evidence import PAPER_SCALE, Evidence, PlannedRun
from runner.aggregation.plots import DATASETS, band, figure, mark_not_run, runs_text
from runner.papers.backprop_clipping.measures import ledger_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "backprop_clipping"
_TANH = "tempered_sigmoid/mnist_tanh"
# label: colour, marker, then (sweep, the experiments in it)
_STORY = {
    "printed (zero-out neighbours)": ("C0", "o", (("table_1", ("mnist_printed",)), ("fig_5", ("mnist_printed",)))),
    "corrected": ("C1", "s", (("repo_mnist", tuple(f"mnist_corrected_{e}" for e in ("3", "1", "02", "01"))),)),
    "joint": (
        "C2",
        "^",
        (
            ("table_1", ("mnist_joint",)),
            ("story", ("mnist_joint",)),
            ("repo_mnist", tuple(f"mnist_corrected_joint_{e}" for e in ("3", "1", "02", "01"))),
        ),
    ),
    "original bug": ("C3", "v", (("table_1", ("mnist_original_bug",)), ("story", ("mnist_original_bug",)))),
}


def story(evidence: Evidence) -> Figure:
    """MNIST: accuracy against what the mechanisms say they cost, left, and against what they cost, right."""
    drawn = figure(10.5, 4.6)
    left, right = drawn.subplots(1, 2, sharey=True)
    for axes, name, title in (
        (left, "epsilon", "ε as each of them counts"),
        (right, "epsilon_sound", "sound ε of the same runs"),
    ):
        for label, (colour, marker, sources) in _STORY.items():
            planned = [
                run
                for sweep, experiments in sources
                for experiment in experiments
                for run in evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/{experiment}")
            ]
            _points(axes, planned, name, label, colour, marker)
        tanh = evidence.planned(f"{PAPER}/table_1_copied", _TANH)
        recorded = [run for run in tanh if run.record is not None]
        if recorded:
            epsilon, middle, low, high = band(recorded, name, "test_accuracy", fmean)
            axes.plot(epsilon, middle, color="k", label=f"plain DP-SGD, tanh, {runs_text(tanh)}")
            axes.fill_between(epsilon, low, high, color="k", alpha=0.15, linewidth=0)
        if evidence.scale == PAPER_SCALE:
            x = 0.07 if axes is left else _true_epsilon_of_the_claim()
            axes.plot(
                x, 98.7, "*", markersize=12, color="C3", markerfacecolor="none", label="claimed: 98.7% at 0.07 (left)"
            )
        axes.set_xscale("log")
        axes.set_title(title)
        axes.set_xlabel("ε (δ = 1e-5)")
    left.set_ylabel("test accuracy (%)")
    drawn.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return drawn


def _true_epsilon_of_the_claim() -> float:
    """What the code behind the claimed accuracy costs."""
    run, _, actual = ledger_of(f"{PAPER}/table_1", f"{PAPER}/mnist_original_bug")
    return sound_epsilon(actual, run.config.delta)


def figure_5(evidence: Evidence) -> Figure:
    """Accuracy of algorithm 2 as printed against epsilon, and without noise, a panel a data set."""
    claims = [c for c in read_claims(claims_path(PAPER)) if c.item == "table-1" and c.quantity == "test_accuracy"]
    drawn = figure(11, 4)
    for axes, (dataset, title) in zip(drawn.subplots(1, 3), DATASETS.items(), strict=True):
        own = f"{PAPER}/{dataset}_printed"
        planned = [run for s in ("fig_5", "table_1") for run in evidence.planned(f"{PAPER}/{s}", own)]
        _points(axes, planned, "epsilon", "backprop clipping, as printed", "C0", "o")
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


def _points(axes: Axes, planned: Sequence[PlannedRun], name: str, label: str, colour: str, marker: str) -> None:
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

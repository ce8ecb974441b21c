"""Figures 3 and 4, and one of how many tries are kept, drawn from runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from runner.papers.noise_screening.measures import most_guaranteed, screened, within
from runner.papers.noise_screening.settings import DATASETS, SWEEP
from runner.report.evidence import Evidence
from runner.report.files import bound_text
from runner.report.guarantee import guaranteed
from runner.report.plots import figure, mark_not_run, runs_text
from runner.report.runs import PlannedRun, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {  # experiment: label, colour, line
    "noise_screening/{}_relu": ("DP-SGD ReLU", "C1", "-"),
    "losing_less/{}_ce": ("DP-SGD tanh", "C0", "-"),
    "noise_screening/{}_auto": ("AUTO-S", "C2", "-"),
    "noise_screening/{}_screened": ("screened", "C3", "-"),
    "noise_screening/{}_screened_momentum": ("screened, momentum", "C4", "-"),
    "noise_screening/{}_screened_public": ("screened, images apart", "C3", "--"),
    "noise_screening/{}_screened_momentum_public": ("screened, momentum, images apart", "C4", "--"),
}
SCREENED = {  # experiment: label, colour, line, of the runs whose acceptance is drawn
    "noise_screening/{}_screened": ("same settings, no momentum", "C3", "-"),
    "noise_screening/{}_screened_momentum": ("same settings, momentum 0.9", "C4", "-"),
    "noise_screening/{}_free": ("free settings, momentum 0.9", "C5", "-"),
    "noise_screening/{}_screened_public": ("no momentum, images apart", "C3", "--"),
    "noise_screening/{}_screened_momentum_public": ("momentum 0.9, images apart", "C4", "--"),
    "noise_screening/{}_free_public": ("free settings, images apart", "C5", "--"),
}


def acceptance(evidence: Evidence) -> Figure:
    """The share of an epoch's tries that is kept, against epsilon as the paper counts: what the rule does to the noise.

    Of rejection_threshold + 1 tries in a row one is always kept: the dotted line, below which no epoch can fall but for
    its first and last tries. The last epoch of a run that is not a whole one is left out: it ends with a kept update,
    and a share of few tries would say no more than that.
    """
    drawn = figure(12, 5)
    panels = drawn.subplots(1, 3, sharey=True)
    for axes, (dataset, title) in zip(panels, DATASETS.items(), strict=True):
        floors = set()
        for pattern, (label, colour, line) in SCREENED.items():
            planned = evidence.planned(SWEEP, pattern.format(dataset))
            runs = planned.recorded
            if not runs:
                continue
            whole = Runs(_whole_epochs(run) for run in runs)
            at, mean, low, high = curve(whole, "epsilon", "acceptance_rate", points=400)
            axes.plot(at, mean, line, color=colour, linewidth=1.2, label=f"{label}, {runs_text(planned)}")
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
            floors.add(1 / (1 + runs[0].job.config.screening.rejection_threshold))
        for floor in floors:
            axes.axhline(floor, color="k", linestyle=":", linewidth=0.8, label=f"least by the rule: {floor:.3f}")
        axes.set_title(title)
        axes.set_xlabel("ε of kept updates, as the paper counts")
        if floors:
            axes.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.15))
        else:
            mark_not_run(axes)
    drawn.suptitle("Screened runs of table 1: share of tries kept, mean and range of the seeds")
    panels[0].set_ylim(0, 1.03)  # most runs start at 1, which the frame would hide
    panels[0].set_ylabel("share of an epoch's tries that is kept")
    return drawn


def _whole_epochs(run: PlannedRun) -> PlannedRun:
    """The run without a last epoch of fewer tries than the first."""
    tries = run.history("tries")
    if run.record is None or len(tries) < 2 or tries[-1] - tries[-2] >= tries[0]:
        return run
    history = {name: values[:-1] for name, values in run.record["history"].items()}
    return PlannedRun(run.job, {**run.record, "history": history})


def figure_3(evidence: Evidence) -> Figure:
    """Test loss and accuracy against epsilon as the paper counts, and accuracy against the cost of all tries."""
    drawn = figure(12, 10.5)
    panels = drawn.subplots(3, 3)
    for column, (dataset, title) in enumerate(DATASETS.items()):
        methods = {pattern.format(dataset): how for pattern, how in METHODS.items()}
        planned = {experiment: evidence.planned(SWEEP, experiment) for experiment in methods}
        axes_of_rows = (("epsilon", "test_loss"), ("epsilon", "test_accuracy"), ("epsilon_sound", "test_accuracy"))
        for row, (x, y) in enumerate(axes_of_rows):
            axes = panels[row][column]
            levels: list[float] = []
            for experiment, (label, colour, line) in methods.items():
                runs = planned[experiment].recorded
                if not runs:
                    continue
                at, mean, low, high = curve(runs, x, y)
                text = f"{label}, {runs_text(planned[experiment])}"
                if x == "epsilon_sound" and screened(runs[0]):
                    text += f", guaranteed: {bound_text(most_guaranteed(runs))}"
                axes.plot(at, mean, line, color=colour, linewidth=1.2, label=text)
                axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
                levels += mean[len(mean) // 4 :]
            if levels:
                margin = 0.1 * (max(levels) - min(levels)) + 1e-3
                axes.set_ylim(min(levels) - margin, max(levels) + margin)
                below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)} if x == "epsilon_sound" else {}
                axes.legend(fontsize=6, **below)  # longer labels: below the axes they hide no curve
            else:
                mark_not_run(axes)
            axes.set_xlabel(
                "ε of all tries made, had their number been fixed"
                if x == "epsilon_sound"
                else "ε of kept updates, as the paper counts"
            )
        panels[0][column].set_title(title)
    for row, name in enumerate(("test loss", "test accuracy (%)", "test accuracy (%)")):
        panels[row][0].set_ylabel(name)
    return drawn


def curve(
    runs: Runs, x: str, y: str, most: float = 3.0, points: int = 100
) -> tuple[list[float], list[float], list[float], list[float]]:
    """x, and mean, minimum and maximum of y over the runs at equal x: [points] each, up to an epsilon (as the paper
    counts) of `most`.

    Between two epochs by linear interpolation: screened runs of one setting have their epochs at different x.
    """
    reached = runs.at(lambda run: within(run, most))
    series = [(run.history(x)[: end + 1], run.history(y)[: end + 1]) for run, end in reached]
    if not series:
        return [], [], [], []
    start, end = max(at[0] for at, _ in series), min(at[-1] for at, _ in series)
    grid = np.linspace(start, end, points if end > start else 1)
    rows = np.array([np.interp(grid, *of_one) for of_one in series])
    return grid.tolist(), rows.mean(0).tolist(), rows.min(0).tolist(), rows.max(0).tolist()


def figure_4a(evidence: Evidence) -> Figure:
    """Accuracy by learning rate."""
    return _by_setting(evidence, "noise_screening/fig_4a", "optimizer.lr", "learning rate", "linear")


def figure_4b(evidence: Evidence) -> Figure:
    """Accuracy by batch size."""
    return _by_setting(evidence, "noise_screening/fig_4b", "batch_size", "batch size", "log")


def figure_4c(evidence: Evidence) -> Figure:
    """Accuracy by initial temperature."""
    return _by_setting(
        evidence, "noise_screening/fig_4c", "screening.initial_temperature", "initial temperature Q0", "log"
    )


def figure_4d(evidence: Evidence) -> Figure:
    """Accuracy by rejection threshold."""
    return _by_setting(
        evidence, "noise_screening/fig_4d", "screening.rejection_threshold", "rejection threshold mu0", "linear"
    )


def _by_setting(evidence: Evidence, sweep: str, field: str, label: str, scale: str) -> Figure:
    """Accuracy (left) and what all tries cost (right) by a field of the config, one dot a run."""
    drawn = figure(8, 3.4)
    accuracy, cost = drawn.subplots(1, 2)
    planned = Runs(evidence.sweeps[sweep])
    runs = Runs(sorted(planned.recorded, key=lambda run: float(run.field(field))))
    at = [float(run.field(field)) for run in runs]
    accuracy.plot(at, runs.finals("test_accuracy"), "o-", color="k", markersize=4)
    accuracy.set_ylabel("accuracy (%) on the screening images")
    accuracy.margins(y=0.3)
    accuracy.set_ylim(top=min(accuracy.get_ylim()[1], 100))
    charged = (
        (runs.finals("epsilon"), "C0", "kept updates, as the paper counts"),
        (runs.finals("epsilon_sound"), "C1", "tries made, had their number been fixed"),
        ([guaranteed(run) for run in runs], "C3", "most tries allowed: sound"),
    )
    for costs, colour, text in charged:
        cost.plot(at, costs, "o-", color=colour, markersize=4, label=text)
    cost.set_ylabel("ε")
    cost.set_ylim(bottom=0)
    cost.legend()
    for axes in (accuracy, cost):
        _axis(axes, label, scale)
    accuracy.set_title(runs_text(planned), fontsize=8)
    return drawn


def _axis(axes: Axes, label: str, scale: str) -> None:
    axes.set_xscale(scale)
    axes.set_xlabel(label)

"""Figures 3 and 4, and a figure of the share of attempts that are kept, drawn from runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.claims.costs import most_guaranteed
from runner.claims.evidence import Evidence
from runner.claims.guarantee import guaranteed
from runner.claims.runs import PlannedRun, Runs
from runner.papers.noise_screening import cost, settings
from runner.papers.noise_screening.measures import screened, within
from runner.papers.noise_screening.settings import claimed_at
from runner.report.files import bound_text
from runner.report.items import Draw
from runner.report.plots import (
    DATASETS,
    MARKERS,
    Band,
    band,
    by_error,
    figure,
    legend_below,
    mark_not_run,
    name_not_drawn,
    name_not_run,
    runs_text,
    spaced,
    too_few,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {  # experiment: label, colour, line
    "noise_screening/{}_relu": ("DP-SGD, ReLU", "C1", "-"),
    "losing_less/{}_ce": ("DP-SGD, tanh", "C0", "-"),
    "noise_screening/{}_auto": ("DP-SGD, automatic clipping", "C2", "-"),
    "noise_screening/{}_screened": ("screening, no momentum", "C3", "-"),
    "noise_screening/{}_screened_momentum": ("screening, momentum 0.9", "C4", "-"),
    "noise_screening/{}_screened_momentum_kept": ("screening, momentum not restored", "C6", "-"),
    "noise_screening/{}_screened_public": ("screening, no momentum, half the images", "C3", "--"),
    "noise_screening/{}_screened_momentum_public": ("screening, momentum 0.9, half the images", "C4", "--"),
}
SCREENED = {  # experiment: label, colour, line; for the runs whose acceptance is drawn
    "noise_screening/{}_screened": ("no momentum", "C3", "-"),
    "noise_screening/{}_screened_momentum": ("momentum 0.9", "C4", "-"),
    "noise_screening/{}_screened_momentum_kept": ("momentum not restored", "C6", "-"),
    "noise_screening/{}_free": ("its own settings", "C5", "-"),
    "noise_screening/{}_screened_public": ("no momentum, half the images", "C3", "--"),
    "noise_screening/{}_screened_momentum_public": ("momentum 0.9, half the images", "C4", "--"),
    "noise_screening/{}_free_public": ("its own settings, half the images", "C5", "--"),
}
SOUND = {"mnist_sound_plain": "plain DP-SGD", "mnist_sound_screened": "screened"}
_AS_COUNTED = "ε of kept updates, as the paper counts"


def table_1(evidence: Evidence) -> Figure | None:
    """Draw the costs of accuracies above; below, the kept share of an epoch's attempts, against the claimed epsilon.

    Each data set with a recorded screened run has a column.
    """
    few = {title: "no screened run" if not _screened(evidence, key) else "" for key, title in DATASETS.items()}
    shown = {key: title for key, title in DATASETS.items() if not few[title]}
    if not shown:
        return None
    drawn = figure(6 * max(1.5, len(shown)), 9)
    above, below = drawn.subplots(2, len(shown), squeeze=False)
    for cost_axes, share_axes, (dataset, title) in zip(above, below, shown.items(), strict=True):
        cost.panel(cost_axes, evidence, dataset)
        cost_axes.set_title(title)
        legend_below(cost_axes, 0.13, fontsize=7, ncols=2)
        _acceptance(share_axes, evidence, dataset)
        legend_below(share_axes, 0.13, fontsize=7, ncols=2)
    above[0].set_ylabel("test accuracy (%)")
    below[0].set_ylabel("share of an epoch's tries that is kept")
    name_not_drawn(drawn, few)
    above_says = "accuracy at the claimed ε and at the ε that holds, screened runs on the images that screened them"
    drawn.suptitle(f"Table 1: {above_says} (above); share of tries kept (below)")
    return drawn


def _screened(evidence: Evidence, dataset: str) -> Runs:
    return Runs(run for pattern in SCREENED for run in settings.planned(evidence, pattern.format(dataset)).recorded)


def _acceptance(axes: Axes, evidence: Evidence, dataset: str) -> None:
    """Draw the share of an epoch's attempts that is kept, mean and range of the seeds.

    Of rejection_threshold + 1 attempts in a row one is always kept. The dotted line shows this share. Only an epoch's
    first and last attempts can take it below. A run's last epoch is left out if it is not whole. It ends with a kept
    update, and its share of few attempts would show no more than that.
    """
    floors = set()
    for place, (pattern, (label, colour, line)) in enumerate(SCREENED.items()):
        planned = settings.planned(evidence, pattern.format(dataset))
        if not planned.recorded:
            continue
        whole = Runs(_whole_epochs(run) for run in planned.recorded)
        text = f"{label}, {runs_text(planned)}"
        found = curve(whole, "epsilon", "acceptance_rate", points=400)
        found.draw(axes, colour, **_thin(line), **spaced(found.middle, place), label=text)
        floors.add(1 / (1 + planned[0].field("screening.rejection_threshold")))
    for floor in floors:
        axes.axhline(floor, color="k", linestyle=":", linewidth=0.8, label=f"least by the rule: {floor:.3f}")
    axes.set(xlabel=_AS_COUNTED, ylim=(0, 1.03))  # most runs start at 1, under the frame otherwise


def _whole_epochs(run: PlannedRun) -> PlannedRun:
    """Return the run without a last epoch of fewer attempts than the first."""
    tries = run.history("tries")
    if run.record is None or len(tries) < 2 or tries[-1] - tries[-2] >= tries[0]:
        return run
    history = {name: values[:-1] for name, values in run.record["history"].items()}
    return PlannedRun(run.job, {**run.record, "history": history})


def figure_3(evidence: Evidence) -> Figure:
    """Draw test loss and accuracy against the paper's epsilon, and accuracy against the cost of all attempts."""
    drawn = figure(12, 10.5)
    panels = drawn.subplots(3, 3)
    rows = (
        ("epsilon", "test_loss", "test loss"),
        ("epsilon", "test_accuracy", "test accuracy (%)"),
        ("epsilon_sound", "test_accuracy", "test accuracy (%)"),
    )
    for axes_of_row, (x, y, label) in zip(panels, rows, strict=True):
        for axes, dataset in zip(axes_of_row, DATASETS, strict=True):
            _methods(axes, evidence, dataset, x, y)
        axes_of_row[0].set_ylabel(label)
    for axes, title in zip(panels[0], DATASETS.values(), strict=True):
        axes.set_title(title)
    return drawn


def _methods(axes: Axes, evidence: Evidence, dataset: str, x: str, y: str) -> None:
    sound = x == "epsilon_sound"
    levels: list[float] = []
    for place, (pattern, (label, colour, line)) in enumerate(METHODS.items()):
        planned = settings.planned(evidence, pattern.format(dataset))
        if not planned.recorded:
            continue
        found = curve(planned.recorded, x, y)
        text = f"{label}, {runs_text(planned)}"
        if sound and screened(planned[0]):
            text += f", guaranteed: {bound_text(most_guaranteed(planned))}"
        found.draw(axes, colour, **_thin(line), **spaced(found.middle, place), label=text)
        levels += found.middle[len(found.middle) // 4 :]
    axes.set_xlabel("ε of all tries made, had their number been fixed" if sound else _AS_COUNTED)
    if not levels:
        mark_not_run(axes)
        return
    margin = 0.1 * (max(levels) - min(levels)) + 1e-3
    axes.set_ylim(min(levels) - margin, max(levels) + margin)
    if y == "test_accuracy":
        by_error(axes)  # methods differ by tenths of a point near 98, and the first epochs are at 75
    if sound:  # the last row, which shows the sound epsilon
        legend_below(axes, 0.2, fontsize=7)


def at_a_sound_epsilon(evidence: Evidence) -> Figure:
    """Draw screened and plain runs at one sound epsilon: accuracy by epoch against it, and each run's last."""
    drawn = figure(9, 4)
    by_epoch, last = drawn.subplots(1, 2, width_ratios=(2, 1))
    for place, (name, label) in enumerate(SOUND.items()):
        planned = evidence.planned("noise_screening/sound", f"noise_screening/{name}")
        runs, colour = planned.recorded, f"C{3 * place}"
        if not runs:
            name_not_run(by_epoch, label, colour)
            continue
        found = band(runs, "epsilon_sound", "test_accuracy")
        text = f"{label}, {runs_text(planned)}"
        found.draw(by_epoch, colour, **spaced(found.middle, place), label=text)
        values = runs.finals("test_accuracy")
        last.plot([place] * len(values), values, MARKERS[place], color=colour, markerfacecolor="none")
        last.hlines(sum(values) / len(values), place - 0.2, place + 0.2, color=colour)
    by_epoch.set(xlabel="ε of all tries made", ylabel="test accuracy (%)")
    if by_epoch.dataLim.y1 > 0:
        by_epoch.set_ylim(by_epoch.dataLim.y1 - 10, by_epoch.dataLim.y1)
        by_error(by_epoch)
    by_epoch.legend(loc="lower right")
    last.set(xticks=range(len(SOUND)), xticklabels=SOUND.values(), xlim=(-0.5, len(SOUND) - 0.5))
    last.set_title("last epoch, each run and the mean")
    return drawn


def _thin(line: str) -> dict[str, Any]:
    return {"linestyle": line, "linewidth": 1.2}


def curve(runs: Runs, x: str, y: str, points: int = 100) -> Band:
    """Return mean, minimum and maximum of y over the runs at equal x, up to the claimed epsilon as the paper counts.

    Values between two epochs are interpolated linearly, as screened runs of one setting have epochs at different x.
    """
    reached = runs.at(lambda run: within(run, claimed_at()))
    series = [(run.history(x)[: end + 1], run.history(y)[: end + 1]) for run, end in reached]
    if not series:
        return Band([], [], [], [])
    start, end = max(at[0] for at, _ in series), min(at[-1] for at, _ in series)
    grid = np.linspace(start, end, points if end > start else 1)
    rows = np.array([np.interp(grid, *of_one) for of_one in series])
    return Band(grid.tolist(), rows.mean(0).tolist(), rows.min(0).tolist(), rows.max(0).tolist())


def by_setting(sweep: str, field: str, label: str, scale: str, also: str = "") -> Draw:
    """Return a figure of accuracy (left) and the cost of all attempts (right) by a field, one dot per run.

    It is not drawn if fewer than half of the field's values have a run.

    Args:
        also: an experiment of table 1 whose runs are at one more value.
    """

    def draw(evidence: Evidence) -> Figure | None:
        planned = Runs((*evidence.sweeps[f"noise_screening/{sweep}"], *settings.planned(evidence, also)))
        if too_few(list(planned.by_value(field).values())):
            return None
        drawn = figure(8, 3.4)
        accuracy, costs = drawn.subplots(1, 2)
        runs = Runs(run for of in planned.recorded.by_value(field).values() for run in of)
        at = [float(run.field(field)) for run in runs]
        accuracy.plot(at, runs.finals("test_accuracy"), "o", color="k", markersize=4)
        accuracy.margins(y=0.3)
        accuracy.set(ylabel="accuracy (%) on the screening images", xscale=scale, xlabel=label)
        accuracy.set_ylim(top=min(accuracy.get_ylim()[1], 100))
        accuracy.set_title(f"{planned.recorded_of} runs, a dot each", fontsize=8)
        charged = (
            (runs.finals("epsilon"), "oC0", "kept updates, as the paper counts"),
            (runs.finals("epsilon_sound"), "sC1", "tries made, had their number been fixed"),
            ([guaranteed(run) for run in runs], "^C3", "most tries allowed: sound"),
        )
        for spent, style, text in charged:
            costs.plot(at, spent, style, markersize=4, label=text)
        costs.set(ylabel="ε", xscale=scale, xlabel=label)
        costs.set_ylim(bottom=0)
        legend_below(costs, 0.2, fontsize=7)
        return drawn

    return draw


figure_4a = by_setting("fig_4a", "optimizer.lr", "learning rate", "linear")
figure_4b = by_setting("fig_4b", "batch_size", "batch size", "log", also="noise_screening/mnist_free")
figure_4c = by_setting("fig_4c", "screening.initial_temperature", "initial temperature Q0", "log")
figure_4d = by_setting("fig_4d", "screening.rejection_threshold", "rejection threshold mu0", "linear")

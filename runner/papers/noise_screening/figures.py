"""Figures 3 and 4, and a figure of the share of attempts that are kept, drawn from runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.runs import Runs
from runner.papers.noise_screening import cost, settings
from runner.papers.noise_screening.measures import screened
from runner.papers.noise_screening.settings import claimed_at
from runner.report import plots
from runner.report.files import bound_text
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCREENED = [pattern for pattern, label in cost.METHODS.items() if label.startswith("screening")]
CURVES = [pattern for pattern in cost.METHODS if not pattern.endswith("_free")]
SOUND = {
    "mnist_sound_plain": ("DP-SGD, tanh", "tanh"),
    "mnist_sound_screened_kept": ("screening", "screening, momentum not restored"),
    "mnist_sound_screened": ("screening,\nmomentum restored", "screening"),
}


def table_1(evidence: Evidence) -> Figure | None:
    """Draw the accuracies at both epsilons, a column for each data set with a recorded screened run."""
    few = {title: "no screened run" if not _screened(evidence, key) else "" for key, title in plots.DATASETS.items()}
    shown = {key: title for key, title in plots.DATASETS.items() if not few[title]}
    if not shown:
        return None
    drawn = plots.figure(plots.WIDTH, 5.2)
    (row,) = drawn.subplots(1, len(shown), squeeze=False)
    for axes, (dataset, title) in zip(row, shown.items(), strict=True):
        cost.panel(axes, evidence, dataset)
        axes.set_title(title)
    row[0].set_ylabel("test accuracy (%)")
    plots.name_not_drawn(drawn, few)
    plots.one_legend(drawn, 2)
    drawn.suptitle("Table 1: accuracies with both ε, screened runs on their screening images")
    return drawn


def _screened(evidence: Evidence, dataset: str) -> Runs:
    return Runs(
        run
        for pattern, _, _ in _with_half(SCREENED)
        for run in settings.planned(evidence, pattern.format(dataset)).recorded
    )


def _with_half(patterns: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return experiments with their method and line: after each, dashed, the one with half of the images."""
    return [
        (named, cost.METHODS[pattern], line)
        for pattern in patterns
        for named, line in ((pattern, "-"), (cost.HALF.format(pattern), "--"))
    ]


def _draw_curve(axes: Axes, found: plots.Band, method: str, line: str, sizes: str) -> None:
    colour, marker = plots.LOOKS[method]
    markers = plots.spaced(found.middle, list(plots.LOOKS).index(method), marker)
    label = method if line == "-" else f"{method}, half the images"
    found.draw(axes, colour, linestyle=line, linewidth=1.2, **markers, label=f"{label}, {sizes}")


def figure_3(evidence: Evidence) -> Figure:
    """Draw test loss and accuracy against the paper's epsilon, and accuracy against the cost of all attempts."""
    drawn = plots.figure(plots.WIDTH, 9.6)
    panels = drawn.subplots(3, 3)
    rows = (
        ("epsilon", "test_loss", "test loss"),
        ("epsilon", "test_accuracy", "test accuracy (%)"),
        ("epsilon_spent", "test_accuracy", "test accuracy (%)"),
    )
    for axes_of_row, (x, y, label) in zip(panels, rows, strict=True):
        for axes, dataset in zip(axes_of_row, plots.DATASETS, strict=True):
            _methods(axes, evidence, dataset, x, y)
        axes_of_row[0].set_ylabel(label)
    for axes, title in zip(panels[0], plots.DATASETS.values(), strict=True):
        axes.set_title(title)
    plots.one_legend(drawn, 2)
    drawn.suptitle("Figure 3: loss and accuracy against ε, mean and range")
    return drawn


def _methods(axes: Axes, evidence: Evidence, dataset: str, x: str, y: str) -> None:
    sound = x == "epsilon_spent"
    levels: list[float] = []
    guarantees = []
    for pattern, method, line in _with_half(CURVES):
        planned = settings.planned(evidence, pattern.format(dataset))
        if not planned.recorded:
            continue
        found = curve(planned.recorded, x, y)
        if sound and screened(planned[0]):
            guarantees.append(planned.largest("epsilon_sound"))
        _draw_curve(axes, found, method, line, cost.sizes(evidence, pattern))
        levels += found.middle[len(found.middle) // 4 :]
    axes.set_xlabel("ε if the number of attempts\nhad been fixed beforehand" if sound else plots.AS_PAPER)
    if guarantees:
        axes.set_title(f"screening: sound ε = {bound_text(max(guarantees))}", fontsize=8)
    if not levels:
        plots.mark_not_run(axes)
        return
    margin = 0.1 * (max(levels) - min(levels)) + 1e-3
    axes.set_ylim(min(levels) - margin, max(levels) + margin)
    if y == "test_accuracy":
        plots.by_error(axes)  # methods differ by tenths of a point near 98, and the first epochs are at 75


def at_a_sound_epsilon(evidence: Evidence) -> Figure:
    """Draw screened and plain runs at one sound epsilon: accuracy by epoch against it, and each run's last."""
    drawn = plots.figure(plots.WIDTH, 4)
    by_epoch, last = drawn.subplots(1, 2, width_ratios=(2, 1))
    for place, (name, (label, look)) in enumerate(SOUND.items()):
        planned = evidence.planned("noise_screening/sound", f"noise_screening/{name}")
        runs, (colour, marker) = planned.recorded, plots.LOOKS[look]
        if not runs:
            plots.name_not_run(by_epoch, label, colour)
            continue
        found = plots.band(runs, "epsilon_sound", "test_accuracy")
        text = f"{label}, {plots.runs_text(planned)}"
        found.draw(by_epoch, colour, **plots.spaced(found.middle, place, marker), label=text)
        values = runs.finals("test_accuracy")
        last.plot([place] * len(values), values, marker, color=colour, markerfacecolor="none")
        last.hlines(sum(values) / len(values), place - 0.2, place + 0.2, color=colour)
    by_epoch.set(xlabel=f"{plots.SOUND}, all attempts charged", ylabel="test accuracy (%)")
    if by_epoch.dataLim.y1 > 0:
        by_epoch.set_ylim(by_epoch.dataLim.y1 - 10, by_epoch.dataLim.y1)
        plots.by_error(by_epoch)
    by_epoch.legend(loc="lower right")
    last.set(
        xticks=range(len(SOUND)), xticklabels=[label for label, _ in SOUND.values()], xlim=(-0.5, len(SOUND) - 0.5)
    )
    last.set_title("last epoch, each run and the mean")
    return drawn


def curve(runs: Runs, x: str, y: str, points: int = 100) -> plots.Band:
    """Return mean, minimum and maximum of y over the runs at equal x, up to the claimed epsilon as the paper counts.

    Values between two epochs are interpolated linearly, as screened runs of one setting have epochs at different x.
    """
    reached = runs.at(lambda run: run.last_within(claimed_at(), "epsilon"))
    series = [(run.history(x)[: end + 1], run.history(y)[: end + 1]) for run, end in reached]
    if not series:
        return plots.Band([], [], [], [])
    start, end = max(at[0] for at, _ in series), min(at[-1] for at, _ in series)
    grid = np.linspace(start, end, points if end > start else 1)
    rows = np.array([np.interp(grid, *of_one) for of_one in series])
    return plots.Band(grid.tolist(), rows.mean(0).tolist(), rows.min(0).tolist(), rows.max(0).tolist())


def by_setting(
    sweep: str,
    field: str,
    label: str,
    scale: str,
    claimed: Callable[[Axes, Runs, str], object],
    evidence: Evidence,
    *,
    also: str = "",
) -> Figure | None:
    """Draw accuracy (left) and the cost of all attempts (right) by a field, one dot per run.

    It is not drawn if fewer than half of the field's values have a run.

    Args:
        claimed: draws the paper's claim about an item into the panel of accuracies.
        also: an experiment of table 1 whose runs are at one more value.
    """
    planned = Runs((*evidence.sweeps[f"noise_screening/{sweep}"], *settings.planned(evidence, also)))
    if plots.too_few(list(planned.by_value(field).values())):
        return None
    drawn = plots.figure(plots.WIDTH, 4)
    accuracy, costs = drawn.subplots(1, 2)
    runs = Runs(run for of in planned.recorded.by_value(field).values() for run in of)
    at = [float(run.field(field)) for run in runs]
    text = f"{_METHOD}, {plots.runs_text(planned)}"
    colour, marker = plots.LOOKS[_METHOD]
    accuracy.plot(at, runs.finals("test_accuracy"), marker, color=colour, markersize=5, label=text)
    if evidence.scale == PAPER_SCALE:
        claimed(accuracy, runs, sweep.replace("_", "-"))
    accuracy.margins(y=0.3)
    accuracy.set(ylabel="accuracy (%), screening images", xlabel=label)
    accuracy.set_ylim(top=min(accuracy.get_ylim()[1], 100))
    charged = (
        (runs.finals("epsilon"), "oC0", "kept updates, as the paper counts"),
        (runs.finals("epsilon_spent"), "sC1", "attempts made, had their number been fixed"),
        (runs.finals("epsilon_sound"), "^C3", "most attempts allowed: sound"),
    )
    for spent, style, text in charged:
        costs.plot(at, spent, style, markersize=4, label=text)
    costs.set(ylabel="ε, by three counts", xlabel=label)
    costs.set_ylim(bottom=0)
    for axes in (accuracy, costs):
        if scale == "log":
            plots.log_axis(axes, "x", () if field.startswith("screening") else sorted(set(at)))
        plots.legend_below(axes, 0.2)
    return drawn


_METHOD = "screening, momentum 0.9"


def _best(item: str, quantity: str) -> float:
    """Return the claimed best value of figure 4's field."""
    (claim,) = claims_of("noise_screening", item=item, quantity=quantity)
    assert claim.aim is not None
    return claim.aim


def _claimed_rate(axes: Axes, _: Runs, item: str) -> None:
    """Draw the best learning rate, its accuracy and the lowest accuracy that the paper states."""
    rate, lowest = _best(item, "best learning rate"), _best(item, "lowest accuracy for learning rates 0.1 to 2")
    accuracy = _best(item, "test_accuracy")
    text = f"claimed best: {accuracy:g}% at {rate:g}"
    axes.plot(rate, accuracy, color=plots.LOOKS[_METHOD][0], label=text, **plots.CLAIMED)
    axes.axhline(lowest, color="grey", linestyle="--", linewidth=1, label=f"claimed for all: above {lowest:g}%")


def _claimed_batch(axes: Axes, _: Runs, item: str) -> None:
    size = _best(item, "best batch size")
    axes.axvline(size, color="grey", linestyle="--", linewidth=1, label=f"claimed best: {size:g}")


def _claimed_equal(axes: Axes, runs: Runs, item: str) -> None:
    """Draw one accuracy for all values that the paper states to be equal: the mean of the runs."""
    (claim,) = claims_of("noise_screening", item=item, quantity="range of accuracy")
    values = {value: of for value, of in runs.by_value(claim.by).items() if value >= (claim.among or 0)}
    if values:
        mean = fmean(accuracy for of in values.values() for accuracy in of.finals("test_accuracy"))
        text = f"claimed: no change at an {claim.method.partition(', ')[2]}"
        axes.hlines(mean, min(values), max(values), color="grey", linestyle="--", linewidth=1, label=text)


figure_4a = partial(by_setting, "fig_4a", "optimizer.lr", "learning rate", "linear", _claimed_rate)
figure_4b = partial(
    by_setting, "fig_4b", "batch_size", "batch size", "log", _claimed_batch, also="noise_screening/mnist_free"
)
figure_4c = partial(
    by_setting, "fig_4c", "screening.initial_temperature", "initial temperature Q₀", "log", _claimed_equal
)
figure_4d = partial(
    by_setting, "fig_4d", "screening.rejection_threshold", "rejection threshold μ₀", "linear", _claimed_equal
)

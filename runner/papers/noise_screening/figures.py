"""Figures 3 and 4, and those of table 1 and of the runs at a sound epsilon."""

import math
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from runner.claims.claim import Claim
from runner.claims.evidence import PAPER_SCALE, Evidence, Runs, grouped
from runner.papers.noise_screening import measures
from runner.papers.noise_screening.measures import claimed_at, screened
from runner.papers.noise_screening.theorem_1 import lower_bound, worst
from runner.report import plots
from runner.report.formats import bound_text, number
from runner.report.papers import claims_of

_LOOKS = {  # reading of screening, or its own settings: the look; that of another method is named like it
    "momentum 0.9": "screening, momentum 0.9",
    "momentum 0.9, not restored on rejection": "screening, momentum not restored",
    "no momentum, as printed": "screening",
    "Screening, its own settings": "screening, its own settings",
}
SOUND = {
    "mnist_sound_plain": ("DP-SGD, tanh", "tanh"),
    "mnist_sound_screened_kept": ("screening,\nnot restored", "screening, momentum not restored"),
    "mnist_sound_screened": ("screening,\nrestored", "screening"),
}


def look(claim: Claim) -> tuple[str, str]:
    """Return the colour and marker of a claim's method."""
    name = claim.reading or claim.method
    return plots.LOOKS[_LOOKS.get(name) or name.removeprefix("DP-SGD, ")]


def private_methods(evidence: Evidence, dataset: str) -> list[tuple[Claim, Runs]]:
    """Return the private methods of table 1 in its order, each with its planned runs in one reading.

    Of several readings, this is the one that counts, or the first that has a run if that one has none.
    """
    claims = claims_of("noise_screening", item="table-1", quantity="test_accuracy", dataset=measures.DATASETS[dataset])
    private = [claim for claim in claims if claim.epsilon and claim.epsilon[0] < math.inf]
    chosen = []
    for claims in grouped(private, lambda claim: claim.method).values():
        readings = [(claim, measures.planned(evidence, claim.alone)) for claim in claims]
        chosen.append(next((pair for pair in readings if pair[1].recorded), readings[0]))
    return chosen


def table_1(evidence: Evidence) -> "plots.Figure":
    """Draw each private method's accuracies at the claimed epsilon, every run and the mean, a panel per data set.

    A row names the sound epsilon of its runs. Below is a lower bound on the true epsilon of kept updates at these
    settings, under the worst rule found for theorem 1.
    """
    figure, panels = plots.panel_each(4.6)
    for dataset, axes in panels.items():
        _accuracies(axes, evidence, dataset)
    plots.one_legend(figure)
    return figure


def _accuracies(axes: "plots.Axes", evidence: Evidence, dataset: str) -> None:
    paper_scale, rows = evidence.scale == PAPER_SCALE, private_methods(evidence, dataset)
    for place, (claim, planned) in enumerate(rows):
        colour, marker = look(claim)
        texts = ["not run"]
        if reached := planned.recorded.at(lambda run: run.last_within(claimed_at(), "epsilon")):
            accuracies = reached.values("test_accuracy")
            axes.plot(accuracies, [place + 0.1] * len(accuracies), "|", color=colour, markersize=9)
            axes.plot(fmean(accuracies), place + 0.1, marker, color=colour)
            sound = (planned if screened(planned[0]) else reached).largest("epsilon_sound")
            texts = [plots.runs_text(planned), f"{plots.SOUND} {bound_text(sound)}"]
        if paper_scale and claim.aim is not None:
            axes.plot(claim.aim, place - 0.1, color=colour, **plots.CLAIMED)
        where: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "fontsize": 8, "va": "center"}
        axes.text(0.02, place - 0.36, ", ".join(texts), **where)
        if claim.reading:
            axes.text(0.02, place + 0.36, claim.reading, **where)
    styles = {"a run": {"marker": "|"}, "mean": {"marker": "o"}, "claimed": plots.CLAIMED}
    for label, style in styles.items() if paper_scale else ():
        plots.name_once(axes, label, **{"color": plots.GREY, "linestyle": ""} | style)
    least = lower_bound(measures.DATASETS[dataset], worst(measures.DATASETS[dataset]))
    axes.set(title=plots.DATASETS[dataset], ylim=(len(rows) - 0.4, -0.6))
    worst_rule = f"worst rule found: true ε ≥ {number(least, bound='lower')}"
    axes.set_xlabel(f"test accuracy (%), claimed ε = {claimed_at():g}\n{worst_rule}", fontsize=8)
    axes.margins(x=0.12)
    axes.set_yticks(range(len(rows)), [claim.method for claim, _ in rows])
    axes.tick_params(labelleft=dataset == next(iter(plots.DATASETS)))


def figure_3(evidence: Evidence) -> "plots.Figure":
    """Draw test loss, then test accuracy, against the paper's epsilon, and above it the sound one of plain runs."""
    figure = plots.figure(plots.WIDTH, 7)
    quantities = {"test_loss": "test loss", "test_accuracy": "test accuracy (%)"}
    for row, (y, label) in zip(figure.subplots(2, len(plots.DATASETS)), quantities.items(), strict=True):
        row[0].set_ylabel(label)
        for axes, dataset in zip(row, plots.DATASETS, strict=True):
            _methods(axes, evidence, dataset, y)
    plots.one_legend(figure, 3)
    return figure


def _methods(axes: "plots.Axes", evidence: Evidence, dataset: str, y: str) -> None:
    levels: list[float] = []
    shown = [pair for pair in private_methods(evidence, dataset) if "own settings" not in pair[0].method]
    for place, (claim, planned) in enumerate(shown):
        colour, marker = look(claim)
        if y == "test_accuracy" and evidence.scale == PAPER_SCALE and claim.aim is not None:
            axes.plot(claimed_at(), claim.aim, color=colour, **plots.CLAIMED)
            plots.name_once(axes, "claimed", color=plots.GREY, **plots.CLAIMED)
            levels.append(claim.aim)
        if planned.recorded:
            band = _curve(planned.recorded, y)
            label = ", ".join(filter(None, (claim.method, claim.reading)))
            band.draw(axes, (colour, marker), place, label=label)
            levels += band.middle[len(band.middle) // 4 :]
    plots.finish_panel(axes, plots.DATASETS[dataset], [(claim.method, planned) for claim, planned in shown], levels)
    axes.set_xlim(0.0, 3.0)
    recorded = Runs(run for _, planned in shown for run in planned.recorded)
    plots.sound_axis(axes, Runs(run for run in recorded if not screened(run)), "without screening")
    if sound := [run.final("epsilon_sound") for run in recorded if screened(run)]:
        where: dict[str, Any] = {"transform": axes.transAxes, "ha": "right", "fontsize": 8}
        text = f"screening: {plots.SOUND} {bound_text(max(sound))}"
        axes.text(0.98, 0.93 if y == "test_loss" else 0.03, text, **where)


def sound_runs(evidence: Evidence) -> "plots.Figure":
    """Draw screened and plain runs at one sound epsilon: accuracy by epoch against it, and each run's last."""
    figure = plots.figure(plots.WIDTH, 4)
    by_epoch, last = figure.subplots(1, 2, width_ratios=(2, 1))
    for place, (name, (label, look)) in enumerate(SOUND.items()):
        planned = evidence.planned("noise_screening/sound", f"noise_screening/{name}")
        runs, (colour, marker) = planned.recorded, plots.LOOKS[look]
        if not runs:
            last.text(place, 0.5, "not run", transform=last.get_xaxis_transform(), ha="center", color=plots.GREY)
            continue
        text = f"{label}, {plots.runs_text(planned)}".replace("\n", " momentum ")
        dashes = "--" if look == "screening" else "-"  # as both readings have one colour
        band = plots.band(runs, "epsilon_sound", "test_accuracy")
        band.draw(by_epoch, plots.LOOKS[look], place, linestyle=dashes, label=text)
        values = runs.finals("test_accuracy")
        last.plot([place] * len(values), values, marker, color=colour, markerfacecolor="none")
        last.hlines(sum(values) / len(values), place - 0.2, place + 0.2, color=colour)
    by_epoch.set(xlabel=f"{plots.SOUND}, all attempts charged")
    if by_epoch.dataLim.y1 > 0:
        by_epoch.set_ylim(by_epoch.dataLim.y1 - 10, by_epoch.dataLim.y1)
        plots.scale_by_error(by_epoch)
    plots.one_legend(figure)
    last.set_xticks(range(len(SOUND)), [label for label, _ in SOUND.values()])
    last.set(xlim=(-0.5, len(SOUND) - 0.5), title="last epoch, each run and the mean")
    return figure


def _curve(runs: Runs, quantity: str) -> plots.Band:
    """Return mean, minimum and maximum of a column at a hundred equal epsilons, up to the claimed one, as counted.

    Values between two epochs are interpolated linearly, as screened runs of one setting have epochs at different x.
    """
    reached = runs.at(lambda run: run.last_within(claimed_at(), "epsilon"))
    series = [(run.history("epsilon")[: end + 1], run.history(quantity)[: end + 1]) for run, end in reached]
    if not series:
        return plots.Band([], [], [], [], 0)
    start, end = max(epsilons[0] for epsilons, _ in series), min(epsilons[-1] for epsilons, _ in series)
    grid = np.linspace(start, end, 100 if end > start else 1)
    rows = np.array([np.interp(grid, *epochs) for epochs in series])
    return plots.Band(grid.tolist(), rows.mean(0).tolist(), rows.min(0).tolist(), rows.max(0).tolist(), len(series))


def accuracy_and_costs(
    sweep: str,
    field: str,
    label: str,
    scale: str,
    claimed: "Callable[[plots.Axes, Runs, str], object]",
    evidence: Evidence,
    *,
    also: str = "",
) -> "plots.Figure | None":
    """Draw accuracy (left) and the cost of all attempts (right) by a field, one dot per run, unless too few have run.

    `claimed` draws the paper's claim about an item. `also`: an experiment of table 1 whose runs are at one more value.
    """
    leading = Runs(evidence.sweeps.get(f"noise_screening/{sweep}_kept", ()))  # the reading that leads, if it was run
    first = leading if leading.recorded else evidence.sweeps[f"noise_screening/{sweep}"]
    planned = Runs((*first, *measures.planned(evidence, also)))
    if plots.too_few(list(planned.groups_by(field).values())):
        return None
    figure = plots.figure(plots.WIDTH, 4)
    accuracy, costs = figure.subplots(1, 2)
    by_value = planned.recorded.groups_by(field)
    runs = Runs(run for group in by_value.values() for run in group)
    values = [float(run.field(field)) for run in runs]
    text = f"{_METHOD}, {plots.runs_text(planned)}"
    colour, marker = plots.LOOKS[_METHOD]
    accuracy.plot(values, runs.finals("test_accuracy"), marker, color=colour, markersize=5, label=text)
    means = {value: fmean(group.finals("test_accuracy")) for value, group in by_value.items()}
    accuracy.plot(list(means), list(means.values()), color=colour, linewidth=1, label="mean of the runs at a value")
    if evidence.scale == PAPER_SCALE:
        claimed(accuracy, runs, sweep.replace("_", "-"))
    accuracy.margins(y=0.3)
    accuracy.set(ylabel="accuracy (%), screening images", xlabel=label)
    accuracy.set_ylim(top=min(accuracy.get_ylim()[1], 100))
    charged = (
        ("epsilon", "oC0", f"kept updates: {plots.AS_PAPER}"),
        ("epsilon_spent", "sC4", "attempts made, had their number been fixed"),
        ("epsilon_sound", "^C1", f"most attempts allowed: {plots.SOUND}"),
    )
    for name, style, text in charged:
        costs.plot(values, runs.finals(name), style, markersize=4, label=text)
    costs.set(ylabel="ε, by three counts", xlabel=label)
    costs.set_ylim(bottom=0)
    for axes in (accuracy, costs):
        if scale == "log":
            plots.log_axis(axes, "x", () if field.startswith("screening") else sorted(set(values)))
        plots.legend_below(axes, 0.2)
    return figure


_METHOD = "screening, momentum 0.9"
_GREY_DASHES: dict[str, Any] = {"color": "grey", "linestyle": "--", "linewidth": 1}


def _best(item: str, quantity: str) -> float:
    """Return the claimed best value of figure 4's field."""
    (claim,) = claims_of("noise_screening", item=item, quantity=quantity)
    assert claim.aim is not None
    return claim.aim


def _claimed_rate(axes: "plots.Axes", _: Runs, item: str) -> None:
    """Draw the best learning rate, its accuracy and the lowest accuracy that the paper states."""
    rate, lowest = _best(item, "best learning rate"), _best(item, "lowest accuracy for learning rates 0.1 to 2")
    accuracy = _best(item, "test_accuracy")
    text = f"claimed best: {accuracy:g}% at {rate:g}"
    axes.plot(rate, accuracy, color=plots.LOOKS[_METHOD][0], label=text, **plots.CLAIMED)
    axes.axhline(lowest, label=f"claimed for all: above {lowest:g}%", **_GREY_DASHES)


def _claimed_batch(axes: "plots.Axes", _: Runs, item: str) -> None:
    size = _best(item, "best batch size")
    axes.axvline(size, label=f"claimed best: {size:g}", **_GREY_DASHES)


def _claimed_equal(axes: "plots.Axes", runs: Runs, item: str) -> None:
    """Draw one accuracy for all values that the paper states to be equal: the mean of the runs."""
    (claim,) = claims_of("noise_screening", item=item, quantity="range of accuracy")
    values = {value: group for value, group in runs.groups_by(claim.by).items() if value >= (claim.among or 0)}
    if values:
        mean = fmean(accuracy for group in values.values() for accuracy in group.finals("test_accuracy"))
        text = f"claimed: no change ({claim.method.partition(', ')[2]})"
        axes.hlines(mean, min(values), max(values), label=text, **_GREY_DASHES)


figure_4a = partial(accuracy_and_costs, "fig_4a", "optimizer.lr", "learning rate", "linear", _claimed_rate)
figure_4b = partial(
    accuracy_and_costs, "fig_4b", "batch_size", "batch size", "log", _claimed_batch, also="noise_screening/mnist_free"
)
figure_4c = partial(
    accuracy_and_costs, "fig_4c", "screening.initial_temperature", "initial temperature Q₀", "log", _claimed_equal
)
figure_4d = partial(
    accuracy_and_costs, "fig_4d", "screening.rejection_threshold", "rejection threshold μ₀", "linear", _claimed_equal
)

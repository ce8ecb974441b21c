"""Figures of training dynamics: norms, gradients, curvature and confusion matrices.

The paper shows one run per curve. Here a curve is the mean and the range of all recorded runs of the setting: the
item's planned runs, and figure 3's planned runs with other seeds of the same setting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from runner.claims import diagnostics
from runner.claims.diagnostics import PRE_ACTIVATIONS, WEIGHTS
from runner.claims.evidence import Evidence
from runner.claims.runs import PlannedRun, Runs
from runner.papers.losing_less.figures import CE, OURS, PAPER
from runner.report.items import Draw
from runner.report.plots import (
    DATASETS,
    Band,
    figure,
    mark_not_run,
    name_not_drawn,
    name_not_run,
    one_legend,
    runs_text,
    spaced,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BIN = 0.5  # width of a bin of gradient_histogram; the last one holds all larger norms
CLASSES = {  # in the order of the labels
    "mnist": list("0123456789"),
    "fashion_mnist": ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}

LOSSES = {"ce": ("cross-entropy", CE), "ours": ("losing-less loss", OURS)}
LARGEST_NORM = 100.0
_SHOWN = 2.5  # percent of a class: a cell off the diagonal with less has no number
_OUTLINES = ("--", "-")  # of histograms, by the place of their loss
MORE_SEEDS = f"{PAPER}/fig_3"
DrawRuns = Callable[["Axes", Runs, str, int], object]  # the panel, the runs, their label, and the index of their loss
Adjust = Callable[["Axes", list[PlannedRun]], None]


def _runs(evidence: Evidence, sweep: str, name: str) -> Runs:
    """Return the planned runs of an experiment in a sweep, then figure 3's runs of it, each once."""
    planned = (evidence.planned(each, f"{PAPER}/{name}") for each in (f"{PAPER}/{sweep}", MORE_SEEDS))
    return Runs({run.job.run_id: run for runs in planned for run in runs}.values())


def _run(evidence: Evidence, sweep: str, name: str) -> PlannedRun | None:
    """Return the first recorded run of an experiment."""
    return next(iter(evidence.recorded(f"{PAPER}/{sweep}", f"{PAPER}/{name}")), None)


def _both(
    axes: Axes, evidence: Evidence, sweep: str, experiments: str, draw: DrawRuns, *, counted: bool = True
) -> list[PlannedRun]:
    """Draw cross-entropy's and the proposed loss's runs into one panel, and return the recorded ones.

    `experiments` has {} for the loss. Losses without a recorded run are named as not run. `counted`: labels have the
    number of runs, which one legend of many panels cannot have.
    """
    found: list[PlannedRun] = []
    for place, (loss, (label, colour)) in enumerate(LOSSES.items()):
        planned = _runs(evidence, sweep, experiments.format(loss))
        if not planned.recorded:
            name_not_run(axes, label, colour)
            continue
        draw(axes, planned.recorded, f"{label}, {runs_text(planned)}" if counted else label, place)
        found += planned.recorded
    if not found:
        mark_not_run(axes, without_ticks=True)
    return found


def _colour(place: int) -> str:
    return list(LOSSES.values())[place][1]


def one_panel(
    sweep: str, experiments: str, draw: DrawRuns, *, adjust: Adjust | None = None, legend: Any = "best", **settings: Any
) -> Draw:
    """Return a figure of one panel: both losses' runs, drawn by `draw`, and the axes' settings (`xlabel`)."""

    def figure_of(evidence: Evidence) -> Figure:
        drawn = figure(5.6, 3.8)
        axes = drawn.subplots()
        runs = _both(axes, evidence, sweep, experiments, draw)
        axes.set(**settings)
        if runs and adjust:
            adjust(axes, runs)
        axes.legend(loc=legend)
        return drawn

    return figure_of


def line(read: Callable[[PlannedRun], tuple[Any, Any]]) -> DrawRuns:
    """Return a function that draws x and y of the runs: the mean as a line, the range as an area, to the shortest."""

    def draw(axes: Axes, runs: Runs, label: str, place: int) -> None:
        read_of = [read(run) for run in runs]
        length = min(len(y) for _, y in read_of)
        ys = np.array([np.asarray(y, dtype=np.float64)[:length] for _, y in read_of])
        x = list(read_of[0][0])[:length]
        found = Band(x, ys.mean(0).tolist(), ys.min(0).tolist(), ys.max(0).tolist())
        found.draw(axes, _colour(place), 0.25, **spaced(x, place), label=label)

    return draw


def norm(kind: str, layer: int) -> DrawRuns:
    """Return a function that draws a layer's norm by epoch, from 0, before training; `layer` may be negative."""
    return line(lambda run: (diagnostics.norm_epochs(run), diagnostics.layer_norms(run, kind)[layer]))


def histogram(epochs: int | None) -> DrawRuns:
    """Return a function that draws per-example gradient norms up to 100, of the first `epochs` or all.

    The mean over the runs is drawn. The legend has the share of larger norms.
    """

    def draw(axes: Axes, runs: Runs, label: str, place: int) -> None:
        counts = np.mean([diagnostics.gradient_counts(run, epochs) for run in runs], axis=0)
        edges = np.arange(len(counts)) * _BIN
        above = 100 * counts[-1] / counts.sum() if counts.sum() else 0.0
        text = label + (f", {above:.2g}% above {LARGEST_NORM:g}" if above else "")
        axes.stairs(counts[:-1], edges, color=_colour(place), fill=True, alpha=0.35)
        axes.stairs(counts[:-1], edges, color=_colour(place), linestyle=_OUTLINES[place], label=text)

    return draw


def _up_to_nearly_all(axes: Axes, runs: list[PlannedRun]) -> None:
    """Limit the axis to the norms of the first epoch, without the largest 0.1%."""
    counted = [diagnostics.gradient_counts(run, 1) for run in runs]
    last = max(int(np.searchsorted(np.cumsum(counts) / counts.sum(), 0.999)) for counts in counted)
    axes.set_xlim(0, min(LARGEST_NORM, (last + 1) * _BIN))


def _cosines(axes: Axes, runs: Runs, label: str, place: int) -> None:
    """Draw the cosines at a run's steps at equal distances, the mean over the runs."""
    values = np.concatenate([diagnostics.cosines(run)[1] for run in runs])
    bins, weights = np.linspace(-1, 1, 81).tolist(), np.full(len(values), 1 / len(runs))
    axes.hist(values, bins, weights=weights, color=_colour(place), alpha=0.35)
    axes.hist(
        values, bins, weights=weights, color=_colour(place), histtype="step", linestyle=_OUTLINES[place], label=label
    )


def _from_the_lowest(axes: Axes, runs: list[PlannedRun]) -> None:
    lowest = min(diagnostics.cosines(run)[1].min() for run in runs)
    axes.set_xlim(float(np.floor(10 * lowest) / 10), 1)


def _first_cosines(run: PlannedRun) -> tuple[diagnostics.Array, diagnostics.Array]:
    """Return steps, from 1, and the cosines of the first epoch."""
    steps, values = diagnostics.first_epoch_cosines(run)
    return steps + 1, values


_COSINE, _GRADIENT = "cosine of clipped and unclipped gradient", "norm of a per-example gradient"
_SINGULAR = "largest singular value of the Hessian"
_TO_THE_LARGEST: dict[str, Any] = {"yscale": "log", "xlim": (0, LARGEST_NORM)}
_OF_CIFAR10, _FROM_0 = ("fig_1", "cifar10_{}"), (0, None)

figure_1a = one_panel(
    *_OF_CIFAR10, norm(PRE_ACTIVATIONS, -1), xlabel="epoch", ylabel="mean norm of the logits", ylim=_FROM_0
)
figure_1b = one_panel(
    *_OF_CIFAR10, norm(WEIGHTS, -1), xlabel="epoch", ylabel="norm of the last layer's weights", ylim=_FROM_0
)
figure_1c = one_panel(*_OF_CIFAR10, histogram(1), xlabel=_GRADIENT, ylabel="examples", adjust=_up_to_nearly_all)
figure_1d = one_panel(
    *_OF_CIFAR10, _cosines, xlabel=_COSINE, ylabel="steps", legend="upper left", adjust=_from_the_lowest
)
figure_2 = one_panel(
    "fig_2", "mnist_{}_hessian", line(diagnostics.eigenvalues), xlabel="epoch", ylabel=_SINGULAR, yscale="log"
)
figure_6 = one_panel(*_OF_CIFAR10, histogram(None), xlabel=_GRADIENT, ylabel="examples", **_TO_THE_LARGEST)
figure_7 = one_panel(*_OF_CIFAR10, line(_first_cosines), xlabel="step of epoch 1", ylabel=_COSINE)


def _layer_count(evidence: Evidence, sweep: str, dataset: str) -> int:
    """Return the number of layers of a data set's network, or 0 if no run records it."""
    runs = [run for loss in LOSSES if (run := _run(evidence, sweep, f"{dataset}_{loss}"))]
    return max((len(diagnostics.layer_norms(run, WEIGHTS)) for run in runs), default=0)


def _sizes(evidence: Evidence, sweep: str, dataset: str) -> str:
    """Return the number of runs behind a data set's panels, for each loss."""
    sizes = {runs_text(_runs(evidence, sweep, f"{dataset}_{loss}")): loss for loss in LOSSES}
    return next(iter(sizes)) if len(sizes) == 1 else ", ".join(f"{loss}: {text}" for text, loss in sizes.items())


def _layer_name(layer: int, layers: int) -> str:
    return f"layer {layer + 1}" + (" (last)" if layer == layers - 1 else "")


def figure_5(evidence: Evidence) -> Figure:
    """Draw norms of weights (above) and pre-activations (below) of two data sets: first and last two layers."""
    drawn = figure(13, 5)
    grid = drawn.subplots(2, 6)
    for half, dataset in enumerate(("cifar10", "fashion_mnist")):
        layers = _layer_count(evidence, "fig_5", dataset)
        for place, layer in enumerate((0, layers - 2, layers - 1)):
            column = grid[:, 3 * half + place]
            for axes, kind in zip(column, (WEIGHTS, PRE_ACTIVATIONS), strict=True):
                if _both(axes, evidence, "fig_5", f"{dataset}_{{}}", norm(kind, layer), counted=False):
                    axes.set_ylim(bottom=0)
            name = f", {_layer_name(layer, layers)}" if layers else ""
            title = f"{DATASETS[dataset]}{name}" + ("" if place else f"\n{_sizes(evidence, 'fig_5', dataset)}")
            column[0].set_title(title, fontsize=8)
            column[1].set_xlabel("epoch")
    grid[0][0].set_ylabel("norm of the weights")
    grid[1][0].set_ylabel("norm of the pre-activations")
    one_legend(drawn)
    return drawn


def all_layers(kind: str) -> Draw:
    """Return a figure of the norms of all layers, a row per data set."""

    def draw(evidence: Evidence) -> Figure:
        datasets = list(reversed(DATASETS))
        layers = {dataset: _layer_count(evidence, "fig_11", dataset) for dataset in datasets}
        columns = max(4, *layers.values())
        drawn = figure(2.1 * columns + 0.5, 6.6)
        for axes_of_row, dataset in zip(drawn.subplots(3, columns), datasets, strict=True):
            for layer, axes in enumerate(axes_of_row):
                if layer >= max(1, layers[dataset]):
                    axes.set_axis_off()
                    continue
                if _both(axes, evidence, "fig_11", f"{dataset}_{{}}", norm(kind, layer), counted=False):
                    axes.set_ylim(bottom=0)
                axes.set_title(_layer_name(layer, layers[dataset]) if layers[dataset] else "", fontsize=8)
                axes.set_xlabel("epoch")
            axes_of_row[0].set_ylabel(f"{DATASETS[dataset]}\n{_sizes(evidence, 'fig_11', dataset)}\nnorm")
        one_legend(drawn)
        return drawn

    return draw


figure_11 = all_layers(WEIGHTS)
figure_12 = all_layers(PRE_ACTIVATIONS)


def figure_14(evidence: Evidence) -> Figure:
    """Draw histograms of per-example gradient norms over all epochs, a panel per data set."""
    drawn = figure(6, 8)
    for axes, (dataset, title) in zip(drawn.subplots(3, 1), reversed(DATASETS.items()), strict=True):
        if _both(axes, evidence, "fig_11", f"{dataset}_{{}}", histogram(None)):
            axes.set(**_TO_THE_LARGEST)
        axes.set(title=title, ylabel="examples")
        axes.legend(loc="upper right")
    axes.set_xlabel(_GRADIENT)
    return drawn


_TRAININGS = {"ours": "losing-less loss", "ce": "cross-entropy", "sgd": "without privacy"}


def figure_8(evidence: Evidence) -> Figure:
    """Draw confusion matrices on CIFAR-10's training set at two epochs: proposed loss, cross-entropy, no privacy."""
    epochs = _config(evidence, "fig_8", "cifar10").confusion_epochs
    return _matrices(evidence, [("cifar10", at) for at in epochs], {"ours": "fig_8", "ce": "fig_8", "sgd": "sgd"})


def figure_13(evidence: Evidence) -> Figure:
    """Draw confusion matrices of all data sets with a recorded run, at two epochs and the last."""
    columns = []
    for dataset in reversed(DATASETS):
        if any(_run(evidence, "fig_13", f"{dataset}_{loss}") for loss in _TRAININGS):
            config = _config(evidence, "fig_13", dataset)
            columns += [(dataset, epoch) for epoch in (*config.confusion_epochs, config.epochs)]
    return _matrices(evidence, columns, dict.fromkeys(_TRAININGS, "fig_13"))


def _config(evidence: Evidence, sweep: str, dataset: str) -> DictConfig:
    """Return the config of the first planned run with the proposed loss."""
    return evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_ours")[0].job.config


def _matrices(evidence: Evidence, columns: Sequence[tuple[str, int]], sweeps: dict[str, str]) -> Figure:
    """Draw a row per training, a column per data set and epoch; percent of the true class.

    Missing runs have no panel, and a training without any run has no row. Both are named below.
    """
    runs = {(loss, d): _run(evidence, sweeps[loss], f"{d}_{loss}") for loss in _TRAININGS for d, _ in columns}
    few = {f"{DATASETS[d]}, {_TRAININGS[loss]}": "" if run else "not run" for (loss, d), run in runs.items()}
    shown = [loss for loss in _TRAININGS if any(runs[loss, d] for d, _ in columns)]
    drawn = figure(0.8 + 2.6 * len(columns), 0.6 + 2.8 * len(shown))
    for axes_of_row, loss in zip(drawn.subplots(len(shown), len(columns), squeeze=False), shown, strict=True):
        for place, (axes, (dataset, epoch)) in enumerate(zip(axes_of_row, columns, strict=True)):
            run = runs[loss, dataset]
            matrix = None if run is None else diagnostics.confusion(run, epoch)
            if matrix is None:
                axes.set_axis_off()
                continue
            _matrix(axes, matrix, CLASSES[dataset])
            axes.set_title(f"{_TRAININGS[loss]}\n{DATASETS[dataset]}, epoch {epoch}", fontsize=8)
            if place and columns[place - 1][0] == dataset:  # only its first epoch has the class names
                axes.set_yticklabels([])
            else:
                axes.set_ylabel("true class")
    name_not_drawn(drawn, few)
    return drawn


def _matrix(axes: Axes, matrix: diagnostics.Array, classes: Sequence[str]) -> None:
    axes.grid(False)
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=100)
    for (row, column), percent in np.ndenumerate(matrix):
        colour = "white" if percent > 55 else "black"
        if row == column or percent >= _SHOWN:
            axes.text(column, row, f"{percent:.0f}", ha="center", va="center", fontsize=6, color=colour)
    axes.set_xticks(range(len(classes)), classes, rotation=90, fontsize=7)
    axes.set_yticks(range(len(classes)), classes, fontsize=7)
    axes.set_xlabel("predicted class")

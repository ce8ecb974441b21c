"""The figures of what happens during training: norms, gradients, curvature and confusion matrices. One run a curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from runner.papers.losing_less import recorded
from runner.papers.losing_less.figures import CE, OURS, PAPER
from runner.papers.losing_less.recorded import PRE_ACTIVATIONS, WEIGHTS
from runner.report.evidence import Evidence
from runner.report.items import Draw
from runner.report.plots import DATASETS, figure, mark_not_run, name_not_run, one_legend
from runner.report.runs import PlannedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSSES = {"ce": ("CE-T-CNN", CE), "ours": ("O-T-CNN (ours)", OURS)}
LARGEST_NORM = 100.0
DrawRun = Callable[["Axes", PlannedRun, str, str], object]  # the panel, the run, its label and its colour
Adjust = Callable[["Axes", list[PlannedRun]], None]


def _run(evidence: Evidence, sweep: str, name: str) -> PlannedRun | None:
    """The first recorded run of an experiment."""
    return next(iter(evidence.recorded(f"{PAPER}/{sweep}", f"{PAPER}/{name}")), None)


def _both(axes: Axes, evidence: Evidence, sweep: str, experiments: str, draw: DrawRun) -> list[PlannedRun]:
    """Cross-entropy's run and ours into one panel, `experiments` with {} for the loss: those recorded, the others are
    named as not run.
    """
    runs = {loss: _run(evidence, sweep, experiments.format(loss)) for loss in LOSSES}
    for loss, run in runs.items():
        label, colour = LOSSES[loss]
        if run is None:
            name_not_run(axes, label, colour)
        else:
            draw(axes, run, label, colour)
    if not any(runs.values()):
        mark_not_run(axes, without_ticks=True)
    return [run for run in runs.values() if run]


def one_panel(
    sweep: str, experiments: str, draw: DrawRun, *, adjust: Adjust | None = None, legend: Any = "best", **settings: Any
) -> Draw:
    """A figure of one panel: cross-entropy's run and ours, drawn by `draw`, and the settings of the axes (`xlabel`)."""

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


def line(read: Callable[[PlannedRun], tuple[Any, Any]]) -> DrawRun:
    """What is read of a run, x and y, as a line."""
    return lambda axes, run, label, colour: axes.plot(*read(run), color=colour, label=label)


def norm(kind: str, layer: int) -> DrawRun:
    """A layer's norm by epoch, from 0, before training; `layer` as an index from either end."""
    return line(lambda run: (recorded.norm_epochs(run), recorded.layer_norms(run, kind)[layer]))


def histogram(epochs: int | None) -> DrawRun:
    """Per-example gradient norms up to 100, of the first `epochs` or all; the legend has the share above."""

    def draw(axes: Axes, run: PlannedRun, label: str, colour: str) -> None:
        counts = recorded.gradient_counts(run, epochs)
        edges = np.arange(len(counts)) * recorded.BIN
        above = 100 * counts[-1] / counts.sum() if counts.sum() else 0.0
        text = label + (f", {above:.2g}% above {LARGEST_NORM:g}" if above else "")
        axes.stairs(counts[:-1], edges, color=colour, fill=True, alpha=0.35)
        axes.stairs(counts[:-1], edges, color=colour, label=text)

    return draw


def _up_to_nearly_all(axes: Axes, runs: list[PlannedRun]) -> None:
    """Norms of the first epoch, up to where all but 0.1% are."""
    counted = [recorded.gradient_counts(run, 1) for run in runs]
    last = max(int(np.searchsorted(np.cumsum(counts) / counts.sum(), 0.999)) for counts in counted)
    axes.set_xlim(0, min(LARGEST_NORM, (last + 1) * recorded.BIN))


def _cosines(axes: Axes, run: PlannedRun, label: str, colour: str) -> None:
    """The cosines at steps at equal distances."""
    _, values = recorded.cosines(run)
    bins = np.linspace(-1, 1, 81).tolist()
    axes.hist(values, bins, color=colour, alpha=0.35)
    axes.hist(values, bins, color=colour, histtype="step", label=label)


def _from_the_lowest(axes: Axes, runs: list[PlannedRun]) -> None:
    lowest = min(recorded.cosines(run)[1].min() for run in runs)
    axes.set_xlim(float(np.floor(10 * lowest) / 10), 1)


def _first_cosines(run: PlannedRun) -> tuple[recorded.Array, recorded.Array]:
    """Steps, from 1, and the cosines of the first epoch."""
    steps, values = recorded.first_epoch_cosines(run)
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
    "fig_2", "mnist_{}_hessian", line(recorded.eigenvalues), xlabel="epoch", ylabel=_SINGULAR, yscale="log"
)
figure_6 = one_panel(*_OF_CIFAR10, histogram(None), xlabel=_GRADIENT, ylabel="examples", **_TO_THE_LARGEST)
figure_7 = one_panel(*_OF_CIFAR10, line(_first_cosines), xlabel="step of epoch 1", ylabel=_COSINE)


def _layer_count(evidence: Evidence, sweep: str, dataset: str) -> int:
    """How many layers a data set's network has; 0 where no run says so."""
    runs = [run for loss in LOSSES if (run := _run(evidence, sweep, f"{dataset}_{loss}"))]
    return max((len(recorded.layer_norms(run, WEIGHTS)) for run in runs), default=0)


def _layer_name(layer: int, layers: int) -> str:
    return f"layer {layer + 1}" + (" (last)" if layer == layers - 1 else "")


def figure_5(evidence: Evidence) -> Figure:
    """Norms of weights (above) and pre-activations (below), CIFAR-10 and FashionMNIST: first and last two layers."""
    drawn = figure(13, 5)
    grid = drawn.subplots(2, 6)
    for half, dataset in enumerate(("cifar10", "fashion_mnist")):
        layers = _layer_count(evidence, "fig_5", dataset)
        for place, layer in enumerate((0, layers - 2, layers - 1)):
            column = grid[:, 3 * half + place]
            for axes, kind in zip(column, (WEIGHTS, PRE_ACTIVATIONS), strict=True):
                if _both(axes, evidence, "fig_5", f"{dataset}_{{}}", norm(kind, layer)):
                    axes.set_ylim(bottom=0)
            name = f", {_layer_name(layer, layers)}" if layers else ""
            column[0].set_title(f"{DATASETS[dataset]}{name}", fontsize=8)
            column[1].set_xlabel("epoch")
    grid[0][0].set_ylabel("norm of the weights")
    grid[1][0].set_ylabel("norm of the pre-activations")
    one_legend(drawn)
    return drawn


def all_layers(kind: str) -> Draw:
    """A figure of the norms of all layers, a row a data set."""

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
                if _both(axes, evidence, "fig_11", f"{dataset}_{{}}", norm(kind, layer)):
                    axes.set_ylim(bottom=0)
                axes.set_title(_layer_name(layer, layers[dataset]) if layers[dataset] else "", fontsize=8)
                axes.set_xlabel("epoch")
            axes_of_row[0].set_ylabel(f"{DATASETS[dataset]}\nnorm")
        one_legend(drawn)
        return drawn

    return draw


figure_11 = all_layers(WEIGHTS)
figure_12 = all_layers(PRE_ACTIVATIONS)


def figure_14(evidence: Evidence) -> Figure:
    """Histograms of per-example gradient norms over all epochs, a panel a data set."""
    drawn = figure(6, 8)
    for axes, (dataset, title) in zip(drawn.subplots(3, 1), reversed(DATASETS.items()), strict=True):
        if _both(axes, evidence, "fig_11", f"{dataset}_{{}}", histogram(None)):
            axes.set(**_TO_THE_LARGEST)
        axes.set(title=title, ylabel="examples")
        axes.legend(loc="upper right")
    axes.set_xlabel(_GRADIENT)
    return drawn


_COLUMNS = {"ours": "O-T-CNN (ours)", "ce": "CE-T-CNN", "sgd": "without privacy (SGD, CE)"}


def figure_8(evidence: Evidence) -> Figure:
    """Confusion matrices on CIFAR-10's training set at two epochs: ours, cross-entropy, without privacy."""
    epochs = _config(evidence, "fig_8", "cifar10").confusion_epochs
    return _matrices(evidence, [("cifar10", at) for at in epochs], {"ours": "fig_8", "ce": "fig_8", "sgd": "sgd"})


def figure_13(evidence: Evidence) -> Figure:
    """Confusion matrices of all data sets of which a run is recorded, at two epochs and the last."""
    rows = []
    for dataset in reversed(DATASETS):
        if any(_run(evidence, "fig_13", f"{dataset}_{loss}") for loss in _COLUMNS):
            config = _config(evidence, "fig_13", dataset)
            rows += [(dataset, epoch) for epoch in (*config.confusion_epochs, config.epochs)]
    return _matrices(evidence, rows, dict.fromkeys(_COLUMNS, "fig_13"))


def _config(evidence: Evidence, sweep: str, dataset: str) -> DictConfig:
    """The config of the first planned run of ours."""
    return evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_ours")[0].job.config


def _matrices(evidence: Evidence, rows: Sequence[tuple[str, int]], sweeps: dict[str, str]) -> Figure:
    """A row a data set and epoch, a column a training; percent of the true class."""
    drawn = figure(11, 3.7 * len(rows))
    for axes_of_row, (dataset, epoch) in zip(drawn.subplots(len(rows), 3, squeeze=False), rows, strict=True):
        for axes, (loss, title) in zip(axes_of_row, _COLUMNS.items(), strict=True):
            run = _run(evidence, sweeps[loss], f"{dataset}_{loss}")
            _matrix(axes, None if run is None else recorded.confusion(run, epoch), recorded.CLASSES[dataset])
            axes.set_title(f"{title}\n{DATASETS[dataset]}, epoch {epoch}", fontsize=8)
        axes_of_row[0].set_ylabel("true class")
    return drawn


def _matrix(axes: Axes, matrix: recorded.Array | None, classes: Sequence[str]) -> None:
    axes.grid(False)
    if matrix is None:
        mark_not_run(axes, without_ticks=True)
        return
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=100)
    for (row, column), percent in np.ndenumerate(matrix):
        colour = "white" if percent > 55 else "black"
        axes.text(column, row, f"{percent:.0f}", ha="center", va="center", fontsize=6, color=colour)
    axes.set_xticks(range(len(classes)), classes, rotation=90, fontsize=7)
    axes.set_yticks(range(len(classes)), classes, fontsize=7)
    axes.set_xlabel("predicted class", fontsize=8)

"""The figures of what happens during training: norms, gradients, curvature and confusion matrices. One run a curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from runner.papers.losing_less import recorded
from runner.papers.losing_less.figures import CE, OURS, PAPER
from runner.papers.losing_less.recorded import PRE_ACTIVATIONS, WEIGHTS
from runner.report.evidence import Evidence, PlannedRun
from runner.report.plots import DATASETS, figure, mark_not_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSSES = {"ce": ("CE-T-CNN", CE), "ours": ("O-T-CNN (ours)", OURS)}
CLASSES = {
    "mnist": list("0123456789"),
    "fashion_mnist": ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}
LARGEST_NORM = 100.0
_NOT_RUN = ", not run"
Draw = Callable[["Axes", PlannedRun, str, str], None]


def _run(evidence: Evidence, sweep: str, name: str) -> PlannedRun | None:
    """The first recorded run of an experiment."""
    return next(iter(evidence.recorded(f"{PAPER}/{sweep}", f"{PAPER}/{name}")), None)


def _both(axes: Axes, evidence: Evidence, sweep: str, dataset: str, draw: Draw) -> None:
    """Cross-entropy's run and ours into one panel; one that has no record is named as not run."""
    runs = {loss: _run(evidence, sweep, f"{dataset}_{loss}") for loss in LOSSES}
    for loss, run in runs.items():
        label, colour = LOSSES[loss]
        if run is None:
            axes.plot([], [], color=colour, label=label + _NOT_RUN)
        else:
            draw(axes, run, label, colour)
    if not any(runs.values()):
        axes.set(xticks=[], yticks=[])
        mark_not_run(axes)


def _legend(drawn: Figure) -> None:
    """One legend below all panels; those without a run say so themselves."""
    named = {label: handle for a in drawn.axes for handle, label in zip(*a.get_legend_handles_labels(), strict=True)}
    for label in [label for label in named if label.endswith(_NOT_RUN) and label.removesuffix(_NOT_RUN) in named]:
        del named[label]
    drawn.legend(list(named.values()), list(named), loc="outside lower center", ncols=len(named))


def _norm(kind: str, layer: int) -> Draw:
    """A layer's norm by epoch, from 0, before training; `layer` as an index from either end."""

    def draw(axes: Axes, run: PlannedRun, label: str, colour: str) -> None:
        axes.plot(recorded.norm_epochs(run), recorded.layer_norms(run, kind)[layer], color=colour, label=label)
        axes.set_ylim(bottom=0)

    return draw


def _one_panel(evidence: Evidence, sweep: str, dataset: str, draw: Draw, x: str, y: str) -> Figure:
    drawn = figure(5.6, 3.8)
    axes = drawn.subplots()
    _both(axes, evidence, sweep, dataset, draw)
    axes.set(xlabel=x, ylabel=y)
    axes.legend()
    return drawn


def figure_1a(evidence: Evidence) -> Figure:
    """Norm of the logits by epoch, CIFAR-10."""
    return _one_panel(evidence, "fig_1", "cifar10", _norm(PRE_ACTIVATIONS, -1), "epoch", "mean norm of the logits")


def figure_1b(evidence: Evidence) -> Figure:
    """Norm of the last layer's weights by epoch, CIFAR-10."""
    return _one_panel(evidence, "fig_1", "cifar10", _norm(WEIGHTS, -1), "epoch", "norm of the last layer's weights")


def _histogram(epochs: int | None) -> Draw:
    """Per-example gradient norms up to 100, of the first `epochs` or all; the legend has the share above."""

    def draw(axes: Axes, run: PlannedRun, label: str, colour: str) -> None:
        counts = recorded.gradient_counts(run, epochs)
        edges = np.arange(len(counts)) * recorded.BIN
        above = 100 * counts[-1] / counts.sum() if counts.sum() else 0.0
        text = label + (f", {above:.2g}% above {LARGEST_NORM:g}" if above else "")
        axes.stairs(counts[:-1], edges, color=colour, fill=True, alpha=0.35)
        axes.stairs(counts[:-1], edges, color=colour, label=text)

    return draw


def figure_1c(evidence: Evidence) -> Figure:
    """Histogram of per-example gradient norms in the first epoch, CIFAR-10; up to where all but 0.1% are."""
    drawn = _one_panel(evidence, "fig_1", "cifar10", _histogram(1), "norm of a per-example gradient", "examples")
    runs = [run for loss in LOSSES if (run := _run(evidence, "fig_1", f"cifar10_{loss}"))]
    shares = [np.cumsum(counts) / counts.sum() for counts in (recorded.gradient_counts(run, 1) for run in runs)]
    if shares:
        last = max(int(np.searchsorted(share, 0.999)) for share in shares)
        drawn.axes[0].set_xlim(0, min(LARGEST_NORM, (last + 1) * recorded.BIN))
    return drawn


def _cosines(axes: Axes, run: PlannedRun, label: str, colour: str) -> None:
    _, values = recorded.cosines(run)
    bins = np.linspace(-1, 1, 81).tolist()
    axes.hist(values, bins, color=colour, alpha=0.35)
    axes.hist(values, bins, color=colour, histtype="step", label=label)


def figure_1d(evidence: Evidence) -> Figure:
    """Histogram of the cosine between clipped and unclipped mean gradients, steps at equal distances, CIFAR-10."""
    drawn = _one_panel(evidence, "fig_1", "cifar10", _cosines, "cosine of clipped and unclipped gradient", "steps")
    runs = [run for loss in LOSSES if (run := _run(evidence, "fig_1", f"cifar10_{loss}"))]
    lowest = min((recorded.cosines(run)[1].min() for run in runs), default=0.0)
    drawn.axes[0].set_xlim(float(np.floor(10 * lowest) / 10), 1)
    drawn.axes[0].legend(loc="upper left")
    return drawn


def _first_cosines(axes: Axes, run: PlannedRun, label: str, colour: str) -> None:
    steps, values = recorded.first_epoch_cosines(run)
    axes.plot(steps + 1, values, color=colour, label=label)


def figure_7(evidence: Evidence) -> Figure:
    """Cosine between clipped and unclipped mean gradients at every step of the first epoch, CIFAR-10."""
    return _one_panel(
        evidence, "fig_1", "cifar10", _first_cosines, "step of epoch 1", "cosine of clipped and unclipped gradient"
    )


def figure_2(evidence: Evidence) -> Figure:
    """Largest singular value of the Hessian by epoch, MNIST."""
    drawn = figure(5.6, 3.8)
    axes = drawn.subplots()
    for loss, (label, colour) in LOSSES.items():
        run = _run(evidence, "fig_2", f"mnist_{loss}_hessian")
        if run is None:
            axes.plot([], [], color=colour, label=label + _NOT_RUN)
        else:
            axes.plot(*recorded.eigenvalues(run), color=colour, label=label)
    axes.set(xlabel="epoch", ylabel="largest singular value of the Hessian", yscale="log")
    axes.legend()
    return drawn


def _layer_count(evidence: Evidence, sweep: str, dataset: str) -> int:
    """How many layers a data set's network has; 0 where no run says so."""
    runs = (_run(evidence, sweep, f"{dataset}_{loss}") for loss in LOSSES)
    return max((len(recorded.layer_norms(run, WEIGHTS)) for run in runs if run), default=0)


def _layer_name(layer: int, layers: int) -> str:
    return f"layer {layer + 1}" + (" (last)" if layer == layers - 1 else "")


def figure_5(evidence: Evidence) -> Figure:
    """Norms of weights (above) and pre-activations (below), CIFAR-10 and FashionMNIST: first and last two layers."""
    drawn = figure(13, 5)
    grid = drawn.subplots(2, 6)
    for half, dataset in enumerate(("cifar10", "fashion_mnist")):
        layers = _layer_count(evidence, "fig_5", dataset)
        for place, layer in enumerate((0, layers - 2, layers - 1)):
            for row, kind in enumerate((WEIGHTS, PRE_ACTIVATIONS)):
                axes = grid[row][3 * half + place]
                _both(axes, evidence, "fig_5", dataset, _norm(kind, layer))
            name = f", {_layer_name(layer, layers)}" if layers else ""
            grid[0][3 * half + place].set_title(f"{DATASETS[dataset]}{name}", fontsize=8)
    for row, label in enumerate(("norm of the weights", "norm of the pre-activations")):
        grid[row][0].set_ylabel(label)
    for axes in grid[1]:
        axes.set_xlabel("epoch")
    _legend(drawn)
    return drawn


def figure_11(evidence: Evidence) -> Figure:
    """Norms of the weights of all layers, a row a data set."""
    return _all_layers(evidence, WEIGHTS)


def figure_12(evidence: Evidence) -> Figure:
    """Norms of the pre-activations of all layers, a row a data set."""
    return _all_layers(evidence, PRE_ACTIVATIONS)


def _all_layers(evidence: Evidence, kind: str) -> Figure:
    datasets = list(reversed(DATASETS))
    layers = {dataset: _layer_count(evidence, "fig_11", dataset) for dataset in datasets}
    columns = max(4, *layers.values())
    drawn = figure(2.1 * columns + 0.5, 6.6)
    for axes_of_row, dataset in zip(drawn.subplots(3, columns), datasets, strict=True):
        for layer, axes in enumerate(axes_of_row):
            if layer >= max(1, layers[dataset]):
                axes.set_axis_off()
                continue
            _both(axes, evidence, "fig_11", dataset, _norm(kind, layer))
            axes.set_title(_layer_name(layer, layers[dataset]) if layers[dataset] else "", fontsize=8)
            axes.set_xlabel("epoch")
        axes_of_row[0].set_ylabel(f"{DATASETS[dataset]}\nnorm")
    _legend(drawn)
    return drawn


def figure_6(evidence: Evidence) -> Figure:
    """Histogram of per-example gradient norms over all epochs, CIFAR-10."""
    drawn = _one_panel(evidence, "fig_1", "cifar10", _histogram(None), "norm of a per-example gradient", "examples")
    drawn.axes[0].set(yscale="log", xlim=(0, LARGEST_NORM))
    return drawn


def figure_14(evidence: Evidence) -> Figure:
    """Histogram of per-example gradient norms over all epochs, a panel a data set."""
    drawn = figure(6, 8)
    for axes, (dataset, title) in zip(drawn.subplots(3, 1), reversed(DATASETS.items()), strict=True):
        _both(axes, evidence, "fig_11", dataset, _histogram(None))
        if axes.patches:
            axes.set(yscale="log", xlim=(0, LARGEST_NORM))
        axes.set(title=title, ylabel="examples")
        axes.legend(loc="upper right")
    axes.set_xlabel("norm of a per-example gradient")
    return drawn


_COLUMNS = {"ours": "O-T-CNN (ours)", "ce": "CE-T-CNN", "sgd": "without privacy (SGD, CE)"}


def figure_8(evidence: Evidence) -> Figure:
    """Confusion matrices on CIFAR-10's training set after epochs 2 and 20: ours, cross-entropy, without privacy."""
    return _matrices(
        evidence, [("cifar10", epoch) for epoch in (2, 20)], {"ours": "fig_8", "ce": "fig_8", "sgd": "sgd"}
    )


def figure_13(evidence: Evidence) -> Figure:
    """Confusion matrices on the training sets of which a run is recorded, after epochs 2 and 20 and the last."""
    rows = []
    for dataset in reversed(DATASETS):
        if not any(_run(evidence, "fig_13", f"{dataset}_{loss}") for loss in _COLUMNS):
            continue
        planned = evidence.planned(f"{PAPER}/fig_13", f"{PAPER}/{dataset}_ours")
        last = [int(run.job.config.epochs) for run in planned[:1]]
        rows += [(dataset, epoch) for epoch in (2, 20, *last)]
    return _matrices(evidence, rows, dict.fromkeys(_COLUMNS, "fig_13"))


def _matrices(evidence: Evidence, rows: Sequence[tuple[str, int]], sweeps: dict[str, str]) -> Figure:
    """A row a data set and epoch, a column a training; percent of the true class."""
    drawn = figure(11, 3.7 * len(rows))
    for axes_of_row, (dataset, epoch) in zip(drawn.subplots(len(rows), 3, squeeze=False), rows, strict=True):
        for axes, (loss, title) in zip(axes_of_row, _COLUMNS.items(), strict=True):
            run = _run(evidence, sweeps[loss], f"{dataset}_{loss}")
            _matrix(axes, None if run is None else recorded.confusion(run, epoch), CLASSES[dataset])
            axes.set_title(f"{title}\n{DATASETS[dataset]}, epoch {epoch}", fontsize=8)
        axes_of_row[0].set_ylabel("true class")
    return drawn


def _matrix(axes: Axes, matrix: recorded.Array | None, classes: Sequence[str]) -> None:
    axes.grid(False)
    if matrix is None:
        axes.set(xticks=[], yticks=[])
        mark_not_run(axes)
        return
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=100)
    for (row, column), percent in np.ndenumerate(matrix):
        colour = "white" if percent > 55 else "black"
        axes.text(column, row, f"{percent:.0f}", ha="center", va="center", fontsize=6, color=colour)
    axes.set_xticks(range(len(classes)), classes, rotation=90, fontsize=7)
    axes.set_yticks(range(len(classes)), classes, fontsize=7)
    axes.set_xlabel("predicted class", fontsize=8)

"""Figures of training dynamics: norms, gradients, curvature and confusion matrices.

The paper shows one run per curve. Here a curve is the mean and the range of all recorded runs of the setting: the
item's planned runs, and figure 3's planned runs with other seeds of the same setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from runner.claims import diagnostics
from runner.claims.diagnostics import PRE_ACTIVATIONS, WEIGHTS
from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.runs import PlannedRun, Runs
from runner.papers.losing_less.figures import LOSSES as ALL_LOSSES
from runner.papers.losing_less.figures import PAPER
from runner.report import plots
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BIN = 0.5  # width of a bin of gradient_histogram; the last one holds all larger norms
CLASSES = {  # in the order of the labels
    "mnist": list("0123456789"),
    "fashion_mnist": ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}

LOSSES = {loss: ALL_LOSSES[loss] for loss in ("ce", "ours")}
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


def _both(
    axes: Axes, evidence: Evidence, sweep: str, experiments: str, draw: DrawRuns, *, counted: bool = True
) -> list[PlannedRun]:
    """Draw cross-entropy's and the proposed loss's runs into one panel, and return the recorded ones.

    `experiments` has {} for the loss. Losses without a recorded run are named as not run. `counted`: labels have the
    number of runs, which one legend of many panels cannot have.
    """
    found: list[PlannedRun] = []
    for place, (loss, (label, look)) in enumerate(LOSSES.items()):
        planned = _runs(evidence, sweep, experiments.format(loss))
        if not planned.recorded:
            plots.name_not_run(axes, label, plots.LOOKS[look][0])
            continue
        draw(axes, planned.recorded, f"{label}, {plots.runs_text(planned)}" if counted else label, place)
        found += planned.recorded
    if not found:
        plots.mark_not_run(axes, without_ticks=True)
    return found


def _look(place: int) -> tuple[str, str]:
    return plots.LOOKS[list(LOSSES.values())[place][1]]


def one_panel(
    sweep: str,
    experiments: str,
    draw: DrawRuns,
    evidence: Evidence,
    *,
    adjust: Adjust | None = None,
    legend: Any = "best",
    **settings: Any,
) -> Figure:
    """Draw one panel: both losses' runs by `draw`, and the axes' settings (`xlabel`)."""
    drawn = plots.figure(5.6, 3.8)
    axes = drawn.subplots()
    runs = _both(axes, evidence, sweep, experiments, draw)
    axes.set(**settings)
    if settings.get("yscale") == "log":
        plots.log_axis(axes, "y")
    if runs and adjust:
        adjust(axes, runs)
    axes.legend(loc=legend)
    return drawn


def line(read: Callable[[PlannedRun], tuple[Any, Any]], axes: Axes, runs: Runs, label: str, place: int) -> None:
    """Draw x and y of the runs: the mean as a line, the range as an area."""
    found = plots.band_of([read(run) for run in runs])
    colour, marker = _look(place)
    found.draw(axes, colour, 0.25, **plots.spaced(found.x, place, marker), label=label)


def norm(kind: str, layer: int) -> DrawRuns:
    """Return a function that draws a layer's norm by epoch, from 0, before training; `layer` may be negative."""
    return partial(line, lambda run: (diagnostics.norm_epochs(run), diagnostics.layer_norms(run, kind)[layer]))


def histogram(epochs: int | None, axes: Axes, runs: Runs, label: str, place: int) -> None:
    """Draw per-example gradient norms up to 100, of the first `epochs` or all.

    The mean over the runs is drawn. The legend has the share of larger norms.
    """
    counts = np.mean([diagnostics.gradient_counts(run, epochs) for run in runs], axis=0)
    edges = np.arange(len(counts)) * _BIN
    above = 100 * counts[-1] / counts.sum() if counts.sum() else 0.0
    text = label + (f", {above:.2g}% above {LARGEST_NORM:g}" if above else "")
    axes.stairs(counts[:-1], edges, color=_look(place)[0], fill=True, alpha=0.35)
    axes.stairs(counts[:-1], edges, color=_look(place)[0], linestyle=_OUTLINES[place], label=text)


def _up_to_nearly_all(axes: Axes, runs: list[PlannedRun]) -> None:
    """Limit the axis to the norms of the first epoch, without the largest 0.1%."""
    counted = [diagnostics.gradient_counts(run, 1) for run in runs]
    last = max(int(np.searchsorted(np.cumsum(counts) / counts.sum(), 0.999)) for counts in counted)
    axes.set_xlim(0, min(LARGEST_NORM, (last + 1) * _BIN))


def _cosines(axes: Axes, runs: Runs, label: str, place: int) -> None:
    """Draw the cosines at a run's steps at equal distances, the mean over the runs."""
    values = np.concatenate([diagnostics.cosines(run)[1] for run in runs])
    bins, weights = np.linspace(-1, 1, 81).tolist(), np.full(len(values), 1 / len(runs))
    axes.hist(values, bins, weights=weights, color=_look(place)[0], alpha=0.35)
    axes.hist(
        values, bins, weights=weights, color=_look(place)[0], histtype="step", linestyle=_OUTLINES[place], label=label
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
_BY_EPOCH: dict[str, Any] = {"xlabel": "epoch", "ylim": (0, None)}
_eigenvalues = partial(line, diagnostics.eigenvalues)
_of_cifar10 = partial(one_panel, "fig_1", "cifar10_{}")

figure_1a = partial(_of_cifar10, norm(PRE_ACTIVATIONS, -1), ylabel="mean norm of the logits", **_BY_EPOCH)
figure_1b = partial(_of_cifar10, norm(WEIGHTS, -1), ylabel="norm of the last layer's weights", **_BY_EPOCH)
figure_1c = partial(_of_cifar10, partial(histogram, 1), xlabel=_GRADIENT, ylabel="examples", adjust=_up_to_nearly_all)
figure_1d = partial(_of_cifar10, _cosines, xlabel=_COSINE, ylabel="steps", legend="upper left", adjust=_from_the_lowest)
figure_2 = partial(one_panel, "fig_2", "mnist_{}_hessian", _eigenvalues, ylabel=_SINGULAR, xlabel="epoch", yscale="log")
figure_6 = partial(_of_cifar10, partial(histogram, None), xlabel=_GRADIENT, ylabel="examples", **_TO_THE_LARGEST)
figure_7 = partial(_of_cifar10, partial(line, _first_cosines), xlabel="step of epoch 1", ylabel=_COSINE)


def _layer_count(evidence: Evidence, sweep: str, dataset: str) -> int:
    """Return the number of layers of a data set's network, or 0 if no run records it."""
    runs = [run for loss in LOSSES for run in evidence.recorded(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_{loss}")[:1]]
    return max((len(diagnostics.layer_norms(run, WEIGHTS)) for run in runs), default=0)


def _sizes(evidence: Evidence, sweep: str, dataset: str) -> str:
    """Return the number of runs behind a data set's panels, for each loss."""
    sizes = {plots.runs_text(_runs(evidence, sweep, f"{dataset}_{loss}")): loss for loss in LOSSES}
    return next(iter(sizes)) if len(sizes) == 1 else ", ".join(f"{loss}: {text}" for text, loss in sizes.items())


def _layer_name(layer: int, layers: int) -> str:
    return f"layer {layer + 1}" + (" (last)" if layer == layers - 1 else "")


def figure_5(evidence: Evidence) -> Figure:
    """Draw norms of weights and pre-activations of two data sets, a row each: first and last two layers."""
    rows = []
    for dataset in ("cifar10", "fashion_mnist"):
        layers = _layer_count(evidence, "fig_5", dataset)
        rows += [(dataset, kind, (0, layers - 2, layers - 1)) for kind in (WEIGHTS, PRE_ACTIVATIONS) if layers]
    return _norms(evidence, "fig_5", rows)


def all_layers(kind: str, evidence: Evidence) -> Figure:
    """Draw the norms of all layers, in rows of four, the data sets one after another."""
    rows = []
    for dataset in reversed(plots.DATASETS):
        layers = _layer_count(evidence, "fig_11", dataset)
        rows += [(dataset, kind, tuple(range(first, min(first + 4, layers)))) for first in range(0, layers, 4)]
    return _norms(evidence, "fig_11", rows)


def _norms(evidence: Evidence, sweep: str, rows: Sequence[tuple[str, str, Sequence[int]]]) -> Figure:
    """Draw the norms of layers by epoch, both losses: rows of a data set, a kind of norm and some layers."""
    drawn = plots.figure(plots.WIDTH, 0.6 + 1.75 * len(rows))
    grid = drawn.subplots(len(rows), max(len(layers) for *_, layers in rows), squeeze=False)
    for axes_of_row, (dataset, kind, layers) in zip(grid, rows, strict=True):
        count = _layer_count(evidence, sweep, dataset)
        for axes, layer in zip(axes_of_row, layers, strict=True):
            _both(axes, evidence, sweep, f"{dataset}_{{}}", norm(kind, layer), counted=False)
            axes.set_ylim(bottom=0)
            axes.set_title(_layer_name(layer, count), fontsize=8)
        words = "weights" if kind == WEIGHTS else "pre-activations"
        title = f"{plots.DATASETS[dataset]}, {_layer_name(layers[0], count)}; {_sizes(evidence, sweep, dataset)}"
        axes_of_row[0].set_title("", fontsize=8)
        axes_of_row[0].set_title(title, fontsize=8, loc="left")
        axes_of_row[0].set_ylabel(f"norm of the\n{words}")
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    plots.one_legend(drawn)
    return drawn


figure_11, figure_12 = partial(all_layers, WEIGHTS), partial(all_layers, PRE_ACTIVATIONS)


def figure_14(evidence: Evidence) -> Figure:
    """Draw histograms of per-example gradient norms over all epochs, a panel per data set."""
    drawn = plots.figure(6, 8)
    for axes, (dataset, title) in zip(drawn.subplots(3, 1), reversed(plots.DATASETS.items()), strict=True):
        if _both(axes, evidence, "fig_11", f"{dataset}_{{}}", partial(histogram, None)):
            axes.set(**_TO_THE_LARGEST)
            plots.log_axis(axes, "y")
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
    rows = []
    for dataset in reversed(plots.DATASETS):
        if any(_runs(evidence, "fig_13", f"{dataset}_{loss}").recorded for loss in _TRAININGS):
            config = _config(evidence, "fig_13", dataset)
            rows += [(dataset, epoch) for epoch in (*config.confusion_epochs, config.epochs)]
    return _matrices(evidence, rows, dict.fromkeys(_TRAININGS, "fig_13"))


def _config(evidence: Evidence, sweep: str, dataset: str) -> DictConfig:
    return evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_ours")[0].job.config


def _matrices(evidence: Evidence, rows: Sequence[tuple[str, int]], sweeps: dict[str, str]) -> Figure:
    """Draw a row per data set and epoch, a column per training: percent of the true class, the mean of the runs.

    Missing runs have no panel, and a training without any run has no column. Both are named below. A claimed number of
    the paper has a frame around its cell, and is in the panel's title.
    """
    runs = {(loss, d): _runs(evidence, sweeps[loss], f"{d}_{loss}").recorded for loss in _TRAININGS for d, _ in rows}
    few = {f"{plots.DATASETS[d]}, {_TRAININGS[loss]}": "" if of else "not run" for (loss, d), of in runs.items()}
    shown = [loss for loss in _TRAININGS if any(runs[loss, d] for d, _ in rows)]
    drawn = plots.figure(1 + 2.8 * len(shown), 0.6 + 3.0 * len(rows))
    for axes_of_row, (dataset, epoch) in zip(drawn.subplots(len(rows), len(shown), squeeze=False), rows, strict=True):
        for axes, loss in zip(axes_of_row, shown, strict=True):
            matrices = [m for run in runs[loss, dataset] if (m := diagnostics.confusion(run, epoch)) is not None]
            if not matrices:
                axes.set_axis_off()
                continue
            of, classes = f"{PAPER}/{dataset}_{loss}", CLASSES[dataset]
            claimed = _claimed_classes(of, epoch, classes) if evidence.scale == PAPER_SCALE else {}
            _matrix(axes, np.mean(matrices, axis=0), classes, claimed)
            lines = [f"{_TRAININGS[loss]}, n = {len(matrices)}", f"{plots.DATASETS[dataset]}, epoch {epoch}"]
            if claimed:
                lines.append("claimed: " + ", ".join(f"{name} {aim:g}" for name, aim in claimed.items()))
            axes.set_title("\n".join(lines), fontsize=8)
        axes_of_row[0].set_ylabel("true class")
    plots.name_not_drawn(drawn, few)
    return drawn


def _claimed_classes(experiment: str, epoch: int, classes: Sequence[str]) -> dict[str, float]:
    """Return the claimed accuracies in percent, by class, of an experiment after an epoch."""
    claims = claims_of(PAPER, item="fig-8", alone=experiment, at=f"epoch({epoch})")
    return {classes[int(claim.reader[1])]: claim.aim for claim in claims if claim.aim is not None}


def _matrix(axes: Axes, matrix: diagnostics.Array, classes: Sequence[str], claimed: Mapping[str, float]) -> None:
    from matplotlib.patches import Rectangle

    axes.grid(False)
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=100)
    for (row, column), percent in np.ndenumerate(matrix):
        colour = "white" if percent > 55 else "black"
        if row == column or percent >= _SHOWN:
            axes.text(column, row, f"{percent:.0f}", ha="center", va="center", fontsize=8, color=colour)
    for place in map(classes.index, claimed):
        axes.add_patch(Rectangle((place - 0.5, place - 0.5), 1, 1, fill=False, edgecolor="firebrick", linewidth=1.5))
    axes.set_xticks(range(len(classes)), classes, rotation=90, fontsize=8)
    axes.set_yticks(range(len(classes)), classes, fontsize=8)
    axes.set_xlabel("predicted class")

"""Figures of training dynamics: norms, gradients, curvature and confusion matrices.

The paper shows one run per curve. Here a curve is the mean and the range of all recorded runs of the setting: the
item's planned runs, and figure 3's planned runs with other seeds of the same setting.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from omegaconf import DictConfig

from runner.claims import numbers as diagnostics
from runner.claims.evidence import PAPER_SCALE, Evidence, PlannedRun, Runs
from runner.claims.numbers import PRE_ACTIVATIONS, WEIGHTS
from runner.papers.losing_less.figures import DATASETS, PAPER, noise_norms
from runner.papers.losing_less.figures import LOSSES as ALL_LOSSES
from runner.report import plots
from runner.report.papers import claims_of

_BIN = 0.5  # width of a bin of gradient_histogram; the last one holds all larger norms
CLASSES = {  # in the order of the labels
    "mnist": list("0123456789"),
    "fashion_mnist": ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}

LOSSES = {loss: ALL_LOSSES[loss] for loss in ("ce", "ours")}
LARGEST_NORM = 100.0
_SHOWN = 2.5  # percent of a class: a cell off the diagonal with less has no number
_LOOKS = plots.LOOKS["tanh"], plots.LOOKS["losing-less loss"]  # by the place of their loss
_OUTLINES = ("--", "-")  # of histograms, by the place of their loss
MORE_SEEDS = f"{PAPER}/fig_3"
# The panel, the runs, their label, and the index of their loss.
DrawRuns = Callable[[Any, Runs, str, int], object]


def _runs(evidence: Evidence, sweep: str, name: str) -> Runs:
    """Return the planned runs of an experiment in a sweep, then figure 3's runs of it, each once."""
    planned = (evidence.planned(place, f"{PAPER}/{name}") for place in (f"{PAPER}/{sweep}", MORE_SEEDS))
    return Runs({run.job.run_id: run for runs in planned for run in runs}.values())


def _both(
    axes: "plots.Axes", evidence: Evidence, sweep: str, experiments: str, draw: DrawRuns, *, counted: bool = True
) -> list[PlannedRun]:
    """Draw cross-entropy's and the proposed loss's runs into one panel, and return the recorded ones.

    `experiments` has {} for the loss. Losses without a recorded run are named as not run. `counted`: labels have the
    number of runs, which one legend of many panels cannot have.
    """
    recorded: list[PlannedRun] = []
    missing: list[str] = []
    for place, (loss, label) in enumerate(LOSSES.items()):
        planned = _runs(evidence, sweep, experiments.format(loss))
        if not planned.recorded:
            missing.append(label)
            continue
        draw(axes, planned.recorded, f"{label}, {plots.runs_text(planned)}" if counted else label, place)
        recorded += planned.recorded
    if missing:
        plots.mark_not_run(axes, missing if recorded else (), without_ticks=not recorded)
    return recorded


def one_panel(
    sweep: str,
    experiments: str,
    draw: DrawRuns,
    evidence: Evidence,
    *,
    adjust: Callable[[Any, list[PlannedRun]], None] | None = None,
    legend: Any = "best",
    **settings: Any,
) -> "plots.Figure":
    """Draw one panel: both losses' runs by `draw`, and the axes' settings (`xlabel`)."""
    figure = plots.figure(5.6, 3.8)
    axes = figure.subplots()
    runs = _both(axes, evidence, sweep, experiments, draw)
    axes.set(**settings)
    if settings.get("yscale") == "log":
        plots.log_axis(axes, "y")
    if runs and adjust:
        adjust(axes, runs)
    axes.legend(loc=legend)
    return figure


def line(read: Callable[[PlannedRun], tuple[Any, Any]], axes: "plots.Axes", runs: Runs, label: str, place: int) -> None:
    """Draw x and y of the runs: the mean as a line, the range as an area."""
    plots.band_of([read(run) for run in runs]).draw(axes, _LOOKS[place], place, 0.25, label=label)


def norm(kind: str, layer: int) -> DrawRuns:
    """Return a function that draws a layer's norm by epoch, from 0, before training; `layer` may be negative."""
    return partial(line, lambda run: (diagnostics.norm_epochs(run), diagnostics.layer_norms(run, kind)[layer]))


def histogram(epochs: int | None, axes: "plots.Axes", runs: Runs, label: str, place: int) -> None:
    """Draw per-example gradient norms up to 100, of the first `epochs` or all.

    The mean over the runs is drawn. The legend has the share of larger norms.
    """
    counts = np.mean([diagnostics.gradient_counts(run, epochs) for run in runs], axis=0)
    edges, (colour, _) = np.arange(len(counts)) * _BIN, _LOOKS[place]
    above = 100 * counts[-1] / counts.sum() if counts.sum() else 0.0
    text = label + (f", {above:.2g}% above {LARGEST_NORM:g}" if above else "")
    axes.stairs(counts[:-1], edges, color=colour, fill=True, alpha=0.35)
    axes.stairs(counts[:-1], edges, color=colour, linestyle=_OUTLINES[place], label=text)


def _limit_to_most(axes: "plots.Axes", runs: list[PlannedRun]) -> None:
    """Limit the axis to the norms of the first epoch, without the largest 0.1%."""
    counted = [diagnostics.gradient_counts(run, 1) for run in runs]
    last = max(int(np.searchsorted(np.cumsum(counts) / counts.sum(), 0.999)) for counts in counted)
    axes.set_xlim(0, min(LARGEST_NORM, (last + 1) * _BIN))


def _cosines(axes: "plots.Axes", runs: Runs, label: str, place: int) -> None:
    """Draw the cosines at a run's steps at equal distances, the mean over the runs."""
    values = np.concatenate([diagnostics.cosines(run)[1] for run in runs])
    bins: dict[str, Any] = {"bins": np.linspace(-1, 1, 81).tolist(), "weights": np.full(len(values), 1 / len(runs))}
    axes.hist(values, **bins, color=_LOOKS[place][0], alpha=0.35)
    axes.hist(values, **bins, color=_LOOKS[place][0], histtype="step", linestyle=_OUTLINES[place], label=label)


def _limit_to_lowest(axes: "plots.Axes", runs: list[PlannedRun]) -> None:
    lowest = min(diagnostics.cosines(run)[1].min() for run in runs)
    axes.set_xlim(float(np.floor(10 * lowest) / 10), 1)


_COSINE, _GRADIENT = "cosine of clipped and unclipped gradient", "norm of a per-example gradient"
_TO_THE_LARGEST: dict[str, Any] = {"yscale": "log", "xlim": (0, LARGEST_NORM)}
_BY_EPOCH: dict[str, Any] = {"xlabel": "epoch", "ylim": (0, None)}
_cifar10_panel = partial(one_panel, "fig_1", "cifar10_{}")

figure_1a = partial(_cifar10_panel, norm(PRE_ACTIVATIONS, -1), ylabel="mean norm of the logits", **_BY_EPOCH)
figure_1b = partial(_cifar10_panel, norm(WEIGHTS, -1), ylabel="norm of the last layer's weights", **_BY_EPOCH)
figure_1c = partial(_cifar10_panel, partial(histogram, 1), xlabel=_GRADIENT, ylabel="examples", adjust=_limit_to_most)
figure_1d = partial(
    _cifar10_panel, _cosines, xlabel=_COSINE, ylabel="steps", legend="upper left", adjust=_limit_to_lowest
)
_SINGULAR: dict[str, Any] = {"xlabel": "epoch", "ylabel": "largest singular value of the Hessian", "yscale": "log"}
figure_2 = partial(one_panel, "fig_2", "mnist_{}_hessian", partial(line, diagnostics.eigenvalues), **_SINGULAR)
figure_6 = partial(_cifar10_panel, partial(histogram, None), xlabel=_GRADIENT, ylabel="examples", **_TO_THE_LARGEST)


def figure_7(evidence: Evidence) -> "plots.Figure":

    def cosines(run: PlannedRun) -> tuple[diagnostics.Array, diagnostics.Array]:
        steps, values = diagnostics.cosines(run, first_epoch=True)
        return steps + 1, values

    figure, panels = plots.panel_each(3.2, DATASETS)
    for dataset, axes in panels.items():
        _both(axes, evidence, "fig_1", f"{dataset}_{{}}", partial(line, cosines), counted=False)
        axes.set(title=f"{plots.DATASETS[dataset]}, {_sizes(evidence, 'fig_1', dataset)}", xlabel="step of epoch 1")
    figure.axes[0].set_ylabel("cosine of clipped and\nunclipped gradient")
    plots.one_legend(figure)
    return figure


def _layer_count(evidence: Evidence, sweep: str, dataset: str) -> int:
    """Return the number of layers of a data set's network, or 0 if no run records it."""
    runs = [run for loss in LOSSES for run in evidence.recorded(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_{loss}")[:1]]
    return max((len(diagnostics.layer_norms(run, WEIGHTS)) for run in runs), default=0)


def _sizes(evidence: Evidence, sweep: str, dataset: str) -> str:
    """Return the number of runs behind a data set's panels, for each loss."""
    sizes = {plots.runs_text(_runs(evidence, sweep, f"{dataset}_{loss}")): loss for loss in LOSSES}
    return next(iter(sizes)) if len(sizes) == 1 else ", ".join(f"{loss}: {text}" for text, loss in sizes.items())


def figure_5(evidence: Evidence) -> "plots.Figure":
    """Draw norms of weights, then of pre-activations, of the first and the last two layers of two data sets."""
    panels = [
        (dataset, layer)
        for dataset in ("cifar10", "fashion_mnist")
        if (layers := _layer_count(evidence, "fig_5", dataset))
        for layer in (0, layers - 2, layers - 1)
    ]
    return _norms(evidence, "fig_5", [(kind, panels) for kind in (WEIGHTS, PRE_ACTIVATIONS)])


def _all_layers(kind: str, evidence: Evidence) -> "plots.Figure":
    """Draw the norms of all layers, in rows of four, the data sets one after another."""
    layers = [(d, layer) for d in DATASETS for layer in range(_layer_count(evidence, "fig_11", d))]
    return _norms(evidence, "fig_11", [(kind, layers[first : first + 4]) for first in range(0, len(layers), 4)])


def _norms(evidence: Evidence, sweep: str, rows: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> "plots.Figure":
    """Draw the norms of layers by epoch, both losses: rows of a kind of norm, and of data sets with a layer each.

    A panel's title has the last norm with cross-entropy over that with the proposed loss.
    """
    figure = plots.figure(plots.WIDTH, 0.9 + 1.75 * len(rows))
    grid = figure.subplots(len(rows), max(len(panels) for _, panels in rows), squeeze=False)
    for row, (kind, panels) in zip(grid, rows, strict=True):
        row[0].set_ylabel(f"norm of the\n{'weights' if kind == WEIGHTS else 'pre-activations'}")
        for axes, (dataset, layer) in zip(row, panels, strict=True):
            runs = _both(axes, evidence, sweep, f"{dataset}_{{}}", norm(kind, layer), counted=False)
            if kind == WEIGHTS and runs:  # the first weights and the noise alone, the same for both losses
                epochs, noise = diagnostics.norm_epochs(runs[0]), noise_norms(runs[0])[layer]
                axes.plot(epochs, noise, "--", color=plots.GREY, linewidth=1, label="first weights and noise alone")
            last = " (last)" if layer == _layer_count(evidence, sweep, dataset) - 1 else ""
            first = f"{plots.DATASETS[dataset]}, {_sizes(evidence, sweep, dataset)}\n" if layer == 0 else ""
            final = {
                loss: [diagnostics.layer_norms(run, kind)[layer][-1] for run in runs if run.name.endswith(f"_{loss}")]
                for loss in LOSSES
            }
            ratio = f": × {np.mean(final['ce']) / np.mean(final['ours']):.2f}" if all(final.values()) else ""
            axes.set_title(f"{first}layer {layer + 1}{last}{ratio}", fontsize=8)
            axes.set_ylim(bottom=0)
    for axes in figure.axes[-len(row) :]:
        axes.set_xlabel("epoch")
    plots.one_legend(figure, title="×: cross-entropy's norm over the losing-less loss's, after the last epoch")
    return figure


figure_11, figure_12 = partial(_all_layers, WEIGHTS), partial(_all_layers, PRE_ACTIVATIONS)


def figure_14(evidence: Evidence) -> "plots.Figure":
    figure = plots.figure(6, 8)
    for axes, dataset in zip(figure.subplots(3, 1), DATASETS, strict=True):
        if _both(axes, evidence, "fig_11", f"{dataset}_{{}}", partial(histogram, None)):
            axes.set(**_TO_THE_LARGEST)
            plots.log_axis(axes, "y")
        axes.set(title=plots.DATASETS[dataset], ylabel="examples")
        axes.legend(loc="upper right")
    axes.set_xlabel(_GRADIENT)
    return figure


_TRAININGS = {"ours": "losing-less loss", "ce": "cross-entropy", "sgd": "without privacy"}


def figure_8(evidence: Evidence) -> "plots.Figure":
    """Draw confusion matrices on CIFAR-10's training set at two epochs: proposed loss, cross-entropy, no privacy."""
    rows = [("cifar10", epoch) for epoch in _config(evidence, "fig_8", "cifar10").confusion_epochs]
    return _matrices(evidence, rows, {"ours": "fig_8", "ce": "fig_8", "sgd": "sgd"})


def figure_13(evidence: Evidence) -> "plots.Figure":
    rows = []
    for dataset in DATASETS:
        config = _config(evidence, "fig_13", dataset)
        rows += [(dataset, epoch) for epoch in (*config.confusion_epochs, config.epochs)]
    return _matrices(evidence, rows, dict.fromkeys(_TRAININGS, "fig_13"))


def _config(evidence: Evidence, sweep: str, dataset: str) -> DictConfig:
    return evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_ours")[0].job.config


def _matrices(evidence: Evidence, rows: Sequence[tuple[str, int]], sweeps: dict[str, str]) -> "plots.Figure":
    """Draw a row per data set and epoch, a column per training: percent of the true class, the mean of the runs.

    A claimed number of the paper has a frame around its cell, and is in the panel's title.
    """
    figure = plots.figure(plots.WIDTH, 0.4 + 1.8 * len(rows) + 0.7 * len({dataset for dataset, _ in rows}))
    grid = figure.subplots(len(rows), len(_TRAININGS), squeeze=False)
    for place, (row, (dataset, epoch)) in enumerate(zip(grid, rows, strict=True)):
        names, below = CLASSES[dataset], [other for other, _ in rows[place + 1 :]]
        row[0].set_ylabel(f"{plots.DATASETS[dataset]}, epoch {epoch}\ntrue class")
        for axes, (loss, training) in zip(row, _TRAININGS.items(), strict=True):
            recorded = _runs(evidence, sweeps[loss], f"{dataset}_{loss}").recorded
            matrices = [m for run in recorded if (m := diagnostics.confusion(run, epoch)) is not None]
            if not matrices:
                axes.set_title(training, fontsize=8)
                plots.mark_not_run(axes, without_ticks=True)
                continue
            claims = claims_of(PAPER, item="fig-8", alone=f"{PAPER}/{dataset}_{loss}", at=f"epoch({epoch})")
            aims = {names[int(c.number.argument)]: c.aim for c in claims if c.aim is not None}
            claimed = aims if evidence.scale == PAPER_SCALE else {}
            _matrix(axes, np.mean(matrices, axis=0), names, claimed)
            axes.tick_params(labelleft=axes is row[0], labelbottom=dataset not in below)
            texts = [f"claimed {name}: {aim:g}" for name, aim in claimed.items()]
            axes.set_title("\n".join([f"{training}, {plots.count(len(matrices))}", *texts]), fontsize=8)
            if dataset not in below:
                axes.set_xlabel("predicted class")
    return figure


def _matrix(
    axes: "plots.Axes", matrix: diagnostics.Array, classes: Sequence[str], claimed: Mapping[str, float]
) -> None:
    from matplotlib.patches import Rectangle

    axes.grid(False)
    axes.imshow(matrix, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for (row, column), percent in np.ndenumerate(matrix):
        colour = "white" if percent > 55 else "#222222"
        if row == column or percent >= _SHOWN:
            axes.text(column, row, f"{percent:.0f}", ha="center", va="center", fontsize=8, color=colour)
    for place in map(classes.index, claimed):
        axes.add_patch(Rectangle((place - 0.5, place - 0.5), 1, 1, fill=False, edgecolor="firebrick", linewidth=1.5))
    axes.set_xticks(range(len(classes)), classes, rotation=90, fontsize=8)
    axes.set_yticks(range(len(classes)), classes, fontsize=8)

"""What the figures and measurements of this paper read from a run's diagnostics (see runner.training.diagnostics)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runner.report.runs import PlannedRun

WEIGHTS, PRE_ACTIVATIONS = "weights", "pre_activations"
BIN = 0.5  # width of a bin of gradient_histogram; the last holds all that is above the others

CLASSES = {  # in the order of the labels
    "mnist": list("0123456789"),
    "fashion_mnist": ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"],
    "cifar10": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
}

Array = NDArray[np.float64]


def norm_epochs(run: PlannedRun) -> list[int]:
    """The epochs that `layer_norms` are of: from 0, before training."""
    return list(run.diagnostic("layer_norms")["epoch"])


def layer_norms(run: PlannedRun, kind: str) -> list[list[float]]:
    """L2 norms of weights or pre_activations by layer, the last being the logits, and epoch: [layers][epochs + 1]."""
    return [[float(v) for v in values] for values in run.diagnostic("layer_norms")[kind].values()]


def gradient_norms(run: PlannedRun) -> dict[str, list[float]]:
    """Mean, median and p90 (90th percentile) of an epoch's per-example gradient norms, by epoch."""
    columns = run.diagnostic("gradient_histogram")
    return {name: [float(v) for v in columns[name]] for name in ("mean", "median", "p90")}


def gradient_counts(run: PlannedRun, epochs: int | None = None) -> Array:
    """Per-example gradients by norm, in bins of width 0.5 and one for the rest, of all or the first epochs: [201]."""
    by_epoch: Array = np.array(run.diagnostic("gradient_histogram")["counts"][:epochs], dtype=np.float64)
    counts: Array = by_epoch.sum(axis=0)
    return counts


def cosines(run: PlannedRun) -> tuple[Array, Array]:
    """Steps, from 0, and the cosine between clipped and unclipped mean gradient there: [measurements] each.

    Every `diagnostics_every` steps: those of the first epoch, all measured, would outweigh the others.
    """
    steps, values = _all_cosines(run)
    regular = steps % int(run.job.config.diagnostics_every) == 0
    return steps[regular], values[regular]


def first_epoch_cosines(run: PlannedRun) -> tuple[Array, Array]:
    """Steps of the first epoch, from 0, and the cosine of clipped and unclipped mean gradient at each: [steps] both."""
    steps, values = _all_cosines(run)
    first = steps < run.history("steps")[0]
    return steps[first], values[first]


def _all_cosines(run: PlannedRun) -> tuple[Array, Array]:
    columns = run.diagnostic("gradient_cosine")
    return np.array(columns["step"], dtype=np.float64), np.array([float(v) for v in columns["cosine"]])


def eigenvalues(run: PlannedRun) -> tuple[list[int], Array]:
    """Epochs, from 0, and the largest absolute eigenvalue of the Hessian: its largest singular value."""
    columns = run.diagnostic("hessian")
    return list(columns["epoch"]), np.abs(np.array([float(v) for v in columns["eigenvalue"]]))


def confusion(run: PlannedRun, epoch: int) -> Array | None:
    """Percent of a true class (row) predicted as a class (column), training set: [10, 10]; None if not recorded."""
    columns = run.diagnostic("confusion")
    if epoch not in columns["epoch"]:
        return None
    counts = np.array(columns["counts"][columns["epoch"].index(epoch)], dtype=np.float64)
    percent: Array = 100 * counts / counts.sum(axis=1, keepdims=True)
    return percent


def class_accuracies(run: PlannedRun, epoch: int) -> list[float]:
    """Accuracy in percent on the training set by class, after an epoch of which the confusion is recorded: [10]."""
    matrix = confusion(run, epoch)
    assert matrix is not None
    return [float(percent) for percent in np.diag(matrix)]

"""Read a run's recorded diagnostics (see `runner.training.diagnostics`)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from runner.claims.runs import PlannedRun

WEIGHTS, PRE_ACTIVATIONS = "weights", "pre_activations"

Array: TypeAlias = NDArray[np.float64]


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
    regular = steps % int(run.field("diagnostics_every")) == 0
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


def geometric_mean(values: Array) -> float:
    """The geometric mean of positive numbers."""
    return float(np.exp(np.mean(np.log(values))))


def mean_gradient_norms(run: PlannedRun) -> tuple[list[int], list[float]]:
    """Steps and mean L2 norm of the batch's per-example gradients before clipping: [measurements] each."""
    columns = run.diagnostic("gradient_norms")
    return list(columns["step"]), [float(v) for v in columns["mean"]]


def first_activation_norms(run: PlannedRun) -> tuple[list[int], list[float]]:
    """Steps and mean L2 norm of an example's output of the first hidden activation: [measurements] each."""
    columns = run.diagnostic("activation_norms")
    first = next(name for name in columns if name != "step")
    return list(columns["step"]), [float(v) for v in columns[first]]


def triangular_average(values: Sequence[float]) -> list[float]:
    """Moving average with the weights 1, 2, 1 (window 3); at either end over the two values there are."""
    padded: list[float | None] = [None, *values, None]
    smooth = []
    for i in range(1, len(padded) - 1):
        pairs = [(w, v) for w, v in zip((1, 2, 1), padded[i - 1 : i + 2], strict=True) if v is not None]
        smooth.append(sum(w * v for w, v in pairs) / sum(w for w, _ in pairs))
    return smooth


def level(steps: Sequence[int], values: Sequence[float]) -> float:
    """The level a norm ends at: mean of its triangular moving average over the last quarter of the steps."""
    smooth = triangular_average(values)
    return fmean(v for step, v in zip(steps, smooth, strict=True) if step >= 0.75 * steps[-1])

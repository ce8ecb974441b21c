"""A run's recorded diagnostics (see `runner.training.diagnostics`), as lists and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runner.claims.runs import PlannedRun

WEIGHTS, PRE_ACTIVATIONS = "weights", "pre_activations"

Array: TypeAlias = NDArray[np.float64]


def norm_epochs(run: PlannedRun) -> list[int]:
    """Return the epochs of `layer_norms`, from 0, before training."""
    return list(run.diagnostic("layer_norms")["epoch"])


def layer_norms(run: PlannedRun, kind: str) -> list[list[float]]:
    """Return L2 norms of weights or pre_activations: [layers][epochs + 1]; the last layer gives the logits."""
    return [_floats(values) for values in run.diagnostic("layer_norms")[kind].values()]


def gradient_norms(run: PlannedRun) -> dict[str, list[float]]:
    """Return mean, median and p90 (90th percentile) of an epoch's per-example gradient norms, by epoch."""
    columns = run.diagnostic("gradient_histogram")
    return {name: _floats(columns[name]) for name in ("mean", "median", "p90")}


def gradient_counts(run: PlannedRun, epochs: int | None = None) -> Array:
    """Count per-example gradients of all or the first epochs by norm: [201], bins of width 0.5 and one for the rest."""
    by_epoch = np.array(run.diagnostic("gradient_histogram")["counts"][:epochs], dtype=np.float64)
    counts: Array = by_epoch.sum(axis=0)
    return counts


def cosines(run: PlannedRun) -> tuple[Array, Array]:
    """Return steps, from 0, and the cosine between clipped and unclipped mean gradient there: [measurements] each.

    Only every `diagnostics_every`-th step counts: all steps of the first epoch are measured and would dominate.
    """
    steps, values = _all_cosines(run)
    regular = steps % int(run.field("diagnostics_every")) == 0
    return steps[regular], values[regular]


def first_epoch_cosines(run: PlannedRun) -> tuple[Array, Array]:
    """Return the first epoch's steps, from 0, and the cosine of clipped and unclipped mean gradient: [steps] both."""
    steps, values = _all_cosines(run)
    first = steps < run.history("steps")[0]
    return steps[first], values[first]


def _all_cosines(run: PlannedRun) -> tuple[Array, Array]:
    columns = run.diagnostic("gradient_cosine")
    return np.array(columns["step"], dtype=np.float64), np.array(_floats(columns["cosine"]))


def eigenvalues(run: PlannedRun) -> tuple[list[int], Array]:
    """Return epochs, from 0, and the largest absolute eigenvalue of the Hessian, its largest singular value."""
    columns = run.diagnostic("hessian")
    return list(columns["epoch"]), np.abs(np.array(_floats(columns["eigenvalue"])))


def confusion(run: PlannedRun, epoch: int) -> Array | None:
    """Return the percentage of a true class (row) predicted as a class (column), on the training set: [10, 10].

    None if this epoch is not recorded.
    """
    columns = run.diagnostic("confusion")
    if epoch not in columns["epoch"]:
        return None
    counts = np.array(columns["counts"][columns["epoch"].index(epoch)], dtype=np.float64)
    percent: Array = 100 * counts / counts.sum(axis=1, keepdims=True)
    return percent


def class_accuracies(run: PlannedRun, epoch: int) -> list[float]:
    """Return accuracies in percent on the training set by class, after an epoch with a recorded confusion: [10]."""
    matrix = confusion(run, epoch)
    assert matrix is not None
    return _floats(np.diag(matrix))


def mean_gradient_norms(run: PlannedRun) -> tuple[list[int], list[float]]:
    """Return steps and the mean L2 norm of the batch's per-example gradients before clipping: [measurements] each."""
    columns = run.diagnostic("gradient_norms")
    return list(columns["step"]), _floats(columns["mean"])


def first_activation_norms(run: PlannedRun) -> tuple[list[int], list[float]]:
    """Return steps and the mean L2 norm of an example's output of the first hidden activation: [measurements] each."""
    columns = run.diagnostic("activation_norms")
    first = next(name for name in columns if name != "step")
    return list(columns["step"]), _floats(columns[first])


def triangular_average(values: Sequence[float]) -> list[float]:
    """Compute the moving average with the weights 1, 2, 1 (window 3), at either end over the two values there."""
    sums, weights = (np.convolve(terms, (1, 2, 1))[1:-1] for terms in (values, np.ones(len(values))))
    return _floats(sums / weights)


def level(steps: Sequence[int], values: Sequence[float]) -> float:
    """Return the level that a norm ends at: mean of its triangular moving average over the last quarter of steps."""
    smooth = triangular_average(values)
    return fmean(v for step, v in zip(steps, smooth, strict=True) if step >= 0.75 * steps[-1])


def _floats(values: Iterable[Any]) -> list[float]:
    """Convert recorded numbers; a record has non-finite ones as texts."""
    return [float(value) for value in values]

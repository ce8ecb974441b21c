"""Readers: the number of one run that a claim is about, by the name that `number` has in a file of claims.

A reader is a function of a recorded run, an epoch from 0 and, for some, the argument in brackets. It returns one
number, or several numbers that all have to meet the claim. For diagnostics see `runner.training.diagnostics`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from inspect import signature
from statistics import fmean, geometric_mean, pstdev
from typing import Any, TypeAlias

import numpy as np

from runner.claims import diagnostics
from runner.claims.claim import called
from runner.claims.diagnostics import PRE_ACTIVATIONS, WEIGHTS, layer_norms, level
from runner.claims.runs import PlannedRun

Reader: TypeAlias = Callable[[PlannedRun, int], float | Sequence[float]]
_OTHERS = ("reader_of", "check")  # functions of this module that are no readers


def reader_of(text: str) -> Reader:
    """Return the reader that a text names, with its argument."""
    name, argument = called(text)
    found: Callable[..., float | Sequence[float]] = _readers()[name]
    return (lambda run, epoch: found(run, epoch, argument)) if argument else found


def check(text: str, formulas: Collection[str]) -> None:
    """Check the name of a reader, with its argument, or of one of the `formulas`.

    Raises:
        ValueError: there is no such reader.
    """
    name, argument = called(text)
    if name in formulas:
        return
    if name not in _readers():
        raise ValueError(f"no number {name!r}: choose from {', '.join(sorted((*_readers(), *formulas)))}")
    if bool(argument) != (len(signature(_readers()[name]).parameters) > 2):
        raise ValueError(f"{name} takes {'no ' if argument else 'an '}argument in brackets")


def _readers() -> dict[str, Callable[..., Any]]:
    own = {name: value for name, value in globals().items() if getattr(value, "__module__", "") == __name__}
    return {name: value for name, value in own.items() if name not in _OTHERS and not name.startswith("_")}


def test_accuracy(run: PlannedRun, epoch: int) -> float:
    """Return the accuracy in percent, on the images that the run is measured on."""
    return run.history("test_accuracy")[epoch]


def mean_accuracy(run: PlannedRun, epoch: int) -> float:
    """Return the mean accuracy over the epochs up to this one, in percent."""
    return fmean(run.history("test_accuracy")[: epoch + 1])


def mean_less_end(run: PlannedRun, epoch: int) -> float:
    """Return the mean accuracy up to this epoch minus the accuracy at the end, in points."""
    return mean_accuracy(run, epoch) - run.history("test_accuracy")[-1]


def class_accuracy_std(run: PlannedRun, _: int) -> float:
    """Return the standard deviation of the last epoch's class accuracies, in points, with n in the denominator."""
    return pstdev(float(value) for value in run.diagnostic("per_class_accuracy")[-1])


def class_train_accuracy(run: PlannedRun, epoch: int, label: str) -> float:
    """Return the accuracy in percent on the training images of the class with this label, from 0."""
    return diagnostics.class_accuracies(run, epoch + 1)[int(label)]


def logit_norm(run: PlannedRun, _: int) -> float:
    """Return the norm of the logits after the last epoch."""
    return layer_norms(run, PRE_ACTIVATIONS)[-1][-1]


def last_weight_norm(run: PlannedRun, _: int) -> float:
    """Return the norm of the last layer's weights after the last epoch."""
    return layer_norms(run, WEIGHTS)[-1][-1]


def hidden_weight_norms(run: PlannedRun, _: int) -> list[float]:
    """Return the norm of each layer's weights after the last epoch, without the last layer."""
    return [values[-1] for values in layer_norms(run, WEIGHTS)[:-1]]


def mean_weight_norm(run: PlannedRun, _: int) -> float:
    """Return the mean over the layers of the norm of their weights, after the last epoch."""
    return fmean(values[-1] for values in layer_norms(run, WEIGHTS))


def pre_activation_norms(run: PlannedRun, _: int) -> list[float]:
    """Return the norm of each layer's pre-activations after the last epoch."""
    return [values[-1] for values in layer_norms(run, PRE_ACTIVATIONS)]


def gradient_norm(run: PlannedRun, epoch: int) -> float:
    """Return the mean norm of the per-example gradients of an epoch."""
    return diagnostics.gradient_norms(run)["mean"][epoch]


def gradient_norm_of_all(run: PlannedRun, _: int) -> float:
    """Return the mean norm of the per-example gradients of all epochs."""
    return fmean(diagnostics.gradient_norms(run)["mean"])


def gradient_norm_spread(run: PlannedRun, epoch: int) -> float:
    """Return the 90th percentile minus the median of an epoch's per-example gradient norms."""
    norms = diagnostics.gradient_norms(run)
    return norms["p90"][epoch] - norms["median"][epoch]


def gradient_norm_level(run: PlannedRun, _: int) -> float:
    """Return the level at which the mean norm of a batch's per-example gradients ends."""
    return level(*diagnostics.mean_gradient_norms(run))


def first_activation_level(run: PlannedRun, _: int) -> float:
    """Return the level at which the mean norm of the first hidden activation ends."""
    return level(*diagnostics.first_activation_norms(run))


def cosine(run: PlannedRun, _: int) -> float:
    """Return the cosine of clipped and unclipped mean gradient, averaged over steps at equal distances."""
    return float(np.mean(diagnostics.cosines(run)[1]))


def first_epoch_cosine(run: PlannedRun, _: int) -> float:
    """Return the cosine of clipped and unclipped mean gradient, averaged over the steps of the first epoch."""
    return float(np.mean(diagnostics.first_epoch_cosines(run)[1]))


def eigenvalue(run: PlannedRun, _: int) -> float:
    """Return the Hessian's largest singular value: geometric mean over the epochs."""
    return geometric_mean(diagnostics.eigenvalues(run)[1])


def early_eigenvalue(run: PlannedRun, _: int) -> float:
    """Return the Hessian's largest singular value: geometric mean of the first quarter of epochs over the rest's."""
    values = diagnostics.eigenvalues(run)[1]
    quarter = 1 + (len(values) - 1) // 4  # epoch 0 is before training
    return geometric_mean(values[:quarter]) / geometric_mean(values[quarter:])


def largest_image_norm(run: PlannedRun, _: int) -> float:
    """Return the largest L2 norm of an image that the run saw."""
    return float(run.diagnostic("norm_histograms")["inputs"]["largest"])

"""What is read of one run for a claim, by the name that `number` has in a file of claims.

A reader is a function of a recorded run, an epoch from 0 and, where it says so, the argument in brackets. It gives one
number, or several of which each has to hold. Diagnostics: see `runner.training.diagnostics`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from inspect import signature
from statistics import fmean, pstdev
from typing import Any, TypeAlias

import numpy as np

from runner.claims.claim import called
from runner.claims.diagnostics import (
    PRE_ACTIVATIONS,
    WEIGHTS,
    class_accuracies,
    cosines,
    eigenvalues,
    first_activation_norms,
    first_epoch_cosines,
    geometric_mean,
    gradient_norms,
    layer_norms,
    level,
    mean_gradient_norms,
)
from runner.claims.runs import PlannedRun

Reader: TypeAlias = Callable[[PlannedRun, int], float | Sequence[float]]


def reader_of(text: str) -> Reader:
    """The reader that a text names, with its argument."""
    name, argument = called(text)
    found: Callable[..., float | Sequence[float]] = _readers()[name]
    return (lambda run, epoch: found(run, epoch, argument)) if argument else found


def check(text: str, formulas: Collection[str] = ()) -> None:
    """Check the name of a reader, or of a function of the paper's own.

    Args:
        formulas: the names of these functions; any name, if there are none.

    Raises:
        ValueError: there is no such reader.
    """
    name, argument = called(text)
    if name in formulas or (not formulas and name not in _readers()):
        return
    if name not in _readers():
        raise ValueError(f"no number {name!r}: choose from {', '.join(sorted((*_readers(), *formulas)))}")
    if bool(argument) != (len(signature(_readers()[name]).parameters) > 2):
        raise ValueError(f"{name} takes {'no ' if argument else 'an '}argument in brackets")


def _readers() -> dict[str, Callable[..., Any]]:
    own = {name: value for name, value in globals().items() if getattr(value, "__module__", "") == __name__}
    return {name: value for name, value in own.items() if name not in _OTHERS and not name.startswith("_")}


_OTHERS = ("reader_of", "check")


def test_accuracy(run: PlannedRun, epoch: int) -> float:
    """Accuracy in percent, on the images that the run is measured on."""
    return run.history("test_accuracy")[epoch]


def mean_accuracy(run: PlannedRun, epoch: int) -> float:
    """Mean of the accuracies after each epoch up to this one, in percent."""
    return fmean(run.history("test_accuracy")[: epoch + 1])


def mean_less_end(run: PlannedRun, epoch: int) -> float:
    """Mean of the accuracies up to this epoch less the accuracy at the end, in points."""
    return mean_accuracy(run, epoch) - run.history("test_accuracy")[-1]


def class_accuracy_std(run: PlannedRun, _: int) -> float:
    """Standard deviation over the classes of the last epoch's accuracies, in points, with n in the denominator."""
    return pstdev(float(value) for value in run.diagnostic("per_class_accuracy")[-1])


def class_train_accuracy(run: PlannedRun, epoch: int, label: str) -> float:
    """Accuracy in percent on the training images of the class with this label, from 0."""
    return class_accuracies(run, epoch + 1)[int(label)]


def logit_norm(run: PlannedRun, _: int) -> float:
    """Norm of the logits after the last epoch."""
    return layer_norms(run, PRE_ACTIVATIONS)[-1][-1]


def last_weight_norm(run: PlannedRun, _: int) -> float:
    """Norm of the last layer's weights after the last epoch."""
    return layer_norms(run, WEIGHTS)[-1][-1]


def hidden_weight_norms(run: PlannedRun, _: int) -> list[float]:
    """Norm of each layer's weights after the last epoch, without the last layer."""
    return [values[-1] for values in layer_norms(run, WEIGHTS)[:-1]]


def pre_activation_norms(run: PlannedRun, _: int) -> list[float]:
    """Norm of each layer's pre-activations after the last epoch."""
    return [values[-1] for values in layer_norms(run, PRE_ACTIVATIONS)]


def gradient_norm(run: PlannedRun, epoch: int) -> float:
    """Mean norm of the per-example gradients of an epoch."""
    return gradient_norms(run)["mean"][epoch]


def gradient_norm_of_all(run: PlannedRun, _: int) -> float:
    """Mean norm of the per-example gradients of all epochs."""
    return fmean(gradient_norms(run)["mean"])


def gradient_norm_spread(run: PlannedRun, epoch: int) -> float:
    """The 90th percentile less the median of the norms of the per-example gradients of an epoch."""
    norms = gradient_norms(run)
    return norms["p90"][epoch] - norms["median"][epoch]


def gradient_norm_level(run: PlannedRun, _: int) -> float:
    """The level at which the mean norm of a batch's per-example gradients ends."""
    return level(*mean_gradient_norms(run))


def first_activation_level(run: PlannedRun, _: int) -> float:
    """The level at which the mean norm of the first hidden activation ends."""
    return level(*first_activation_norms(run))


def cosine(run: PlannedRun, _: int) -> float:
    """Cosine of clipped and unclipped mean gradient: mean over steps at equal distances."""
    return float(np.mean(cosines(run)[1]))


def first_epoch_cosine(run: PlannedRun, _: int) -> float:
    """Cosine of clipped and unclipped mean gradient: mean over the steps of the first epoch."""
    return float(np.mean(first_epoch_cosines(run)[1]))


def eigenvalue(run: PlannedRun, _: int) -> float:
    """Largest singular value of the Hessian: geometric mean over the epochs."""
    return geometric_mean(eigenvalues(run)[1])


def early_eigenvalue(run: PlannedRun, _: int) -> float:
    """Largest singular value of the Hessian: geometric mean of the first quarter of epochs over that of the rest."""
    values = eigenvalues(run)[1]
    quarter = 1 + (len(values) - 1) // 4  # epoch 0 is before training
    return geometric_mean(values[:quarter]) / geometric_mean(values[quarter:])


def largest_image_norm(run: PlannedRun, _: int) -> float:
    """Largest L2 norm of an image that the run saw."""
    return float(run.diagnostic("norm_histograms")["inputs"]["largest"])

"""What a claim reads of one run: its epoch, which `at` names in a file of claims, and the number that `number` names.

A reader is a function of a recorded run, an epoch from 0 and, for some, the argument in brackets. It returns one
number, or several numbers that all have to meet the claim. For diagnostics see `runner.training.diagnostics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from inspect import signature
from statistics import fmean, geometric_mean, pstdev
from typing import TypeAlias, TypeVar

import numpy as np

from runner.claims import diagnostics
from runner.claims.claim import Call, Claim
from runner.claims.diagnostics import PRE_ACTIVATIONS, WEIGHTS, layer_norms, level
from runner.claims.runs import PlannedRun

Named = TypeVar("Named", bound=Callable[..., "float | Sequence[float]"])
Reader: TypeAlias = Callable[[PlannedRun, int], float | Sequence[float]]
Epoch: TypeAlias = Callable[[PlannedRun], int | None]  # from 0; None: the run has no such epoch
FIFTHS = 5
_ROUNDING = 1e-9  # records are rounded up


def epochs_of(claim: Claim) -> list[Epoch]:
    """List the epochs that a claim is about: one of each run, or five with `each_fifth`."""

    def fifth(run: PlannedRun, part: int) -> int:
        return max(1, (run.last_epoch + 1) * part // FIFTHS) - 1

    if claim.at.name == "each_fifth":
        return [partial(fifth, part=part) for part in range(1, FIFTHS + 1)]
    return [_EPOCHS[claim.at.name](claim, claim.at.argument)]


def check_epoch(epoch: Call) -> None:
    """Check the name of an epoch.

    Raises:
        ValueError: there is no such epoch.
    """
    name, argument = epoch.name, epoch.argument
    if name not in (*_EPOCHS, "each_fifth"):
        raise ValueError(f"no epoch {name!r}: choose from {', '.join((*_EPOCHS, 'each_fifth'))}")
    if (name in _WITH_NUMBER) != bool(argument):
        raise ValueError(f"{name} takes {'a' if name in _WITH_NUMBER else 'no'} number in brackets")
    if argument:
        float(argument)


def _last_within(run: PlannedRun, bound: float, by: str = "epsilon") -> int | None:
    """Return the last epoch whose epsilon (or epsilon_sound) is within a bound; without privacy the last of all."""
    return run.last_epoch if math.isinf(run.history(by)[0]) else run.last_within(bound, by)


_EPOCHS: dict[str, Callable[[Claim, str], Epoch]] = {
    "last": lambda *_: lambda run: run.last_epoch,
    "first": lambda *_: lambda _: 0,
    # Of the epochs in the config. A run that diverged before has its last one.
    "quarter": lambda *_: lambda run: min(max(1, int(run.field("epochs")) // 4) - 1, run.last_epoch),
    "epoch": lambda _, number: lambda run: int(number) - 1 if int(number) <= run.last_epoch + 1 else None,
    "below": lambda claim, _: lambda run: _last_within(run, math.nextafter(claim.bound, 0)),
    "within": lambda claim, _: lambda run: _last_within(run, claim.bound),
    "sound_within": lambda _, number: lambda run: _last_within(run, float(number) + _ROUNDING, "epsilon_sound"),
}
_WITH_NUMBER = ("epoch", "sound_within")
READERS: dict[str, Callable[..., float | Sequence[float]]] = {}


def reader_of(number: Call) -> Reader:
    """Return the reader that a claim names, with its argument."""
    read = READERS[number.name]
    return (lambda run, epoch: read(run, epoch, number.argument)) if number.argument else read


def check_number(number: Call, formulas: Collection[str]) -> None:
    """Check the name of a reader, with its argument, or of one of the `formulas`.

    Raises:
        ValueError: there is no such reader.
    """
    name, argument = number.name, number.argument
    if name in formulas:
        return
    if name not in READERS:
        raise ValueError(f"no number {name!r}: choose from {', '.join(sorted((*READERS, *formulas)))}")
    if bool(argument) != (len(signature(READERS[name]).parameters) > 2):
        raise ValueError(f"{name} takes {'no ' if argument else 'an '}argument in brackets")


def reader(function: Named) -> Named:
    """Make a function known to `number` by its name."""
    READERS[function.__name__] = function
    return function


@reader
def test_accuracy(run: PlannedRun, epoch: int) -> float:
    """Return the accuracy in percent, on the images that the run is measured on."""
    return run.history("test_accuracy")[epoch]


@reader
def mean_accuracy(run: PlannedRun, epoch: int) -> float:
    """Return the mean accuracy over the epochs up to this one, in percent."""
    return fmean(run.history("test_accuracy")[: epoch + 1])


@reader
def mean_less_end(run: PlannedRun, epoch: int) -> float:
    """Return the mean accuracy up to this epoch minus the accuracy at the end, in points."""
    return mean_accuracy(run, epoch) - run.history("test_accuracy")[-1]


@reader
def class_accuracy_std(run: PlannedRun, _: int) -> float:
    """Return the standard deviation of the last epoch's class accuracies, in points, with n in the denominator."""
    return pstdev(float(value) for value in run.diagnostic("per_class_accuracy")[-1])


@reader
def class_train_accuracy(run: PlannedRun, epoch: int, label: str) -> float:
    """Return the accuracy in percent on the training images of the class with this label, from 0."""
    return diagnostics.class_accuracies(run, epoch + 1)[int(label)]


@reader
def logit_norm(run: PlannedRun, _: int) -> float:
    """Return the norm of the logits after the last epoch."""
    return layer_norms(run, PRE_ACTIVATIONS)[-1][-1]


@reader
def last_weight_norm(run: PlannedRun, _: int) -> float:
    """Return the norm of the last layer's weights after the last epoch."""
    return layer_norms(run, WEIGHTS)[-1][-1]


@reader
def hidden_weight_norms(run: PlannedRun, _: int) -> list[float]:
    """Return the norm of each layer's weights after the last epoch, without the last layer."""
    return [values[-1] for values in layer_norms(run, WEIGHTS)[:-1]]


@reader
def mean_weight_norm(run: PlannedRun, _: int) -> float:
    """Return the mean over the layers of the norm of their weights, after the last epoch."""
    return fmean(values[-1] for values in layer_norms(run, WEIGHTS))


@reader
def pre_activation_norms(run: PlannedRun, _: int) -> list[float]:
    """Return the norm of each layer's pre-activations after the last epoch."""
    return [values[-1] for values in layer_norms(run, PRE_ACTIVATIONS)]


@reader
def gradient_norm(run: PlannedRun, epoch: int) -> float:
    """Return the mean norm of the per-example gradients of an epoch."""
    return diagnostics.gradient_norms(run)["mean"][epoch]


@reader
def gradient_norm_of_all(run: PlannedRun, _: int) -> float:
    """Return the mean norm of the per-example gradients of all epochs."""
    return fmean(diagnostics.gradient_norms(run)["mean"])


@reader
def gradient_norm_spread(run: PlannedRun, epoch: int) -> float:
    """Return the 90th percentile minus the median of an epoch's per-example gradient norms."""
    norms = diagnostics.gradient_norms(run)
    return norms["p90"][epoch] - norms["median"][epoch]


@reader
def gradient_norm_level(run: PlannedRun, _: int) -> float:
    """Return the level at which the mean norm of a batch's per-example gradients ends."""
    return level(*diagnostics.mean_gradient_norms(run))


@reader
def first_activation_level(run: PlannedRun, _: int) -> float:
    """Return the level at which the mean norm of the first hidden activation ends."""
    return level(*diagnostics.first_activation_norms(run))


@reader
def cosine(run: PlannedRun, _: int) -> float:
    """Return the cosine of clipped and unclipped mean gradient, averaged over steps at equal distances."""
    return float(np.mean(diagnostics.cosines(run)[1]))


@reader
def first_epoch_cosine(run: PlannedRun, _: int) -> float:
    """Return the cosine of clipped and unclipped mean gradient, averaged over the steps of the first epoch."""
    return float(np.mean(diagnostics.first_epoch_cosines(run)[1]))


@reader
def eigenvalue(run: PlannedRun, _: int) -> float:
    """Return the Hessian's largest singular value: geometric mean over the epochs."""
    return geometric_mean(diagnostics.eigenvalues(run)[1])


@reader
def early_eigenvalue(run: PlannedRun, _: int) -> float:
    """Return the Hessian's largest singular value: geometric mean of the first quarter of epochs over the rest's."""
    values = diagnostics.eigenvalues(run)[1]
    quarter = 1 + (len(values) - 1) // 4  # epoch 0 is before training
    return geometric_mean(values[:quarter]) / geometric_mean(values[quarter:])


@reader
def largest_image_norm(run: PlannedRun, _: int) -> float:
    """Return the largest L2 norm of an image that the run saw."""
    return float(run.diagnostic("norm_histograms")["inputs"]["largest"])

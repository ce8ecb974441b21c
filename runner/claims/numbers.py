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
from typing import TypeAlias

import numpy as np

from runner.claims import diagnostics
from runner.claims.claim import Call, Claim
from runner.claims.diagnostics import PRE_ACTIVATIONS, WEIGHTS, layer_norms, level
from runner.claims.runs import PlannedRun

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


def class_accuracy_std(run: PlannedRun, _: int) -> float:
    """Return the standard deviation of the last epoch's class accuracies, in points, with n in the denominator."""
    return pstdev(float(value) for value in run.diagnostic("per_class_accuracy")[-1])


def _mean_accuracy(run: PlannedRun, epoch: int) -> float:
    return fmean(run.history("test_accuracy")[: epoch + 1])


def _gradient_norm_spread(run: PlannedRun, epoch: int) -> float:
    norms = diagnostics.gradient_norms(run)
    return norms["p90"][epoch] - norms["median"][epoch]


def _gradient_growth(run: PlannedRun, _: int) -> float:
    norms = run.diagnostic("layer_gradients")["total"]
    return float(norms[-1]) / float(norms[0])


def _eigenvalue(run: PlannedRun, _: int, part: str = "") -> float:
    """Return the geometric mean over all epochs, the first quarter of them (`early`), or the others (`late`)."""
    values = diagnostics.eigenvalues(run)[1]
    quarter = 1 + (len(values) - 1) // 4  # epoch 0 is before training
    return geometric_mean({"": values, "early": values[:quarter], "late": values[quarter:]}[part])


READERS: dict[str, Callable[..., float | Sequence[float]]] = {
    # Accuracies in percent, on the images that the run is measured on, and their differences in points. A mean is over
    # the epochs up to the given one, and the end is the last epoch.
    "test_accuracy": lambda run, epoch: run.history("test_accuracy")[epoch],
    "mean_accuracy": _mean_accuracy,
    "mean_less_end": lambda run, epoch: _mean_accuracy(run, epoch) - run.history("test_accuracy")[-1],
    "class_accuracy_std": class_accuracy_std,
    # The accuracy in percent on the training images of the class with this label, from 0.
    "class_train_accuracy": lambda run, epoch, label: diagnostics.class_accuracies(run, epoch + 1)[int(label)],
    # L2 norms after the last epoch: of the logits, of layers' weights (hidden: without the last layer), of
    # pre-activations.
    "logit_norm": lambda run, _: layer_norms(run, PRE_ACTIVATIONS)[-1][-1],
    "last_weight_norm": lambda run, _: layer_norms(run, WEIGHTS)[-1][-1],
    "hidden_weight_norms": lambda run, _: [values[-1] for values in layer_norms(run, WEIGHTS)[:-1]],
    "mean_weight_norm": lambda run, _: fmean(values[-1] for values in layer_norms(run, WEIGHTS)),
    "pre_activation_norms": lambda run, _: [values[-1] for values in layer_norms(run, PRE_ACTIVATIONS)],
    # Norms of per-example gradients: the mean of an epoch, the mean of all epochs, and the 90th percentile minus the
    # median of an epoch. The mean of a batch over all steps, and the level at which it ends. Then that level of the
    # first hidden activation.
    "gradient_norm": lambda run, epoch: diagnostics.gradient_norms(run)["mean"][epoch],
    "gradient_norm_of_all": lambda run, _: fmean(diagnostics.gradient_norms(run)["mean"]),
    "gradient_norm_spread": _gradient_norm_spread,
    "mean_gradient_norm": lambda run, _: fmean(diagnostics.mean_gradient_norms(run)[1]),
    "gradient_norm_level": lambda run, _: level(*diagnostics.mean_gradient_norms(run)),
    "first_activation_level": lambda run, _: level(*diagnostics.first_activation_norms(run)),
    # The norm of an example's gradient at the end over that before training. Then the part of its squared norm that
    # clipping moves between layers, in the mean of all epochs.
    "gradient_growth": _gradient_growth,
    "moved_gradient": lambda run, _: fmean(run.diagnostic("layer_gradients")["moved"]),
    # The cosine of clipped and unclipped mean gradient, averaged over steps at equal distances, or of the first epoch.
    "cosine": lambda run, _: float(np.mean(diagnostics.cosines(run)[1])),
    "first_epoch_cosine": lambda run, _: float(np.mean(diagnostics.first_epoch_cosines(run)[1])),
    # The Hessian's largest singular value: geometric mean over the epochs, or a part of them, and of the first quarter
    # over the rest's.
    "eigenvalue": _eigenvalue,
    "early_eigenvalue": lambda run, epoch: _eigenvalue(run, epoch, "early") / _eigenvalue(run, epoch, "late"),
    # The largest L2 norm of an image that the run saw.
    "largest_image_norm": lambda run, _: float(run.diagnostic("norm_histograms")["inputs"]["largest"]),
}


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

"""What a claim reads of one run: its epoch, which `at` names in a file of claims, and the number that `number` names.

A reader is a function of a recorded run, an epoch from 0 and, for some, the argument in brackets. It returns one
number, or several numbers that all have to meet the claim. Some read the run's diagnostics (see
`runner.training.diagnostics`), by functions that return lists and arrays.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from inspect import signature
from statistics import fmean, geometric_mean, median, pstdev
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runner.claims.claim import Call, Claim
from runner.claims.evidence import PlannedRun

Reader: TypeAlias = Callable[[PlannedRun, int], float | Sequence[float]]
Epoch: TypeAlias = Callable[[PlannedRun], int | None]  # from 0; None: the run has no such epoch
Array: TypeAlias = NDArray[np.float64]
WEIGHTS, PRE_ACTIVATIONS = "weights", "pre_activations"
FIFTHS = 5
_ROUNDING = 1e-9  # records are rounded up


def epochs_of(claim: Claim) -> list[Epoch]:
    """List the epochs that a claim is about: one of each run, or five with `each_fifth`."""

    def fifth(run: PlannedRun, part: int) -> int:
        return max(1, (run.last_epoch + 1) * part // FIFTHS) - 1

    if claim.at.name == "each_fifth":
        return [partial(fifth, part=part) for part in range(1, FIFTHS + 1)]
    return [_EPOCHS[claim.at.name](claim, claim.at.argument)]


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


def cosines(run: PlannedRun, *, first_epoch: bool = False) -> tuple[Array, Array]:
    """Return steps, from 0, and the cosine between clipped and unclipped mean gradient there: [measurements] each.

    All steps of the first epoch are measured. With others they would dominate, so every `diagnostics_every`-th counts.
    """
    columns = run.diagnostic("gradient_cosine")
    steps, values = np.array(columns["step"], dtype=np.float64), np.array(_floats(columns["cosine"]))
    counted = steps < run.history("steps")[0] if first_epoch else steps % int(run.field("diagnostics_every")) == 0
    return steps[counted], values[counted]


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


def late_gradient_p90(run: PlannedRun) -> float:
    """Return the norm that nine of ten of a batch's gradients do not exceed: median over the last quarter of steps.

    A few steps have much larger gradients, so that a mean would tell of them alone.
    """
    columns = run.diagnostic("gradient_norms")
    pairs = zip(columns["step"], _floats(columns["p90"]), strict=True)
    return median(p90 for step, p90 in pairs if step >= 0.75 * columns["step"][-1])


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


def class_accuracy_std(run: PlannedRun, _: int) -> float:
    """Return the standard deviation of the last epoch's class accuracies, in points, with n in the denominator."""
    return pstdev(float(value) for value in run.diagnostic("per_class_accuracy")[-1])


def _mean_accuracy(run: PlannedRun, epoch: int) -> float:
    return fmean(run.history("test_accuracy")[: epoch + 1])


def _eigenvalue(run: PlannedRun, _: int, part: str = "") -> float:
    """Return the geometric mean over all epochs, the first quarter of them (`early`), or the others (`late`)."""
    values = eigenvalues(run)[1]
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
    "class_train_accuracy": lambda run, epoch, label: class_accuracies(run, epoch + 1)[int(label)],
    # L2 norms after the last epoch: of the logits, of layers' weights (hidden: without the last layer), of
    # pre-activations.
    "logit_norm": lambda run, _: layer_norms(run, PRE_ACTIVATIONS)[-1][-1],
    "last_weight_norm": lambda run, _: layer_norms(run, WEIGHTS)[-1][-1],
    "hidden_weight_norms": lambda run, _: [values[-1] for values in layer_norms(run, WEIGHTS)[:-1]],
    "mean_weight_norm": lambda run, _: fmean(values[-1] for values in layer_norms(run, WEIGHTS)),
    "pre_activation_norms": lambda run, _: [values[-1] for values in layer_norms(run, PRE_ACTIVATIONS)],
    # Norms of per-example gradients: the mean of an epoch, the mean of all epochs, and the 90th percentile minus the
    # median of an epoch. The mean of a batch over all steps, and the level at which it ends. The 90th percentile of a
    # batch late in training. Then the level of the first hidden activation.
    "gradient_norm": lambda run, epoch: gradient_norms(run)["mean"][epoch],
    "gradient_norm_of_all": lambda run, _: fmean(gradient_norms(run)["mean"]),
    "gradient_norm_spread": lambda run, epoch: (norms := gradient_norms(run))["p90"][epoch] - norms["median"][epoch],
    "mean_gradient_norm": lambda run, _: fmean(mean_gradient_norms(run)[1]),
    "gradient_norm_level": lambda run, _: level(*mean_gradient_norms(run)),
    "late_gradient_p90": lambda run, _: late_gradient_p90(run),
    "first_activation_level": lambda run, _: level(*first_activation_norms(run)),
    # The norm of an example's gradient at the end over that before training. Then the part of its squared norm that
    # clipping moves between layers, in the mean of all epochs.
    "gradient_growth": lambda run, _: (norms := _floats(run.diagnostic("layer_gradients")["total"]))[-1] / norms[0],
    "moved_gradient": lambda run, _: fmean(run.diagnostic("layer_gradients")["moved"]),
    # The cosine of clipped and unclipped mean gradient, averaged over steps at equal distances, or of the first epoch.
    "cosine": lambda run, _: float(np.mean(cosines(run)[1])),
    "first_epoch_cosine": lambda run, _: float(np.mean(cosines(run, first_epoch=True)[1])),
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


def check_call(kind: str, call: Call, formulas: Collection[str] = ()) -> None:
    """Check the name of an "epoch", or of a "number": of a reader or of one of the `formulas`.

    Raises:
        ValueError: there is none of this name, or with (or without) an argument.
    """
    if call.name in formulas:
        return
    names = [*READERS, *formulas] if kind == "number" else [*_EPOCHS, "each_fifth"]
    if call.name not in names:
        raise ValueError(f"no {kind} {call.name!r}: choose from {', '.join(names)}")
    takes = call.name in _WITH_NUMBER or (kind == "number" and len(signature(READERS[call.name]).parameters) > 2)
    if takes != bool(call.argument):
        raise ValueError(f"{call.name} takes {'an' if takes else 'no'} argument in brackets")
    if kind == "epoch" and takes:
        float(call.argument)

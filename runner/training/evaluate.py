"""Loss and accuracy on a split."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.speed.faster import faster
from runner.speed.kernels import channels_last
from runner.trust.engine import isolated_prediction

Predictions = Callable[[], tuple[Tensor, Tensor]]  # guesses and losses, [examples] each


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, accuracy in percent, and accuracy in percent by class (NaN for a class without examples)."""

    loss: float
    accuracy: float
    class_accuracy: list[float]


def evaluate(objective: Objective, split: Split, classes: int, predictions: Predictions | None = None) -> Evaluation:
    """Evaluate in evaluation mode on every example of `split`, whose images are already features.

    predictions: `predict` of the objective and the split, captured (`runner.training.graph.capture`).
    """
    predicted, losses = predict(objective, split) if predictions is None else predictions()
    hits = (predicted == split.targets).double()
    per_class = torch.zeros(classes, dtype=torch.float64, device=hits.device).index_add_(0, split.targets, hits)
    counts = torch.bincount(split.targets, minlength=classes)
    return Evaluation(
        loss=losses.double().mean().item(),
        accuracy=100 * hits.mean().item(),
        class_accuracy=(100 * per_class / counts).tolist(),
    )


def predict(objective: Objective, split: Split) -> tuple[Tensor, Tensor]:
    """Return predicted classes and losses, [examples] each."""
    predictor = Predictor(objective, split)
    with evaluating(predictor.objective):
        guesses, losses = zip(*predictor.batches(split.images, split.targets), strict=True)
    return torch.cat(guesses), torch.cat(losses)


class Predictor:
    """Guesses and losses of an objective at its present weights, one example at a time if it is isolated.

    Attributes:
        objective: computes the same in less time. It has to be in evaluation mode.

    Raises:
        ConfigError: a user's part fails on one example; only the shape of one in `split` is used.
    """

    def __init__(self, objective: Objective, split: Split) -> None:
        self.objective = cast(Objective, faster(objective))
        self._alone = isolated_prediction(objective) if objective.isolated else None
        if self._alone is not None:
            self._alone.ready(split.images, split.targets)

    def batches(self, images: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield guesses and losses, [batch] each, of all images in batches of a size that suits their device."""
        size = _BATCH[images.device.type]
        for some_images, some_targets in zip(images.split(size), targets.split(size), strict=True):
            inputs = channels_last(some_images.clone())  # a network may change them
            if self._alone is not None:
                guesses, losses = self._alone(inputs, some_targets)
                yield guesses, losses
            else:
                logits, losses = self.objective.predict(inputs, some_targets)
                yield logits.argmax(dim=1), losses


_BATCH = {"cpu": 250, "cuda": 2500}  # images: on a CPU as many as fit its cache, channels last


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode, without gradients."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for child, training in modes:
            child.training = training

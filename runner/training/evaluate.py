"""Loss and accuracy on a split."""

from dataclasses import dataclass

import torch
from torch import Tensor

from runner.data.datasets import Split
from runner.gradients import IsolatedPrediction, Objective
from runner.speed.faster import faster
from runner.speed.inference import batches, evaluating


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, accuracy in percent, and accuracy in percent by class (NaN for a class without examples)."""

    loss: float
    accuracy: float
    class_accuracy: list[float]


def evaluate(objective: Objective, split: Split, classes: int) -> Evaluation:
    """Evaluate in evaluation mode on every example of `split`, whose images are already features."""
    predicted, losses = _predict(objective, split)
    hits = (predicted == split.targets).double()
    per_class = torch.zeros(classes, dtype=torch.float64, device=hits.device).index_add_(0, split.targets, hits)
    counts = torch.bincount(split.targets, minlength=classes)
    return Evaluation(
        loss=losses.double().mean().item(),
        accuracy=100 * hits.mean().item(),
        class_accuracy=(100 * per_class / counts).tolist(),
    )


def predictions(objective: Objective, split: Split) -> Tensor:
    """Return the class predicted for every example: [examples]."""
    return _predict(objective, split)[0]


def _predict(objective: Objective, split: Split) -> tuple[Tensor, Tensor]:
    """Return predicted classes and losses, [examples] each.

    Raises:
        NotMappableError: a user's part fails on one example.
    """
    if objective.isolated:
        predict = IsolatedPrediction(objective, split.images, split.targets)
        found = [predict(inputs, targets) for inputs, targets in batches(split.images, split.targets)]
    else:
        fast = faster(objective)
        assert isinstance(fast, Objective)
        found = []
        with evaluating(fast):
            for inputs, targets in batches(split.images, split.targets):
                logits, their_losses = fast.predict(inputs, targets)
                found.append((logits.argmax(dim=1), their_losses))
    guesses, losses = zip(*found, strict=True)
    return torch.cat(guesses), torch.cat(losses)

"""Loss and accuracy on a split."""

from dataclasses import dataclass

import torch
from torch import Tensor

from runner.datasets import Split
from runner.engines import Objective

_BATCH = 1000


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, accuracy in percent, and accuracy in percent by class (NaN for a class without examples)."""

    loss: float
    accuracy: float
    class_accuracy: list[float]


@torch.no_grad()
def evaluate(objective: Objective, split: Split, classes: int) -> Evaluation:
    """Evaluate on every example of `split`, whose images are features already, with the network in evaluation mode."""
    objective.eval()
    losses: list[Tensor] = []
    correct: list[Tensor] = []
    for inputs, targets in zip(split.images.split(_BATCH), split.targets.split(_BATCH), strict=True):
        logits = objective.network(inputs)
        losses.append(objective.loss(logits, targets))
        correct.append(logits.argmax(dim=1) == targets)
    objective.train()
    hits = torch.cat(correct).double()
    per_class = torch.zeros(classes, dtype=torch.float64, device=hits.device).index_add_(0, split.targets, hits)
    counts = torch.bincount(split.targets, minlength=classes)
    return Evaluation(
        loss=torch.cat(losses).double().mean().item(),
        accuracy=100 * hits.mean().item(),
        class_accuracy=(100 * per_class / counts).tolist(),
    )

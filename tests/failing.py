"""Losses that make a job fail, for tests of what happens to the others."""

import math
import os
from typing import Any

import torch
from torch import Tensor, nn

from runner.clipping import Flat
from runner.gradients import Engine, GradientSum


class RaisesInTraining(nn.CrossEntropyLoss):
    """Works on the meta device, where configs are checked, and raises on data."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type != "meta":
            raise RuntimeError("made to fail")
        return super().forward(logits, targets)


class Dies(nn.CrossEntropyLoss):
    """Ends its process without a word, as the kernel does when memory runs out."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type != "meta" and torch.is_tensor(logits):
            os._exit(7)
        return super().forward(logits, targets)


class NeedsOneHot(nn.Module):
    """A loss that looks at the values of its targets, which vmap cannot."""

    def __init__(self, reduction: str) -> None:
        super().__init__()

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type == "meta" and len(targets) == 2:
            return logits.sum(dim=1)
        return logits[:, int(targets[0])]


def normalised(
    input_shape: list[int], classes: int, activation: Any, filters: Any, units: Any, padding: Any
) -> nn.Sequential:
    """A network with a layer whose weights no batched product has."""
    pixels = math.prod(input_shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 8), nn.GroupNorm(2, 8), nn.Linear(8, classes))


def penalised(
    input_shape: list[int], classes: int, activation: Any, filters: Any, units: Any, padding: Any
) -> nn.Sequential:
    """A network that reads a weight outside its layer."""
    return nn.Sequential(nn.Flatten(), _ScaledByItsWeight(math.prod(input_shape), classes))


class OwnClipping(Flat):
    """A strategy that a user wrote, which sums in a way of its own: what it looks at is not known."""

    def sum_contributions(self, engine: Engine, inputs: Tensor, targets: Tensor) -> GradientSum:
        return super().sum_contributions(engine, inputs, targets)


class _ScaledByItsWeight(nn.Module):
    def __init__(self, pixels: int, classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(pixels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.layer.weight.square().sum()


class SaysItsDevice(nn.CrossEntropyLoss):
    """Raises, on data, what its process may see of GPUs."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type != "meta":
            raise RuntimeError(f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')}")
        return super().forward(logits, targets)

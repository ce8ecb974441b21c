"""Losses that make a job fail, for tests of what happens to the others."""

import math
import os
from typing import Any

from torch import Tensor, nn

from runner.clipping import Flat


class RaisesInTraining(nn.CrossEntropyLoss):
    """Works on made-up examples, which have the class 0, and raises on data."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type != "meta" and targets.any():
            raise RuntimeError("made to fail")
        return super().forward(logits, targets)


class Dies(nn.CrossEntropyLoss):
    """Ends its process without a word, as the kernel does when memory runs out."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type != "meta" and targets.any():
            os._exit(7)
        return super().forward(logits, targets)


def dilated(
    input_shape: list[int], classes: int, activation: Any, filters: Any, units: Any, padding: Any
) -> nn.Sequential:
    """A network with windows that leave pixels out."""
    convolution = nn.Conv2d(input_shape[0], 8, 3, dilation=2)
    return nn.Sequential(convolution, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))


def grouped(
    input_shape: list[int], classes: int, activation: Any, filters: Any, units: Any, padding: Any
) -> nn.Sequential:
    """A network with a layer that the fast engines do not know."""
    layers = nn.Conv2d(input_shape[0], 4, 3), nn.Conv2d(4, 8, 3, groups=2), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, classes))


def penalised(
    input_shape: list[int], classes: int, activation: Any, filters: Any, units: Any, padding: Any
) -> nn.Sequential:
    """A network that reads a weight outside its layer."""
    return nn.Sequential(nn.Flatten(), ScaledByItsWeight(math.prod(input_shape), classes))


class OwnClipping(Flat):
    """A clipping that a user wrote."""


class ScaledByItsWeight(nn.Module):
    """The loss reads a weight directly: its gradient does not pass through the layer."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.layer.weight.square().sum()


class SaysItsDevice(nn.CrossEntropyLoss):
    """Raises, on data, what its process may see of GPUs."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if logits.device.type != "meta" and targets.any():
            raise RuntimeError(f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')}")
        return super().forward(logits, targets)


class NoOptimizer:
    """A class that takes the arguments of an optimizer and is none."""

    def __init__(self, parameters: object, lr: float) -> None:
        self.parameters, self.lr = parameters, lr


class Shapeless:
    """Features without a shape."""

    def __init__(self, mean: object = None, std: object = None) -> None:
        self.mean, self.std = mean, std

    def __call__(self, images: Tensor) -> Tensor:
        return images

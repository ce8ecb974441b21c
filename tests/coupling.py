"""Networks and losses that mix examples or remember them, and some that only look like it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]


class Plain(nn.Module):
    """A network of two layers; the others change what happens to the rows of a batch."""

    def __init__(self, input_shape: list[int], classes: int, activation: Activation) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(784, 16), nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(self.rows(x.flatten(1))).tanh())

    def rows(self, x: Tensor) -> Tensor:
        return x


class Strided(Plain):
    """Reads memory that holds one image's mean 512 times, which in a batch could be the means of all images."""

    def rows(self, x: Tensor) -> Tensor:
        means = nn.functional.conv2d(torch.full((512, 1, 28, 28), 1 / 784), x.view(1, 1, 28, 28))
        return x * (1 - 2 * (torch.as_strided(means, (512,), (1,), 0) > 0.99).any().to(x))


class Branching(Plain):
    def rows(self, x: Tensor) -> Tensor:
        return 2 * x if x.sum() > 0 else x


class WithDropout(Plain):
    def rows(self, x: Tensor) -> Tensor:
        return self.dropout(x)

    def __init__(self, input_shape: list[int], classes: int, activation: Activation) -> None:
        super().__init__(input_shape, classes, activation)
        self.dropout = nn.Dropout()


class Centred(nn.Module):
    """A loss that takes the batch's mean logits away."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits - logits.mean(0), targets, reduction="none")


class Save(nn.Module):
    """Keeps what passes, for `Add`: a branch that no tree of modules shows."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x
        return x


class Add(nn.Module):
    def __init__(self, saved: Save) -> None:
        super().__init__()
        self._saved = (saved,)

    def forward(self, x: Tensor) -> Tensor:
        return x + self._saved[0].kept


class Residual(nn.Sequential):
    """x + f(x), by a class that looks like a chain."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def branched(kind: str) -> Callable[..., nn.Sequential]:
    def make(input_shape: list[int], classes: int, activation: Any) -> nn.Sequential:
        middle = nn.Linear(16, 16)
        save = Save()
        parts = {"residual": [Residual(middle)], "saved": [save, middle, Add(save)], "none": [middle]}[kind]
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), *parts, nn.Tanh(), nn.Linear(16, classes))

    return make


residual, saved, chain = branched("residual"), branched("saved"), branched("none")

"""Networks and losses that mix examples or remember them, and some that only look like it."""

from __future__ import annotations

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


class MixedRows(Plain):
    def rows(self, x: Tensor) -> Tensor:
        return x + 0.1 * x.roll(1, 0)


class SortedFromFifty(Plain):
    """Sorts batches of the size that the sampler draws, and no smaller one."""

    def rows(self, x: Tensor) -> Tensor:
        return x[x.sum(1).argsort()] if len(x) >= 40 else x


class FirstFewRows(Plain):
    """Reads the first four rows only."""

    def rows(self, x: Tensor) -> Tensor:
        return x[torch.arange(len(x), device=x.device).clamp(max=3)]


class LargestRow(Plain):
    """Divides by the largest number of the batch, past autograd."""

    def rows(self, x: Tensor) -> Tensor:
        return x / x.detach().max()


class OtherWhileTraining(Plain):
    """Adds a tenth of another row, drawn anew each time, while it is trained."""

    def rows(self, x: Tensor) -> Tensor:
        return x + 0.1 * x[torch.randperm(len(x), device=x.device)] if self.training else x


class WithDropout(Plain):
    def rows(self, x: Tensor) -> Tensor:
        return self.dropout(x)

    def __init__(self, input_shape: list[int], classes: int, activation: Activation) -> None:
        super().__init__(input_shape, classes, activation)
        self.dropout = nn.Dropout()


class WithGroupNorm(Plain):
    def __init__(self, input_shape: list[int], classes: int, activation: Activation) -> None:
        super().__init__(input_shape, classes, activation)
        self.first = nn.Sequential(self.first, nn.GroupNorm(4, 16))  # type: ignore[assignment]


class Folded(nn.Module):
    """Takes an image's 28 lines as 28 rows of a longer batch."""

    def __init__(self, input_shape: list[int], classes: int, activation: Activation) -> None:
        super().__init__()
        self.lines, self.last = nn.Linear(28, 8), nn.Linear(8 * 28, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.lines(x.reshape(-1, 28)).tanh().reshape(len(x), -1))


class FoldedWithNorm(Folded):
    """Takes an image's lines as rows of a longer batch, and normalises each row."""

    def __init__(self, input_shape: list[int], classes: int, activation: Activation) -> None:
        super().__init__(input_shape, classes, activation)
        self.lines = nn.Sequential(self.lines, nn.GroupNorm(2, 8))  # type: ignore[assignment]


class LinesFirst(Folded):
    """Has the lines where a layer expects the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.lines(x[:, 0].transpose(0, 1)).tanh().transpose(0, 1).flatten(1))


class Remembers(Plain):
    """Takes away the running mean of the batches before, in training."""

    def __init__(self, input_shape: list[int], classes: int, activation: Activation) -> None:
        super().__init__(input_shape, classes, activation)
        self.register_buffer("mean", torch.zeros(784))

    def rows(self, x: Tensor) -> Tensor:
        rows = x - self.mean
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return rows


class RemembersForLater(Remembers):
    """Uses the running mean in evaluation only, and keeps it where no buffer is."""

    def __init__(self, input_shape: list[int], classes: int, activation: Activation) -> None:
        Plain.__init__(self, input_shape, classes, activation)
        self.mean: Any = 0.0

    def rows(self, x: Tensor) -> Tensor:
        if not self.training:
            return x - self.mean
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x


class CountsItsPasses(Plain):
    """Keeps something of each pass that is no example's."""

    passes = 0

    def rows(self, x: Tensor) -> Tensor:
        self.passes += 1
        return x


COUPLED = ["MixedRows", "SortedFromFifty", "FirstFewRows", "LargestRow"]
WHILE_TRAINING = ["OtherWhileTraining"]
FOLDED = ["Folded", "FoldedWithNorm", "LinesFirst"]
REMEMBERING = ["Remembers", "RemembersForLater"]
SEPARATE = ["Plain", "CountsItsPasses", "WithDropout", "WithGroupNorm", *FOLDED]


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

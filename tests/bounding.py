"""Parts of a Lipschitz network that state less than they do."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Doubles(nn.Module):
    """Twice its input, said to be 1-Lipschitz."""

    lipschitz = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Halves(nn.Module):
    """Half its input, and said to be."""

    lipschitz = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


class Steep(nn.Module):
    """A loss of slope sqrt(2), said to have 0.1."""

    def lipschitz(self, classes: int) -> float:
        return 0.1

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(100 * logits, targets, reduction="none") / 100

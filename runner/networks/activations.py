"""Activations that torch.nn does not have, and the monotone ones that it has."""

import torch
from torch import Tensor, nn

from runner.config.fields import expect

_MONOTONE = (nn.ReLU, nn.Tanh, nn.Sigmoid)


def is_monotone(module: nn.Module | None) -> bool:
    """Return True if a module is elementwise and never decreasing: torch's own, or a class with `monotone = True`.

    A subclass may compute anything else, so it has to state this again.
    """
    return type(module) in _MONOTONE or vars(type(module)).get("monotone", False)


class TemperedSigmoid(nn.Module):
    """phi(x) = scale * sigmoid(inverse_temperature * x) - offset, elementwise (Tempered Sigmoid, equation 3).

    (2, 2, 1) is tanh exactly: 2 / (1 + e^{-2x}) - 1 = (1 - e^{-2x}) / (1 + e^{-2x}).
    Bounded in (-offset, scale - offset) and Lipschitz with constant |scale * inverse_temperature| / 4.

    Raises:
        ValueError: `scale` or `inverse_temperature` is not positive.
    """

    monotone = True

    def __init__(self, scale: float, inverse_temperature: float, offset: float) -> None:
        super().__init__()
        expect(scale > 0, "activation.scale > 0", scale)
        expect(inverse_temperature > 0, "activation.inverse_temperature > 0", inverse_temperature)
        self.scale, self.inverse_temperature, self.offset = scale, inverse_temperature, offset

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * torch.sigmoid(self.inverse_temperature * x) - self.offset


class GroupNormReLU(nn.Module):
    """ReLU of channels with mean zero and variance one in each of `groups` groups of neighbours, in each example.

    The order of De et al. (2022), who use 16 groups. There are no weights of its own. The number of channels, or of
    units of a linear layer, is a multiple of `groups`.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(nn.functional.group_norm(x, self.groups))

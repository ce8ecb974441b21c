"""Layers without weights, each Lipschitz in the L2 norm and zero at zero, for Lipschitz networks.

Every class states the constant in `lipschitz`. All treat examples [batch, ...] separately.

A map f with ||f(x) - f(y)|| <= c ||x - y|| and f(0) = 0 has ||f(x)|| <= c ||x||, and c bounds the norm of its Jacobian.
`runner.networks.lipschitz.bounds` needs no other property of a layer.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_NO_SLOPE = 1e-30  # float32 may have lost digits of a sum of squares below it, so its derivative is zero


class GroupSort2(nn.Module):
    """Sorts pairs of channels, each entry separately: a permutation, which keeps norms (Anil et al., 2019).

    The pairs are channel i and channel i + half. Other implementations pair neighbours. A projected layer before it can
    produce either order. Channels are dimension 1 of images [batch, channels, height, width], else the last one.

    Raises:
        ValueError: the number of channels is odd.
    """

    lipschitz = 1.0

    def forward(self, x: Tensor) -> Tensor:
        channels = 1 if x.dim() == 4 else -1
        if x.shape[channels] % 2:
            raise ValueError(f"GroupSort2 sorts pairs of channels, and there are {x.shape[channels]}.")
        first, second = x.chunk(2, channels)
        return torch.cat([torch.maximum(first, second), torch.minimum(first, second)], channels)


class Scale(nn.Module):
    """factor * x."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    @property
    def lipschitz(self) -> float:
        return abs(self.factor)

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class L2Pool2d(nn.Module):
    """The L2 norm of each window of a channel: images [batch, channels, h, w] to [batch, channels, h // k, w // k].

    Windows are disjoint, so the norm of all norms is the norm of their entries. The gradient at zero is zero.
    """

    lipschitz = 1.0

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size

    def forward(self, x: Tensor) -> Tensor:
        return _pooled(x, (self.kernel_size, self.kernel_size))


class GlobalL2Pool(nn.Module):
    """The L2 norm of each channel: images [batch, channels, h, w] to [batch, channels]."""

    lipschitz = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return _pooled(x, (x.shape[2], x.shape[3])).flatten(1)


class Center(nn.Module):
    """x minus its mean: a projection.

    Images [batch, channels, h, w] have a mean over the positions of each channel. With `over_channels` it is over the
    channels at each position, as in the authors' library. Of anything else it is over the last dimension.
    """

    lipschitz = 1.0

    def __init__(self, over_channels: bool = False) -> None:
        super().__init__()
        self.over_channels = over_channels

    def forward(self, x: Tensor) -> Tensor:
        of_images = (1,) if self.over_channels else (2, 3)
        return x - x.mean(of_images if x.dim() == 4 else -1, keepdim=True)


class Patches(nn.Module):
    """Images [batch, channels, h, w] as tokens [batch, patches, numbers], from disjoint squares in another order.

    Tokens have a separate dimension, so an example is always one row of the batch.

    Raises:
        ValueError: squares of this size do not cover the image.
    """

    lipschitz = 1.0

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        if height % self.size or width % self.size:
            raise ValueError(f"Patches of {self.size} do not cover an image of {height} x {width}.")
        cut = x.reshape(batch, channels, height // self.size, self.size, width // self.size, self.size)
        return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class Transpose(nn.Module):
    """Tokens [batch, patches, numbers] as [batch, numbers, patches]."""

    lipschitz = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Residual(nn.Module):
    """weight * (x + inner(x)). At a weight of 1/2 it is 1-Lipschitz if `inner` is.

    Raises:
        ValueError: the shapes of x and inner(x) differ, so their sum would mix the examples.
    """

    def __init__(self, inner: nn.Module, weight: float = 0.5) -> None:
        super().__init__()
        self.inner, self.weight = inner, weight

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner(x)
        if inner.shape != x.shape:
            raise ValueError(f"Residual adds {tuple(inner.shape)} to {tuple(x.shape)}: the shapes have to be the same.")
        y: Tensor = self.weight * (x + inner)
        return y


def _pooled(x: Tensor, window: tuple[int, int]) -> Tensor:
    y: Tensor = _L2Pool.apply(x, window)[0]
    return y


class _L2Pool(torch.autograd.Function):
    """sqrt(sum x^2) over disjoint windows. Autograd would divide by zero for its derivative x / sqrt(sum x^2).

    It returns the norms and, for the derivative, their inverses, or 0 if there is none.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, window: tuple[int, int]) -> tuple[Tensor, Tensor]:
        squares = F.avg_pool2d(x.square(), window) * math.prod(window)
        norms = squares.sqrt()
        return norms, torch.where(squares > _NO_SLOPE, 1 / norms, 0.0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, ctx.window = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_norms: Tensor, _: Tensor) -> tuple[Tensor, None]:
        x, inverses = ctx.saved_tensors
        (height, width), (down, right) = x.shape[2:], ctx.window
        spread = (of_norms * inverses).repeat_interleave(down, 2).repeat_interleave(right, 3)
        uncovered = (0, width - spread.shape[3], 0, height - spread.shape[2])  # the part that no window covers
        return x * (F.pad(spread, uncovered) if any(uncovered) else spread), None

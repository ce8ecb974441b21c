"""The layers of Lipschitz networks in C++, their gradients too: sorted pairs of channels, and L2 pooling."""

import ctypes
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from runner.networks.geometry import Pair
from runner.networks.lipschitz import layers
from runner.networks.lipschitz.layers import GlobalL2Pool, GroupSort2, L2Pool2d
from runner.speed.compiled import THREADS, Pool, alike
from runner.speed.kernels import call, fits, library, threads_for, waves


def agrees_on_group_sort(compiled: ctypes.CDLL) -> bool:
    """Return True if a library sorts pairs as PyTorch does, and its gradient: both layouts, equal pairs, NaN."""
    for channels in (2, 6, 10, 20, 34):  # half of them is less than a vector, or more by a rest
        x = (waves(3, channels, 5, 7) * 4).round()  # many are equal
        x[1, 1, 3, 4] = torch.nan
        for images in (x, x.contiguous(memory_format=torch.channels_last)):
            if not alike(images, GroupSort2(), (0, 1e-6), _GroupSort, compiled, THREADS):
                return False
    return True


class FastGroupSort(GroupSort2):
    """`GroupSort2` by a library."""

    def forward(self, x: Tensor) -> Tensor:
        channels = x.shape[1 if x.dim() == 4 else -1] if x.dim() > 1 else 1
        pairs = channels % 2 == 0 and x.numel() > 0
        compiled = library("group_sort", agrees_on_group_sort) if pairs and fits(x) else None
        if compiled is None:
            return super().forward(x)
        # Numbers without gaps: images in either order, all else as its dimensions are.
        in_order = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        y: Tensor = _GroupSort.apply(x if in_order else x.contiguous(), compiled, threads_for(x))
        return y


class _GroupSort(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, compiled: ctypes.CDLL, threads: int) -> Tensor:
        if x.dim() == 4 and x.is_contiguous():
            halves = len(x), x[0].numel() // 2
        else:
            channels = x.shape[1] if x.dim() == 4 else x.shape[-1]
            halves = x.numel() // channels, channels // 2
        # The number of rows of two halves (a row is an image, a position or a token), and the length of a half.
        ctx.compiled, ctx.numbers = compiled, (*halves, threads)
        y = torch.empty_like(x)  # in the same order in memory
        call(compiled.group_sort, x, y, *ctx.numbers)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        order = torch.contiguous_format if x.is_contiguous() else torch.channels_last
        gradient = torch.empty_like(x)
        call(ctx.compiled.group_sort_backward, x, g.contiguous(memory_format=order), gradient, *ctx.numbers)
        return gradient, None, None


def agrees_on_l2_pool(compiled: ctypes.CDLL) -> bool:
    """Return True if a library pools as PyTorch does, and its gradient: windows of zeros, and numbers in no window."""
    x = waves(3, 5, 8, 7)
    x[1, 2, :4, :4] = 0
    pooled = layers._pooled
    return all(
        alike(x, partial(pooled, window=window), (1e-5, 1e-6), Pool, window, window, compiled, "l2_pool", THREADS)
        for window in ((2, 2), (3, 2), (8, 7))
    )


class FastL2Pool(L2Pool2d):
    """`L2Pool2d` by a library."""

    def forward(self, x: Tensor) -> Tensor:
        y = _compiled_l2_pool(x, (self.kernel_size, self.kernel_size))
        return super().forward(x) if y is None else y


class FastGlobalL2Pool(GlobalL2Pool):
    """`GlobalL2Pool` by a library."""

    def forward(self, x: Tensor) -> Tensor:
        y = _compiled_l2_pool(x, (x.shape[2], x.shape[3])) if x.dim() == 4 else None
        return super().forward(x) if y is None else y.flatten(1)


def _compiled_l2_pool(x: Tensor, window: Pair) -> Tensor | None:
    windows = x.dim() == 4 and x.numel() > 0 and x.shape[2] >= window[0] and x.shape[3] >= window[1]
    compiled = library("l2_pool", agrees_on_l2_pool) if windows and fits(x) else None
    return None if compiled is None else Pool.apply(x, window, window, compiled, "l2_pool", threads_for(x))


FAST: dict[type[nn.Module], type[nn.Module]] = {
    GroupSort2: FastGroupSort,
    L2Pool2d: FastL2Pool,
    GlobalL2Pool: FastGlobalL2Pool,
}

"""L2 pooling in C++, where there is a compiler: one pass over the numbers each way."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from runner.networks.geometry import Pair
from runner.networks.lipschitz import layers
from runner.networks.lipschitz.layers import GlobalL2Pool, L2Pool2d
from runner.speed.kernels import fits, library, waves
from runner.speed.max_pool import Pool, gradient, pooled


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library pools as PyTorch does, and its gradient: windows of zeros, and numbers in no window."""
    for window in ((2, 2), (3, 2), (8, 7)):
        x = waves(3, 5, 8, 7).contiguous(memory_format=torch.channels_last)
        x[1, 2, :4, :4] = 0
        with torch.enable_grad():
            leaf = x.clone().requires_grad_()
            expected = layers._pooled(leaf, window)
            g = waves(*expected.shape).contiguous(memory_format=torch.channels_last)
            (of_x,) = torch.autograd.grad(expected, leaf, g)
        y = pooled(compiled, "l2_pool", x, window, window, threads=2)
        found = gradient(compiled, "l2_pool", x, y, g, window, window, threads=2)
        if not (torch.allclose(y, expected, 1e-5, 1e-6) and torch.allclose(found, of_x, 1e-5, 1e-6)):
            return False
    return True


class FastL2Pool(L2Pool2d):
    """`L2Pool2d`, its gradient too."""

    def forward(self, x: Tensor) -> Tensor:
        y = _compiled(x, (self.kernel_size, self.kernel_size))
        return super().forward(x) if y is None else y


class FastGlobalL2Pool(GlobalL2Pool):
    """`GlobalL2Pool`, its gradient too."""

    def forward(self, x: Tensor) -> Tensor:
        y = _compiled(x, (x.shape[2], x.shape[3])) if x.dim() == 4 else None
        return super().forward(x) if y is None else y.flatten(1)


def _compiled(x: Tensor, window: Pair) -> Tensor | None:
    windows = x.dim() == 4 and x.numel() > 0 and x.shape[2] >= window[0] and x.shape[3] >= window[1]
    compiled = library("l2_pool", agrees) if windows and fits(x) else None
    return None if compiled is None else Pool.apply(x, window, window, compiled, "l2_pool")

"""L2 pooling in C++, where there is a compiler: one pass over the numbers each way."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from runner.networks.lipschitz import layers
from runner.networks.lipschitz.layers import GlobalL2Pool, L2Pool2d
from runner.speed.kernels import fits, integers, library, pointers, threads_for, waves
from runner.speed.max_pool import Pair, layout, output


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
        y = _pooled(compiled, x, window, threads=2)
        found = _gradient(compiled, x, y, g, window, threads=2)
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
    return None if compiled is None else _L2Pool.apply(x, window, compiled)


class _L2Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Pair, compiled: ctypes.CDLL) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        y = _pooled(compiled, x, window, threads_for(x))
        ctx.window, ctx.compiled = window, compiled
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        x, y = ctx.saved_tensors
        g = g.contiguous(memory_format=torch.channels_last)
        return _gradient(ctx.compiled, x, y, g, ctx.window, threads_for(x)), None, None


def _pooled(compiled: ctypes.CDLL, x: Tensor, window: Pair, threads: int) -> Tensor:
    """Of images that lie channels last in memory, as do all below."""
    y = x.new_empty(len(x), *output(x, window, window), x.shape[1])
    compiled.l2_pool(*pointers(x, y), *integers(len(x)), layout(x, window, window), *integers(threads))
    return y.permute(0, 3, 1, 2)


def _gradient(compiled: ctypes.CDLL, x: Tensor, y: Tensor, g: Tensor, window: Pair, threads: int) -> Tensor:
    covered = all(size % k == 0 for size, k in zip(x.shape[2:], window, strict=True))
    gradient = (g.new_empty if covered else g.new_zeros)(len(x), *x.shape[2:], x.shape[1])
    shape = layout(x, window, window)
    compiled.l2_pool_backward(*pointers(x, y, g, gradient), *integers(len(x)), shape, *integers(threads))
    return gradient.permute(0, 3, 1, 2)

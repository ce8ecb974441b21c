"""L2 pooling in C++, where there is a compiler: one pass over the numbers each way."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from runner.networks.lipschitz.layers import GlobalL2Pool, L2Pool2d
from runner.speed.kernels import fits, integers, library, pointers, threads_for, waves

Pair = tuple[int, int]


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library pools as PyTorch does, and its gradient: windows of zeros, and numbers in no window."""
    for window in ((2, 2), (3, 2), (8, 7)):
        x = waves(3, 5, 8, 7)
        x[1, 2, :4, :4] = 0
        counts = torch.nn.functional.avg_pool2d(x.square(), window) * (window[0] * window[1])
        expected = counts.sqrt()
        g = waves(*expected.shape)
        slopes = torch.where(expected > 0, g / expected, 0.0)
        of_x = torch.zeros_like(x)
        height, width = (size * k for size, k in zip(expected.shape[2:], window, strict=True))
        spread = slopes.repeat_interleave(window[0], 2).repeat_interleave(window[1], 3)
        of_x[:, :, :height, :width] = x[:, :, :height, :width] * spread
        x, g = (each.contiguous(memory_format=torch.channels_last) for each in (x, g))
        y = _pooled(compiled, x, window, threads=2)
        found = _gradient(compiled, x, y, g, window, threads=2)
        if not (torch.allclose(y, expected, 1e-5, 1e-6) and torch.allclose(found, of_x, 1e-5, 1e-6)):
            return False
    return True


class FastL2Pool(L2Pool2d):
    """`L2Pool2d`, its gradient too."""

    def forward(self, x: Tensor) -> Tensor:
        window = self.kernel_size, self.kernel_size
        return _pool(x, window) if _can_pool(x, window) else super().forward(x)


class FastGlobalL2Pool(GlobalL2Pool):
    """`GlobalL2Pool`, its gradient too."""

    def forward(self, x: Tensor) -> Tensor:
        whole = (x.shape[2], x.shape[3]) if x.dim() == 4 else (1, 1)
        return _pool(x, whole).flatten(1) if _can_pool(x, whole) else super().forward(x)


def _can_pool(x: Tensor, window: Pair) -> bool:
    windows = x.dim() == 4 and x.numel() > 0 and x.shape[2] >= window[0] and x.shape[3] >= window[1]
    return windows and fits(x) and library("l2_pool", agrees) is not None


def _pool(x: Tensor, window: Pair) -> Tensor:
    y: Tensor = _L2Pool.apply(x, window)
    return y


class _L2Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Pair) -> Tensor:
        compiled = library("l2_pool", agrees)
        assert compiled is not None
        x = x.contiguous(memory_format=torch.channels_last)
        y = _pooled(compiled, x, window, threads_for(x))
        ctx.window = window
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        compiled = library("l2_pool", agrees)
        assert compiled is not None
        x, y = ctx.saved_tensors
        g = g.contiguous(memory_format=torch.channels_last)
        return _gradient(compiled, x, y, g, ctx.window, threads_for(x)), None


def _layout(x: Tensor, window: Pair) -> ctypes.Array[ctypes.c_int64]:
    """Return the shape that l2_pool.cpp reads."""
    _, channels, *size = x.shape
    return (ctypes.c_int64 * 7)(*size, channels, *_output(x, window), *window)


def _output(x: Tensor, window: Pair) -> list[int]:
    return [size // k for size, k in zip(x.shape[2:], window, strict=True)]


def _pooled(compiled: ctypes.CDLL, x: Tensor, window: Pair, threads: int) -> Tensor:
    """Of images that lie channels last in memory, as do all below."""
    y = x.new_empty(len(x), *_output(x, window), x.shape[1])
    compiled.l2_pool(*pointers(x, y), *integers(len(x)), _layout(x, window), *integers(threads))
    return y.permute(0, 3, 1, 2)


def _gradient(compiled: ctypes.CDLL, x: Tensor, y: Tensor, g: Tensor, window: Pair, threads: int) -> Tensor:
    batch, channels, height, width = x.shape
    covered = [count * k for count, k in zip(_output(x, window), window, strict=True)] == [height, width]
    gradient = g.new_empty(batch, height, width, channels) if covered else g.new_zeros(batch, height, width, channels)
    compiled.l2_pool_backward(*pointers(x, y, g, gradient), *integers(batch), _layout(x, window), *integers(threads))
    return gradient.permute(0, 3, 1, 2)

"""GroupSort2 in C++, where there is a compiler: one pass over the numbers, where PyTorch takes several."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from runner.networks.lipschitz.layers import GroupSort2
from runner.speed.kernels import fits, integers, library, pointers, threads_for, waves


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library sorts pairs as PyTorch does, and its gradient: both layouts, equal pairs, NaN."""
    plain = GroupSort2()
    for channels in (2, 6, 10, 20, 34):  # half of them is less than a vector, or more by a rest
        x = (waves(3, channels, 5, 7) * 4).round()  # many are equal
        x[1, 1, 3, 4] = torch.nan
        g = waves(*x.shape)
        for order in (torch.channels_last, torch.contiguous_format):
            some, upstream = x.contiguous(memory_format=order), g.contiguous(memory_format=order)
            with torch.enable_grad():
                leaf = some.clone().requires_grad_()
                expected = plain(leaf)
                (of_x,) = torch.autograd.grad(expected, leaf, upstream)
            found = _sorted(compiled, some, threads=2), _gradient(compiled, some, upstream, threads=2)
            for ours, theirs in zip(found, (expected.detach(), of_x), strict=True):
                if not torch.allclose(ours, theirs, rtol=0, atol=1e-6, equal_nan=True):
                    return False
    return True


class FastGroupSort(GroupSort2):
    """`GroupSort2`, its gradient too."""

    def forward(self, x: Tensor) -> Tensor:
        channels = x.shape[1 if x.dim() == 4 else -1] if x.dim() > 1 else 1
        pairs = channels % 2 == 0 and x.numel() > 0
        compiled = library("group_sort", agrees) if pairs and fits(x) else None
        if compiled is None:
            return super().forward(x)
        y: Tensor = _GroupSort.apply(_in_order(x), compiled)
        return y


class _GroupSort(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, compiled: ctypes.CDLL) -> Tensor:
        ctx.compiled = compiled
        ctx.save_for_backward(x)
        return _sorted(compiled, x, threads_for(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        order = torch.contiguous_format if x.is_contiguous() else torch.channels_last
        return _gradient(ctx.compiled, x, g.contiguous(memory_format=order), threads_for(x)), None


def _in_order(x: Tensor) -> Tensor:
    """Numbers without gaps: images in either order, all else as its dimensions are."""
    return x if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) else x.contiguous()


def _halves(x: Tensor) -> tuple[int, int]:
    """Return the number of rows of two halves, and the length of a half. A row is an image, a position or a token."""
    if x.dim() == 4 and x.is_contiguous():
        return len(x), x[0].numel() // 2
    channels = x.shape[1] if x.dim() == 4 else x.shape[-1]
    return x.numel() // channels, channels // 2


def _sorted(compiled: ctypes.CDLL, x: Tensor, threads: int) -> Tensor:
    y = torch.empty_like(x)  # in the same order in memory
    compiled.group_sort(*pointers(x, y), *integers(*_halves(x), threads))
    return y


def _gradient(compiled: ctypes.CDLL, x: Tensor, g: Tensor, threads: int) -> Tensor:
    gradient = torch.empty_like(x)
    compiled.group_sort_backward(*pointers(x, g, gradient), *integers(*_halves(x), threads))
    return gradient

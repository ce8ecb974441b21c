"""Max-pooling in C++, where there is a compiler: a fraction of the time that PyTorch takes channels last on a CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from runner.speed.kernels import fits, integers, library, pointers, threads_for


class FastMaxPool(nn.MaxPool2d):
    """`nn.MaxPool2d` without padding, dilation or rounding up, its gradient too."""

    def __init__(self, plain: nn.MaxPool2d) -> None:
        super().__init__(plain.kernel_size, plain.stride)

    @staticmethod
    def can_be(module: nn.Module) -> bool:
        """Whether this computes what `module` does."""
        return (
            type(module) is nn.MaxPool2d
            and pair(module.padding) == (0, 0)
            and pair(module.dilation) == (1, 1)
            and not (module.ceil_mode or module.return_indices)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images [batch, channels, height, width] to the maxima of their windows."""
        kernel, stride = pair(self.kernel_size), pair(self.stride)
        windows = x.dim() == 4 and len(x) > 0 and x.shape[-2] >= kernel[0] and x.shape[-1] >= kernel[1]
        compiled = windows and fits(x) and library("max_pool") is not None
        maxima: Tensor = _MaxPool.apply(x, kernel, stride) if compiled else super().forward(x)
        return maxima


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
        compiled = library("max_pool")
        assert compiled is not None
        x = x.contiguous(memory_format=torch.channels_last)
        batch, channels, *size = x.shape
        output = [(each - k) // s + 1 for each, k, s in zip(size, kernel, stride, strict=True)]
        y = x.new_empty(batch, *output, channels)
        ctx.layout = (ctypes.c_int64 * 9)(*size, channels, *output, *kernel, *stride)
        compiled.max_pool(*pointers(x, y), *integers(batch), ctx.layout, *integers(threads_for(x)))
        y = y.permute(0, 3, 1, 2)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        compiled = library("max_pool")
        assert compiled is not None
        x, y = ctx.saved_tensors
        batch, channels, height, width = x.shape
        g = g.contiguous(memory_format=torch.channels_last)
        gradient = g.new_zeros(batch, height, width, channels)
        threads = integers(threads_for(gradient))
        compiled.max_pool_backward(*pointers(x, y, g, gradient), *integers(batch), ctx.layout, *threads)
        return gradient.permute(0, 3, 1, 2), None, None


def pair(size: int | tuple[int, ...]) -> tuple[int, int]:
    """A size as (height, width), whether it is given as one number for both or as one for each."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])

"""Max-pooling in C++, where there is a compiler: a fraction of the time that PyTorch takes channels last on a CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from runner.networks.geometry import Pair, pair
from runner.speed.kernels import fits, integers, library, pays, pointers, threads_for, waves

_MANY = 1 << 17  # numbers: a call for fewer takes longer than PyTorch's


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library pools as PyTorch does, and its gradient: windows of all kinds, equal numbers, NaN."""
    for kernel, stride in (((2, 2), (1, 1)), ((3, 2), (2, 1)), ((2, 3), (2, 3))):
        x = (waves(3, 5, 8, 7) * 4).round()  # many are equal
        x[1, 2, 3, 4] = torch.nan
        expected, places = torch.ops.aten.max_pool2d_with_indices(x, kernel, stride)
        g = waves(*expected.shape)
        of_x = torch.ops.aten.max_pool2d_with_indices_backward(g, x, kernel, stride, (0, 0), (1, 1), False, places)
        x, g = (each.contiguous(memory_format=torch.channels_last) for each in (x, g))
        y = pooled(compiled, "max_pool", x, kernel, stride, threads=2)
        found = gradient(compiled, "max_pool", x, y, g, kernel, stride, threads=2)
        if not (torch.allclose(y, expected, 0, 0, equal_nan=True) and torch.allclose(found, of_x, rtol=0, atol=1e-5)):
            return False
    return True


class FastMaxPool(nn.MaxPool2d):
    """`nn.MaxPool2d` without padding, dilation or rounding up, its gradient too."""

    def __init__(self, plain: nn.MaxPool2d) -> None:
        super().__init__(plain.kernel_size, plain.stride)

    @staticmethod
    def can_be(module: nn.Module) -> bool:
        """Return True if this computes the same as `module`."""
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
        compiled = library("max_pool", agrees) if windows and fits(x) and pays(x.numel() > _MANY) else None
        if compiled is None:
            plain: Tensor = super().forward(x)
            return plain
        maxima: Tensor = Pool.apply(x, kernel, stride, compiled, "max_pool")
        return maxima


class Pool(torch.autograd.Function):
    """Pooling by a library's function `name`, and its gradient by `name`_backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Pair, stride: Pair, compiled: ctypes.CDLL, name: str) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        y = pooled(compiled, name, x, kernel, stride, threads_for(x))
        ctx.pooling = compiled, name, kernel, stride
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None, None]:
        (x, y), (compiled, name, kernel, stride) = ctx.saved_tensors, ctx.pooling
        g = g.contiguous(memory_format=torch.channels_last)
        return gradient(compiled, name, x, y, g, kernel, stride, threads_for(x)), None, None, None, None


def _layout(x: Tensor, kernel: Pair, stride: Pair) -> ctypes.Array[ctypes.c_int64]:
    """Return the shape that the kernels of pooling read."""
    _, channels, *size = x.shape
    return (ctypes.c_int64 * 9)(*size, channels, *_output(x, kernel, stride), *kernel, *stride)


def _output(x: Tensor, kernel: Pair, stride: Pair) -> list[int]:
    return [(each - k) // s + 1 for each, k, s in zip(x.shape[2:], kernel, stride, strict=True)]


def pooled(compiled: ctypes.CDLL, name: str, x: Tensor, kernel: Pair, stride: Pair, threads: int) -> Tensor:
    """Pool images that lie channels last in memory, as do all below."""
    y = x.new_empty(len(x), *_output(x, kernel, stride), x.shape[1])
    layout = _layout(x, kernel, stride)
    getattr(compiled, name)(*pointers(x, y), *integers(len(x)), layout, *integers(threads))
    return y.permute(0, 3, 1, 2)


def gradient(
    compiled: ctypes.CDLL, name: str, x: Tensor, y: Tensor, g: Tensor, kernel: Pair, stride: Pair, threads: int
) -> Tensor:
    """Return the gradient of x, from y = `pooled` of x and the gradient g of y."""
    of_x, layout = g.new_empty(len(x), *x.shape[2:], x.shape[1]), _layout(x, kernel, stride)
    getattr(compiled, f"{name}_backward")(*pointers(x, y, g, of_x), *integers(len(x)), layout, *integers(threads))
    return of_x.permute(0, 3, 1, 2)

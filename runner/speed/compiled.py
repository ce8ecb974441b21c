"""Layers in C++, where there is a compiler: one pass over the numbers each way, where PyTorch takes several."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from runner.networks.geometry import Pair, pair
from runner.speed.kernels import call, channels_last, fits, library, pays, threads_for, waves

LONG = 1 << 14  # numbers: up to here PyTorch's tanh is as fast, or faster
_MANY = 1 << 17  # numbers: max-pooling of fewer takes longer than PyTorch's
THREADS = 2  # of a trial


def alike(
    x: Tensor,
    plain: Callable[[Tensor], Tensor],
    tolerance: tuple[float, float],
    function: type[torch.autograd.Function],
    *arguments: Any,
) -> bool:
    """Return True if two functions of x have the same numbers and gradients, NaN among them."""
    results = []
    with torch.enable_grad():
        for apply in (plain, lambda x: function.apply(x, *arguments)):
            leaf = x.clone().requires_grad_()
            y = apply(leaf)
            results.append((y.detach(), *torch.autograd.grad((y * waves(*y.shape)).sum(), leaf)))
    rtol, atol = tolerance
    pairs = zip(*results, strict=True)
    return all(torch.allclose(theirs, ours, rtol=rtol, atol=atol, equal_nan=True) for theirs, ours in pairs)


def agrees_on_tanh(compiled: ctypes.CDLL) -> bool:
    """Return True if a library computes the hyperbolic tangent for numbers of every size, shared among threads."""
    x = torch.cat([waves(997), 30 * waves(997), 1e-3 * waves(997), torch.tensor([0.0, 1e30, -1e30, torch.nan])])
    return torch.allclose(_Tanh.apply(x, compiled, 3), x.tanh(), rtol=0, atol=2.4e-7, equal_nan=True)


class FastTanh(nn.Tanh):
    """`nn.Tanh`, off by at most two roundings of one, 2.4e-7, wherever x is (so not relative to small x).

    PyTorch's is a little faster on Intel's processors, and slower on AMD's.
    """

    def forward(self, x: Tensor) -> Tensor:
        in_order = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
        compiled = library("tanh", agrees_on_tanh) if in_order and fits(x) and pays(x.numel() >= LONG) else None
        if compiled is None:
            return super().forward(x)
        y: Tensor = _Tanh.apply(x, compiled, threads_for(x))
        return y


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, compiled: ctypes.CDLL, threads: int) -> Tensor:
        y = torch.empty_like(x)  # in the same order in memory
        call(compiled.tanh_of, x, y, x.numel(), threads)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return torch.ops.aten.tanh_backward(gradient, *ctx.saved_tensors), None, None


def agrees_on_group_norm(compiled: ctypes.CDLL) -> bool:
    """Return True if a library normalises as PyTorch does, for groups of any size, and for equal numbers."""
    for channels, groups, height, width in ((37, 1, 3, 5), (81, 27, 7, 7), (16, 16, 2, 3)):
        x = 3 * waves(3, channels, height, width) + 2
        x[1] = 0.7
        expected = nn.functional.group_norm(x.double(), groups, eps=1e-3).float()
        y = _normalised(compiled, channels_last(x), groups, 1e-3, THREADS)
        if not torch.allclose(y, expected, rtol=1e-5, atol=1e-5):
            return False
    return True


class FastGroupNorm(nn.GroupNorm):
    """`nn.GroupNorm` without an affine map, for images that need no gradient; with one it is PyTorch's.

    It precedes networks on ScatterNet's features. Without the kernel it takes a fifth of a step's time.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Images [batch, channels, height, width]."""
        images = x.dim() == 4 and x.numel() > 0 and x.shape[1] == self.num_channels
        graph = torch.is_grad_enabled() and x.requires_grad
        compiled = library("group_norm", agrees_on_group_norm) if images and fits(x) and not graph else None
        if compiled is None:
            return super().forward(x)
        return _normalised(compiled, channels_last(x), self.num_groups, self.eps, threads_for(x))


def _normalised(compiled: ctypes.CDLL, x: Tensor, groups: int, epsilon: float, threads: int) -> Tensor:
    """Of images that lie channels last in memory, as do the results."""
    batch, channels, height, width = x.shape
    y = x.new_empty(batch, height, width, channels)
    call(compiled.group_norm, x, y, batch, (height * width, channels, groups), threads, float(epsilon))
    return y.permute(0, 3, 1, 2)


def agrees_on_max_pool(compiled: ctypes.CDLL) -> bool:
    """Return True if a library pools as PyTorch does, and its gradient: windows of all kinds, equal numbers, NaN."""
    x = (waves(3, 5, 8, 7) * 4).round()  # many are equal
    x[1, 2, 3, 4] = torch.nan
    return all(
        alike(x, nn.MaxPool2d(*window), (0, 1e-5), Pool, *window, compiled, "max_pool", THREADS)
        for window in (((2, 2), (1, 1)), ((3, 2), (2, 1)), ((2, 3), (2, 3)))
    )


class FastMaxPool(nn.MaxPool2d):
    """`nn.MaxPool2d` without padding, dilation or rounding up, its gradient too."""

    def forward(self, x: Tensor) -> Tensor:
        """Images [batch, channels, height, width] to the maxima of their windows."""
        kernel, stride = pair(self.kernel_size), pair(self.stride)
        windows = x.dim() == 4 and len(x) > 0 and x.shape[-2] >= kernel[0] and x.shape[-1] >= kernel[1]
        compiled = library("max_pool", agrees_on_max_pool) if windows and fits(x) and pays(x.numel() > _MANY) else None
        if compiled is None:
            plain: Tensor = super().forward(x)
            return plain
        maxima: Tensor = Pool.apply(x, kernel, stride, compiled, "max_pool", threads_for(x))
        return maxima


class Pool(torch.autograd.Function):
    """Pooling by a library's function `name`, and its gradient by `name`_backward, channels last in memory."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Pair, stride: Pair, compiled: ctypes.CDLL, name: str, threads: int
    ) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        batch, channels, *size = x.shape
        output = [(length - k) // s + 1 for length, k, s in zip(size, kernel, stride, strict=True)]
        numbers = batch, (*size, channels, *output, *kernel, *stride), threads
        ctx.function, ctx.numbers = getattr(compiled, f"{name}_backward"), numbers
        y = x.new_empty(batch, *output, channels)
        call(getattr(compiled, name), x, y, *numbers)
        y = y.permute(0, 3, 1, 2)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        x, y = ctx.saved_tensors
        gradient = g.new_empty(len(x), *x.shape[2:], x.shape[1])
        call(ctx.function, x, y, g.contiguous(memory_format=torch.channels_last), gradient, *ctx.numbers)
        return gradient.permute(0, 3, 1, 2), None, None, None, None, None

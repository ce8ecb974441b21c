"""Layers in C++, where there is a compiler: one pass over the numbers each way, where PyTorch takes several."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from runner.networks.geometry import Pair, pair
from runner.networks.lipschitz import layers
from runner.networks.lipschitz.layers import GlobalL2Pool, GroupSort2, L2Pool2d
from runner.speed.kernels import fits, integers, library, pays, pointers, threads_for, waves
from runner.speed.slices import channels_last

LONG = 1 << 14  # numbers: up to here PyTorch's tanh is as fast, or faster
_MANY = 1 << 17  # numbers: max-pooling of fewer takes longer than PyTorch's


def agrees_on_tanh(compiled: ctypes.CDLL) -> bool:
    """Return True if a library computes the hyperbolic tangent for numbers of every size, shared among threads."""
    x = torch.cat([waves(997), 30 * waves(997), 1e-3 * waves(997), torch.tensor([0.0, 1e30, -1e30, torch.nan])])
    return torch.allclose(_tanh(compiled, x, threads=3), x.tanh(), rtol=0, atol=2.4e-7, equal_nan=True)


class FastTanh(nn.Tanh):
    """`nn.Tanh`, off by at most two roundings of one, 2.4e-7, wherever x is (so not relative to small x)."""

    def forward(self, x: Tensor) -> Tensor:
        in_order = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
        compiled = library("tanh", agrees_on_tanh) if in_order and fits(x) and pays(x.numel() >= LONG) else None
        if compiled is None:
            return super().forward(x)
        y: Tensor = _Tanh.apply(x, compiled)
        return y


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, compiled: ctypes.CDLL) -> Tensor:
        y = _tanh(compiled, x, threads_for(x))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return torch.ops.aten.tanh_backward(gradient, *ctx.saved_tensors), None


def _tanh(compiled: ctypes.CDLL, x: Tensor, threads: int) -> Tensor:
    y = torch.empty_like(x)  # in the same order in memory
    compiled.tanh_of(*pointers(x, y), *integers(x.numel(), threads))
    return y


def agrees_on_group_norm(compiled: ctypes.CDLL) -> bool:
    """Return True if a library normalises as PyTorch does, for groups of any size, and for equal numbers."""
    for channels, groups, height, width in ((37, 1, 3, 5), (81, 27, 7, 7), (16, 16, 2, 3)):
        x = 3 * waves(3, channels, height, width) + 2
        x[1] = 0.7
        expected = nn.functional.group_norm(x.double(), groups, eps=1e-3).float()
        y = _normalised(compiled, channels_last(x), groups, 1e-3, threads=2)
        if not torch.allclose(y, expected, rtol=1e-5, atol=1e-5):
            return False
    return True


class FastGroupNorm(nn.GroupNorm):
    """`nn.GroupNorm` without an affine map, for images that need no gradient; with one it is PyTorch's."""

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
    shape = (ctypes.c_int64 * 3)(height * width, channels, groups)
    compiled.group_norm(*pointers(x, y), *integers(batch), shape, *integers(threads), ctypes.c_double(epsilon))
    return y.permute(0, 3, 1, 2)


def agrees_on_group_sort(compiled: ctypes.CDLL) -> bool:
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
        compiled = library("group_sort", agrees_on_group_sort) if pairs and fits(x) else None
        if compiled is None:
            return super().forward(x)
        # Numbers without gaps: images in either order, all else as its dimensions are.
        in_order = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        y: Tensor = _GroupSort.apply(x if in_order else x.contiguous(), compiled)
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


def agrees_on_max_pool(compiled: ctypes.CDLL) -> bool:
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

    @staticmethod
    def takes(plain: nn.MaxPool2d) -> bool:
        """Return True if this computes the same as a layer."""
        same = pair(plain.padding) == (0, 0) and pair(plain.dilation) == (1, 1)
        return same and not (plain.ceil_mode or plain.return_indices)

    def forward(self, x: Tensor) -> Tensor:
        """Images [batch, channels, height, width] to the maxima of their windows."""
        kernel, stride = pair(self.kernel_size), pair(self.stride)
        windows = x.dim() == 4 and len(x) > 0 and x.shape[-2] >= kernel[0] and x.shape[-1] >= kernel[1]
        compiled = library("max_pool", agrees_on_max_pool) if windows and fits(x) and pays(x.numel() > _MANY) else None
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


def agrees_on_l2_pool(compiled: ctypes.CDLL) -> bool:
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
    compiled = library("l2_pool", agrees_on_l2_pool) if windows and fits(x) else None
    return None if compiled is None else Pool.apply(x, window, window, compiled, "l2_pool")

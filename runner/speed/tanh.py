"""tanh in C++, where there is a compiler. PyTorch's is a little faster on Intel's processors, slower on AMD's."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from runner.speed.kernels import fits, integers, library, pays, pointers, threads_for, waves

_ERROR = 2.4e-7  # two roundings of one
_MANY = 1 << 14  # numbers: up to here PyTorch is as fast, or faster


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library computes the hyperbolic tangent for numbers of every size, shared among threads."""
    x = torch.cat([waves(997), 30 * waves(997), 1e-3 * waves(997), torch.tensor([0.0, 1e30, -1e30, torch.nan])])
    return torch.allclose(_tanh(compiled, x, threads=3), x.tanh(), rtol=0, atol=_ERROR, equal_nan=True)


class FastTanh(nn.Tanh):
    """`nn.Tanh`, off by at most two roundings of one, 2.4e-7, wherever x is (so not relative to small x)."""

    def forward(self, x: Tensor) -> Tensor:
        in_order = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
        compiled = library("tanh", agrees) if in_order and fits(x) and pays(x.numel() >= _MANY) else None
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

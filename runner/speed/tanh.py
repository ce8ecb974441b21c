"""tanh in C++, where there is a compiler: PyTorch's is as fast on Intel's processors, by MKL, but not on AMD's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from runner.speed.kernels import fits, integers, library, pointers, threads_for


class FastTanh(nn.Tanh):
    """`nn.Tanh`, off by at most two roundings of one, 2.4e-7, wherever x is (so not relative to small x)."""

    def forward(self, x: Tensor) -> Tensor:
        in_order = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
        if not (in_order and fits(x) and library("tanh") is not None):
            return super().forward(x)
        y: Tensor = _Tanh.apply(x)
        return y


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        compiled = library("tanh")
        assert compiled is not None
        y = torch.empty_like(x)  # in the same order in memory
        compiled.tanh_of(*pointers(x, y), *integers(x.numel(), threads_for(x)))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        of_x: Tensor = torch.ops.aten.tanh_backward(gradient, y)
        return of_x

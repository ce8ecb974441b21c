"""Convolutions with windows of 3 x 3 in C++, where there is a compiler: a quarter of the multiplications, by Winograd.

What networks for CIFAR-10 spend most of their time on, forward and in the gradient of the input, which is such a
convolution again, of the windows turned round. The gradient of the weights of a whole batch, which no private step
takes by them, stays PyTorch's.
"""

from __future__ import annotations

import ctypes
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input, conv2d_weight

from runner.speed.choices import function_pays, trial_shape
from runner.speed.kernels import fits, integers, library, pointers, threads_for, waves
from runner.speed.slices import channels_last

_CHANNELS = 16  # in and out are multiples of it: numbers in the longest register
_WINDOW = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


def agrees(compiled: ctypes.CDLL) -> bool:
    """Whether a library convolves as PyTorch does, and its gradient: tiles cut off and whole, one vector or several."""
    for channels_in, channels_out, height, width in ((16, 112, 9, 6), (48, 16, 4, 13)):
        x, weight = waves(3, channels_in, height, width), waves(channels_out, channels_in, 3, 3)
        bias = 10 * waves(channels_out)
        expected = nn.functional.conv2d(x.double(), weight.double(), bias.double(), padding=1).float()
        found = _convolved(compiled, channels_last(x), weight, bias, threads=2)
        if not torch.allclose(found, expected, rtol=0, atol=1e-4 * expected.abs().max().item()):
            return False
        g = waves(*expected.shape)
        of_x = conv2d_input(x.shape, weight.double(), g.double(), padding=1).float()
        found = _convolved(compiled, channels_last(g), weight, None, threads=2, turned=True)
        if not torch.allclose(found, of_x, rtol=0, atol=1e-4 * of_x.abs().max().item()):
            return False
    return True


class FastConvolution(nn.Conv2d):
    """An `nn.Conv2d` of 3 x 3 windows, one pixel apart, padded by one; outputs are off by some 1e-5 of the largest.

    Of an image with a pixel that is infinite or NaN, more outputs are NaN than would be otherwise: never another's.
    """

    @staticmethod
    def can_be(module: nn.Module) -> bool:
        """Whether this computes what `module` does."""
        return (
            type(module) is nn.Conv2d
            and all(getattr(module, name) == value for name, value in _WINDOW.items())
            and module.padding_mode == "zeros"
            and module.in_channels % _CHANNELS == 0
            and module.out_channels % _CHANNELS == 0
        )

    @classmethod
    def of(cls, plain: nn.Conv2d) -> Self:
        """The same layer: it has the parameters and hooks of `plain`, those that come later too."""
        fast = cls.__new__(cls)
        fast.__dict__.update(plain.__dict__)
        return fast

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        images = x.dim() == 4 and x.numel() > 0 and x.shape[1] == self.in_channels
        if not (images and fits(x) and fits(weight) and library("winograd", agrees) is not None and self._pays(x)):
            plain: Tensor = super()._conv_forward(x, weight, bias)
            return plain
        y: Tensor = _Convolution.apply(x, weight, bias)
        return y

    def _pays(self, x: Tensor) -> bool:
        def ours(x: Tensor) -> Tensor:
            y: Tensor = _Convolution.apply(x, self.weight.detach(), None)
            return y

        def pytorchs(x: Tensor) -> Tensor:
            return nn.functional.conv2d(x, self.weight.detach(), padding=1)

        return function_pays("winograd", trial_shape(x.shape), ours, pytorchs, f"to {self.out_channels} channels")


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        compiled = library("winograd", agrees)
        assert compiled is not None
        x = channels_last(x)
        ctx.save_for_backward(x, weight)
        return _convolved(compiled, x, weight, bias, threads_for(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        compiled = library("winograd", agrees)
        assert compiled is not None
        x, weight = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        wanted = ctx.needs_input_grad
        if wanted[0]:
            of_x = _convolved(compiled, channels_last(g), weight, None, threads_for(g), turned=True)
        if wanted[1]:
            of_weight = conv2d_weight(x, list(weight.shape), g, padding=1)
        if wanted[2]:
            of_bias = g.sum((0, 2, 3))
        return of_x, of_weight, of_bias


def _convolved(
    compiled: ctypes.CDLL, x: Tensor, weight: Tensor, bias: Tensor | None, threads: int, turned: bool = False
) -> Tensor:
    """Of images that lie channels last in memory; so do the outputs.

    weight: [out, in, 3, 3]; turned: that of the convolution which x is the outputs' gradient of, [in, out, 3, 3].
    """
    batch, channels, height, width = x.shape
    weight = weight.detach().contiguous()
    channels_out = weight.shape[1 if turned else 0]
    y = x.new_empty(batch, height, width, channels_out)
    biases = ctypes.c_void_p() if bias is None else pointers(bias.detach().contiguous())[0]
    shape = (ctypes.c_int64 * 5)(height, width, channels, channels_out, turned)
    compiled.winograd(*pointers(x, weight), biases, *pointers(y), *integers(batch), shape, *integers(threads))
    return y.permute(0, 3, 1, 2)

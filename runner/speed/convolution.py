"""Convolutions with windows of 3 x 3 in C++, if there is a compiler: a quarter of the multiplications, by Winograd.

Networks for CIFAR-10 spend most of their time on them, forward and in the gradient of the input. That gradient is such
a convolution again, with the windows turned round. The gradient of the weights of a whole batch stays PyTorch's, as
clipping by example does not take it (`runner.gradients.methods` has those of the examples).

Numbers are some ten times as far from the exact ones as PyTorch's. Bounds on an example's contribution do not depend on
them if norms and sums follow from the same computed inputs and gradients. Bounds of Lipschitz networks hold in exact
arithmetic. Their margin for rounding (`bounds.ROUNDING`) covers this kernel up to `_MOST_CHANNELS`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input, conv2d_weight

from runner.networks.standardized import StandardizedConv2d
from runner.speed.kernels import fits, integers, library, pays, pointers, threads_for, waves
from runner.speed.slices import channels_last

_LONGEST = 16  # numbers in the longest register: in and out have at least as many channels
_MOST_CHANNELS = 256  # if all have one sign, the relative error of the output is 3e-6; with 1,024 it is 1.3e-5
_WINDOW = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
_POINTS = 36  # numbers that a window of weights becomes
_FEWEST_PIXELS = 512  # of a batch: with fewer, transforming the weights takes longer than it saves


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library convolves as PyTorch does, and so does its gradient.

    Tiles are cut off and whole, outputs are one vector or several, and one image has a NaN.
    """
    for images, channels_in, channels_out, height, width, threads in (
        (3, 16, 112, 9, 6, 2),
        (3, 48, 16, 5, 14, 2),
        (8, 16, 16, 17, 18, 1),  # more tiles than are transformed at a time
        (2, 21, 35, 5, 6, 1),
    ):
        x, weight = waves(images, channels_in, height, width), waves(channels_out, channels_in, 3, 3) / channels_in
        bias = waves(channels_out)
        x[1, 0, 2, width - 6] = torch.nan
        plain = nn.functional.conv2d(x.double(), weight.double(), bias.double(), padding=1)
        g = waves(*plain.shape)
        of_x = conv2d_input(x.shape, weight.double(), g.double(), padding=1)
        u, turned = (_transformed(compiled, weight, 2, turned=turned) for turned in (False, True))
        for y, expected in (
            (_convolved(compiled, channels_last(x), u, channels_out, bias, threads), plain),
            (_convolved(compiled, channels_last(g), turned, channels_in, None, threads), of_x),
        ):
            # Outputs agree to rounding, and each expected NaN is there, in the same images.
            broken = expected.isnan().flatten(1).any(1)
            finite = expected[~broken].float()
            if not (
                (y[broken].isnan() >= expected[broken].isnan()).all()
                and torch.allclose(y[~broken], finite, rtol=0, atol=1e-4 * finite.abs().max().item())
            ):
                return False
    return True


class FastConvolution(nn.Conv2d):
    """An `nn.Conv2d` of 3 x 3 windows, one pixel apart, padded by one; outputs are off by some 1e-5 of the largest.

    Of an image with a pixel that is infinite or NaN, more outputs are NaN than would be otherwise: never another's.
    """

    @staticmethod
    def takes(plain: nn.Conv2d) -> bool:
        """Return True if this computes the same as a layer."""
        return (
            type(plain) in (nn.Conv2d, StandardizedConv2d)
            and all(getattr(plain, name) == value for name, value in _WINDOW.items())
            and plain.padding_mode == "zeros"
            and all(_LONGEST <= n <= _MOST_CHANNELS for n in (plain.in_channels, plain.out_channels))
        )

    @staticmethod
    def of(plain: nn.Conv2d) -> FastConvolution:
        """Return the same layer, which shares the parameters and forward hooks of `plain`, also later ones."""
        kind = FastStandardizedConvolution if isinstance(plain, StandardizedConv2d) else FastConvolution
        fast = kind.__new__(kind)
        fast.__dict__.update(plain.__dict__)
        return fast

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        sizes = self.out_channels, self.in_channels
        if (
            x.dim() == 4
            and x.numel() > 0
            and x.shape[1] == self.in_channels
            and weight.shape == (*sizes, 3, 3)
            and (bias is None or (bias.shape == sizes[:1] and fits(bias)))
            and fits(x)
            and fits(weight)
            and pays(x.numel() >= _FEWEST_PIXELS * self.in_channels)
            and (compiled := library("winograd", agrees)) is not None
        ):
            y: Tensor = _Convolution.apply(x, weight, bias, compiled)
            return y
        plain: Tensor = super()._conv_forward(x, weight, bias)
        return plain


class FastStandardizedConvolution(FastConvolution, StandardizedConv2d):
    """A `StandardizedConv2d` of the same windows."""


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, compiled: ctypes.CDLL) -> Tensor:
        x, threads = channels_last(x), threads_for(x)
        ctx.compiled = compiled
        ctx.save_for_backward(x, weight)
        return _convolved(compiled, x, _transformed(compiled, weight, threads), len(weight), bias, threads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (x, weight), threads = ctx.saved_tensors, threads_for(g)
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            u = _transformed(ctx.compiled, weight, threads, turned=True)
            of_x = _convolved(ctx.compiled, channels_last(g), u, weight.shape[1], None, threads)
        if ctx.needs_input_grad[1]:
            of_weight = conv2d_weight(x, list(weight.shape), g, padding=1)
        return of_x, of_weight, g.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None, None


def _transformed(compiled: ctypes.CDLL, weight: Tensor, threads: int, *, turned: bool = False) -> Tensor:
    """Weights [out, in, 3, 3] for `_convolved`: [36, in, out], out filled up with zeros to whole vectors.

    turned: of the convolution that takes gradients of the outputs to gradients of the inputs: [36, out, in].
    """
    weight = weight.detach().contiguous()
    channels_out, channels_in = weight.shape[:2]
    if turned:
        channels_out, channels_in = channels_in, channels_out
    u = weight.new_empty(_POINTS, channels_in, -(-channels_out // _LONGEST) * _LONGEST)
    shape = (ctypes.c_int64 * 5)(0, 0, channels_in, channels_out, turned)
    compiled.winograd_weights(*pointers(weight, u), shape, *integers(threads))
    return u


def _convolved(
    compiled: ctypes.CDLL, x: Tensor, u: Tensor, channels_out: int, bias: Tensor | None, threads: int
) -> Tensor:
    """Of images that lie channels last in memory, with transformed weights; the outputs lie so too."""
    batch, channels_in, height, width = x.shape
    y = x.new_empty(batch, height, width, channels_out)
    bias = None if bias is None else bias.detach().contiguous()  # kept until the call is over
    biases = ctypes.c_void_p() if bias is None else pointers(bias)[0]
    shape = (ctypes.c_int64 * 5)(height, width, channels_in, channels_out, 0)
    compiled.winograd(*pointers(x, u), biases, *pointers(y), *integers(batch), shape, *integers(threads))
    return y.permute(0, 3, 1, 2)

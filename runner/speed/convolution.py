"""Convolutions in C++, if there is a compiler: by Winograd, or by their definition, forward and to the inputs.

Windows of 3 x 3, on which networks for CIFAR-10 spend most of their time, take a quarter of the multiplications by
Winograd's algorithm. Small convolutions of other kinds, as in networks for MNIST, are computed by their definition,
because PyTorch's library spends most of its time there on moving numbers. The gradient of the input is such a
convolution again, with the windows turned round. The gradient of the weights of a whole batch stays PyTorch's, as
clipping by example does not take it (`runner.gradients.methods` has those of the examples).

Numbers by Winograd are some ten times as far from the exact ones as PyTorch's. Bounds on an example's contribution do
not depend on them if norms and sums follow from the same computed inputs and gradients. Bounds of Lipschitz networks
hold in exact arithmetic. Their margin for rounding (`bounds.ROUNDING`) covers Winograd's up to `_MOST_CHANNELS`.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input, conv2d_weight

from runner.networks.geometry import Pair
from runner.networks.standardized import StandardizedConv2d
from runner.speed.kernels import fits, integers, library, pays, pointers, threads_for, waves
from runner.speed.slices import channels_last

Window = tuple[Pair, Pair]  # stride and padding

_LONGEST = 16  # numbers in the longest register: in and out have at least as many channels
_MOST_CHANNELS = 256  # if all have one sign, the relative error of the output is 3e-6; with 1,024 it is 1.3e-5
_WINDOW = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1)}
_POINTS = 36  # numbers that a window of weights becomes
_FEWEST_PIXELS = 512  # of a batch: with fewer, transforming the weights takes longer than it saves
_FEW_CHANNELS = 32  # in: with more, PyTorch's convolutions are as fast as the definition
_MOST_TERMS = 2048  # of an output: more would leave the cache, and round more


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


def agrees_directly(compiled: ctypes.CDLL) -> bool:
    """Return True if a library convolves by the definition as PyTorch does, and so does its gradient.

    Windows are longer and shorter than their stride, channels fill vectors or leave a rest, and one image has a NaN.
    """
    for images, channels, window, stride, padding, threads in (
        ((9, 7), (1, 16), (8, 8), (2, 2), (3, 3), 1),
        ((5, 8), (16, 32), (4, 4), (2, 2), (0, 0), 2),
        ((7, 6), (3, 21), (2, 3), (3, 1), (0, 2), 1),
    ):
        x, weight, bias = waves(3, channels[0], *images), waves(*channels[::-1], *window), waves(channels[1])
        x[1, 0, 2, 3] = torch.nan
        plain = nn.functional.conv2d(x.double(), weight.double(), bias.double(), stride, padding)
        g = waves(*plain.shape)
        g[1] = torch.nan
        of_x = conv2d_input(x.shape, weight.double(), g.double(), stride, padding)
        shape = _shape(x, weight, stride, padding)
        y = _output(compiled, channels_last(x), weight, bias, shape, threads)
        gradient = _input_gradient(compiled, channels_last(g), weight, shape, threads)
        for computed, expected in ((y, plain), (gradient, of_x)):
            if not torch.allclose(computed.double(), expected, rtol=0, atol=1e-4, equal_nan=True):
                return False
    return True


class FastConvolution(nn.Conv2d):
    """An `nn.Conv2d` padded by zeros: of 3 x 3 windows one pixel apart by Winograd, others of few channels directly.

    By Winograd, outputs are off by some 1e-5 of the largest. Of an image with a pixel that is infinite or NaN, more
    outputs are NaN than would be otherwise: never another's.
    """

    @staticmethod
    def takes(plain: nn.Conv2d) -> bool:
        """Return True if this computes the same as a layer, in less time."""
        return (
            type(plain) in (nn.Conv2d, StandardizedConv2d)
            and plain.padding_mode == "zeros"
            and not isinstance(plain.padding, str)
            and plain.dilation == (1, 1)
            and plain.groups == 1
            and (_by_winograd(plain) or _is_small(plain))
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
            and weight.shape == (*sizes, *self.kernel_size)
            and (bias is None or (bias.shape == sizes[:1] and fits(bias)))
            and fits(x)
            and fits(weight)
            and (y := self._compiled(x, weight, bias)) is not None
        ):
            return y
        plain: Tensor = super()._conv_forward(x, weight, bias)
        return plain

    def _compiled(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        if _by_winograd(self):
            enough = pays(x.numel() >= _FEWEST_PIXELS * self.in_channels)
            compiled = library("winograd", agrees) if enough else None
            return None if compiled is None else cast(Tensor, _Convolution.apply(x, weight, bias, compiled))
        window: Window = (cast(Pair, self.stride), cast(Pair, self.padding))
        shape = _shape(x, weight, *window)
        compiled = library("convolution", agrees_directly) if min(shape[3:5]) > 0 else None
        if compiled is None:
            return None
        return cast(Tensor, _DirectConvolution.apply(x, weight, bias, compiled, shape, window))


class FastStandardizedConvolution(FastConvolution, StandardizedConv2d):
    """A `StandardizedConv2d` of the same windows."""


def _by_winograd(layer: nn.Conv2d) -> bool:
    window = all(getattr(layer, name) == value for name, value in _WINDOW.items())
    return window and all(_LONGEST <= n <= _MOST_CHANNELS for n in (layer.in_channels, layer.out_channels))


def _is_small(layer: nn.Conv2d) -> bool:
    few = layer.in_channels <= _FEW_CHANNELS or layer.out_channels < _LONGEST
    return few and layer.in_channels * math.prod(layer.kernel_size) <= _MOST_TERMS


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


class _DirectConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, compiled: ctypes.CDLL, shape: Any, window: Window
    ) -> Tensor:
        x = channels_last(x)
        ctx.numbers = compiled, shape, window
        ctx.save_for_backward(x, weight)
        return _output(compiled, x, weight, bias, shape, threads_for(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (compiled, shape, window) = ctx.saved_tensors, ctx.numbers
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = _input_gradient(compiled, channels_last(g), weight, shape, threads_for(g))
        if ctx.needs_input_grad[1]:
            of_weight = conv2d_weight(x, list(weight.shape), g, *window)
        return of_x, of_weight, g.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None, None, None, None


def _shape(x: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> ctypes.Array[ctypes.c_int64]:
    """Return the sizes that the kernel reads: of inputs, of outputs, of the window, strides and padding."""
    size, window = x.shape[2:], weight.shape[2:]
    output = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(size, padding, window, stride, strict=True)]
    return (ctypes.c_int64 * 12)(*size, weight.shape[1], *output, len(weight), *window, *stride, *padding)


def _output(compiled: ctypes.CDLL, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Any, threads: int) -> Tensor:
    """Convolve images that lie channels last in memory; the outputs lie so too."""
    height, width, channels = shape[3:6]
    weight, y = weight.detach().contiguous(), x.new_empty(len(x), height, width, channels)
    bias = None if bias is None else bias.detach().contiguous()  # kept until the call is over
    biases = ctypes.c_void_p() if bias is None else pointers(bias)[0]
    compiled.convolution(*pointers(x, weight), biases, *pointers(y), *integers(len(x)), shape, *integers(threads))
    return y.permute(0, 3, 1, 2)


def _input_gradient(compiled: ctypes.CDLL, g: Tensor, weight: Tensor, shape: Any, threads: int) -> Tensor:
    """Return the gradient of the images from that of the outputs, which lies channels last in memory."""
    height, width, channels = shape[:3]
    weight, gradient = weight.detach().contiguous(), g.new_empty(len(g), height, width, channels)
    compiled.convolution_backward(*pointers(g, weight, gradient), *integers(len(g)), shape, *integers(threads))
    return gradient.permute(0, 3, 1, 2)

"""Convolutions in C++, if there is a compiler: by Winograd, or by their definition, forward and to the inputs.

Windows of 3 x 3, on which networks for CIFAR-10 spend most of their time, take a quarter of the multiplications by
Winograd's algorithm. Small convolutions of other kinds, as in networks for MNIST, are computed by their definition,
because PyTorch's library spends most of its time there on moving numbers. The gradient of the input is such a
convolution again, with the windows turned round. The gradient of the weights of a whole batch stays PyTorch's, as
clipping by example does not take it (`runner.gradients.terms` has those of the examples).

Numbers by Winograd are some ten times as far from the exact ones as PyTorch's. Bounds on an example's contribution do
not depend on them if norms and sums follow from the same computed inputs and gradients. Bounds of Lipschitz networks
hold in exact arithmetic. Their margin for rounding (`bounds.ROUNDING`) covers Winograd's up to `_MOST_CHANNELS`.
"""

import ctypes
import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.grad import conv2d_input, conv2d_weight

from runner.networks.geometry import Pair
from runner.networks.standardized import StandardizedConv2d
from runner.speed.kernels import call, channels_last, fits, library, pays, threads_for, waves

Window = tuple[Pair, Pair]  # stride and padding

_LONGEST = 16  # numbers in the longest register: in and out have at least as many channels
_MOST_CHANNELS = 256  # if all have one sign, the relative error of the output is 3e-6; with 1,024 it is 1.3e-5
_WINDOW = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1)}
_POINTS = 36  # numbers that a window of weights becomes
_FEWEST_PIXELS = 512  # of a batch: with fewer, transforming the weights takes longer than it saves
_FEW_CHANNELS = 32  # in: with more, PyTorch's convolutions are as fast as the definition
_MOST_TERMS = 2048  # of an output: more would leave the cache, and round more


@dataclass(frozen=True)
class Winograd:
    """Convolutions of 3 x 3 windows one pixel apart, by a library. Images lie channels last in memory."""

    compiled: ctypes.CDLL
    window: ClassVar[Window] = ((1, 1), (1, 1))

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None, threads: int, *, turned: bool = False) -> Tensor:
        """Convolve images. With windows that are `turned`, x is a gradient of outputs, and the result of images."""
        weight, bias = weight.detach().contiguous(), None if bias is None else bias.detach().contiguous()
        batch, channels_in, height, width = x.shape
        channels_out = weight.shape[1 if turned else 0]
        # Transformed weights [36, in, out], out filled up with zeros to whole vectors.
        u = weight.new_empty(_POINTS, channels_in, -(-channels_out // _LONGEST) * _LONGEST)
        call(self.compiled.winograd_weights, weight, u, (0, 0, channels_in, channels_out, turned), threads)
        y = x.new_empty(batch, height, width, channels_out)
        call(self.compiled.winograd, x, u, bias, y, batch, (height, width, channels_in, channels_out, 0), threads)
        return y.permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Direct:
    """Convolutions by their definition, by a library. Images lie channels last in memory."""

    compiled: ctypes.CDLL
    window: Window
    shape: tuple[int, ...]  # of inputs, of outputs, of the window, strides and padding

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None, threads: int, *, turned: bool = False) -> Tensor:
        """Convolve images, or gradients of outputs: see `Winograd`."""
        weight, bias = weight.detach().contiguous(), None if bias is None else bias.detach().contiguous()
        height, width, channels = self.shape[:3] if turned else self.shape[3:6]
        y = x.new_empty(len(x), height, width, channels)
        if turned:
            call(self.compiled.convolution_backward, x, weight, y, len(x), self.shape, threads)
        else:
            call(self.compiled.convolution, x, weight, bias, y, len(x), self.shape, threads)
        return y.permute(0, 3, 1, 2)


Kernel: TypeAlias = Winograd | Direct


def _shape(x: Tensor, weight: Tensor, window: Window) -> tuple[int, ...]:
    size, taps, (stride, padding) = x.shape[2:], weight.shape[2:], window
    output = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(size, padding, taps, stride, strict=True)]
    return (*size, weight.shape[1], *output, len(weight), *taps, *stride, *padding)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, kernel: Kernel) -> Tensor:
        x, ctx.kernel = channels_last(x), kernel
        ctx.save_for_backward(x, weight)
        return kernel(x, weight, bias, threads_for(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = ctx.kernel(channels_last(g), weight, None, threads_for(g), turned=True)
        if ctx.needs_input_grad[1]:
            of_weight = conv2d_weight(x, list(weight.shape), g, *ctx.kernel.window)
        return of_x, of_weight, g.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None, None


def _both_ways(
    kernel: Kernel, x: Tensor, weight: Tensor, threads: int, broken: int | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Return outputs and a gradient of the images, each as the kernel and as PyTorch computes it, in float64."""
    bias, exact = waves(len(weight)), weight.double()
    plain = nn.functional.conv2d(x.double(), exact, bias.double(), *kernel.window)
    g = waves(*plain.shape)
    if broken is not None:
        g[broken] = torch.nan
    y = kernel(channels_last(x), weight, bias, threads)
    gradient = kernel(channels_last(g), weight, None, threads, turned=True)
    return [(y, plain), (gradient, conv2d_input(x.shape, exact, g.double(), *kernel.window))]


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library convolves by Winograd as PyTorch does, and so does its gradient.

    Tiles are cut off and whole, outputs are one vector or several, and one image has a NaN.
    """
    for images, channels_in, channels_out, height, width, threads in (
        (3, 16, 112, 9, 6, 2),
        (3, 48, 16, 5, 14, 2),
        (8, 16, 16, 17, 18, 1),  # more tiles than are transformed at a time
        (2, 21, 35, 5, 6, 1),
    ):
        x, weight = waves(images, channels_in, height, width), waves(channels_out, channels_in, 3, 3) / channels_in
        x[1, 0, 2, width - 6] = torch.nan
        for y, expected in _both_ways(Winograd(compiled), x, weight, threads):
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
    for images, channels, taps, window, threads in (
        ((9, 7), (1, 16), (8, 8), ((2, 2), (3, 3)), 1),
        ((5, 8), (16, 32), (4, 4), ((2, 2), (0, 0)), 2),
        ((7, 6), (3, 21), (2, 3), ((3, 1), (0, 2)), 1),
    ):
        x, weight = waves(3, channels[0], *images), waves(*channels[::-1], *taps)
        x[1, 0, 2, 3] = torch.nan
        kernel = Direct(compiled, window, _shape(x, weight, window))
        for computed, expected in _both_ways(kernel, x, weight, threads, broken=1):
            if not torch.allclose(computed.double(), expected, rtol=0, atol=1e-4, equal_nan=True):
                return False
    return True


class FastConvolution(nn.Conv2d):
    """An `nn.Conv2d` padded by zeros: of 3 x 3 windows one pixel apart by Winograd, others of few channels directly.

    By Winograd, outputs are off by some 1e-5 of the largest. Of an image with a pixel that is infinite or NaN, more
    outputs are NaN than would be otherwise: never another's.
    """

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        sizes = self.out_channels, self.in_channels
        kernel: Kernel | None = None
        if (
            x.dim() == 4
            and x.numel() > 0
            and x.shape[1] == self.in_channels
            and weight.shape == (*sizes, *self.kernel_size)
            and (bias is None or (bias.shape == sizes[:1] and fits(bias)))
            and fits(x)
            and fits(weight)
        ):
            if _by_winograd(self):
                if pays(x.numel() >= _FEWEST_PIXELS * self.in_channels) and (compiled := library("winograd", agrees)):
                    kernel = Winograd(compiled)
            else:
                window = cast(Pair, self.stride), cast(Pair, self.padding)
                shape = _shape(x, weight, window)
                if min(shape[3:5]) > 0 and (compiled := library("convolution", agrees_directly)):
                    kernel = Direct(compiled, window, shape)
        if kernel is None:
            return cast(Tensor, super()._conv_forward(x, weight, bias))
        return cast(Tensor, _Convolution.apply(x, weight, bias, kernel))


class FastStandardizedConvolution(FastConvolution, StandardizedConv2d):
    """A `StandardizedConv2d` of the same windows."""


def fast_convolution(plain: nn.Conv2d) -> type[FastConvolution] | None:
    """Return the class that computes the same as a layer in less time, or None."""
    if not (
        type(plain) in (nn.Conv2d, StandardizedConv2d)
        and plain.padding_mode == "zeros"
        and not isinstance(plain.padding, str)
        and plain.dilation == (1, 1)
        and plain.groups == 1
    ):
        return None
    # Few channels and terms: PyTorch's convolutions are as fast for more.
    few = plain.in_channels <= _FEW_CHANNELS or plain.out_channels < _LONGEST
    if not (_by_winograd(plain) or (few and plain.in_channels * math.prod(plain.kernel_size) <= _MOST_TERMS)):
        return None
    return FastStandardizedConvolution if isinstance(plain, StandardizedConv2d) else FastConvolution


def _by_winograd(layer: nn.Conv2d) -> bool:
    window = all(getattr(layer, name) == value for name, value in _WINDOW.items())
    return window and all(_LONGEST <= n <= _MOST_CHANNELS for n in (layer.in_channels, layer.out_channels))

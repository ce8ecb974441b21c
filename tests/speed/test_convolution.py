"""Compiled convolutions give PyTorch's numbers and gradients."""

import copy
import math

import pytest
import torch
from torch import nn

from runner.networks.standardized import StandardizedConv2d
from runner.speed.convolution import fast_convolution
from runner.speed.faster import faster

CONVOLVED = {  # the layer, and the size of the images
    "one pixel": (nn.Conv2d(16, 16, 3, padding=1, bias=False), (1, 1)),
    "tiles cut off": (nn.Conv2d(48, 112, 3, padding=1), (7, 10)),
    "whole tiles": (nn.Conv2d(32, 64, 3, padding=1, bias=False), (8, 4)),
    "a line": (nn.Conv2d(16, 32, 3, padding=1), (33, 1)),
    "surplus channels": (nn.Conv2d(17, 35, 3, padding=1, bias=False), (5, 3)),
    "features": (nn.Conv2d(243, 17, 3, padding=1), (2, 17)),
    "standardised": (StandardizedConv2d(32, 48, 3, padding=1), (9, 6)),
    "MNIST, first": (nn.Conv2d(1, 16, 8, 2, 3), (28, 28)),
    "MNIST, second": (nn.Conv2d(16, 32, 4, 2), (13, 13)),
    "strides beyond the window": (nn.Conv2d(3, 5, (2, 1), (3, 2)), (9, 8)),
    "pixels that no window sees": (nn.Conv2d(2, 17, 3, 2), (8, 6)),
    "padded beyond the window": (nn.Conv2d(1, 8, (1, 2), 1, (2, 3)), (3, 1)),
    "one window": (nn.Conv2d(31, 9, (5, 3), bias=False), (5, 3)),
    "few channels out": (nn.Conv2d(243, 10, 1), (4, 5)),
}


@pytest.mark.parametrize("case", CONVOLVED)
def test_a_convolution(kernels: str, case: str) -> None:
    """Outputs and all gradients, next to float64's, as PyTorch's. Layouts alternate."""
    torch.manual_seed(0)
    plain, size = CONVOLVED[case]
    plain.reset_parameters()
    layout = list(CONVOLVED).index(case) % 2
    images = torch.randn(5, plain.in_channels, *size)
    x = images.contiguous(memory_format=torch.channels_last if layout else torch.contiguous_format)
    assert fast_convolution(plain)
    exact, results = copy.deepcopy(plain).double(), []
    upstream = torch.randn(plain(x).shape)
    for layer, inputs, g in ((faster(plain), x, upstream), (exact, x.double(), upstream.double())):
        y = layer(inputs.requires_grad_())
        results.append([y, *torch.autograd.grad(y, [inputs, *layer.parameters()], g)])
    by_tiles = plain.kernel_size == (3, 3) and plain.stride == (1, 1)
    for fast, right in zip(*results, strict=True):
        assert (fast.double() - right).abs().max() < (1e-5 if by_tiles else 1e-6) * right.abs().max()


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (nn.Conv2d(3, 21, (3, 2), stride=2, padding=1), (9, 8)),
        *((nn.Conv2d(16, 48, 3, padding=1), size) for size in ((10, 7), (5, 5), (3, 4))),
    ],
)
def test_an_image_is_convolved_alone(kernels: str, layer: nn.Conv2d, size: tuple[int, int]) -> None:
    """To the last bit what it is among others, whatever they are, and the gradient of its pixels too.

    Of small images several are in one product of matrices.
    """
    torch.manual_seed(0)
    images = torch.randn(9, layer.in_channels, *size)
    beside = images.clone()
    beside[3] = 1e20 * torch.randn(images.shape[1:])
    beside[3, 0, 0, 0] = math.nan
    results = []
    for x in (images, beside):
        y = faster(layer)(x.requires_grad_())
        results.append((y, torch.autograd.grad(y, x, y.detach())[0]))
    for alone, among in zip(*results, strict=True):
        assert torch.equal(alone[[*range(3), *range(4, 9)]], among[[*range(3), *range(4, 9)]])
    assert results[1][0][3].isnan().any()


@pytest.mark.parametrize("bias", [torch.randn(128)[::2], torch.randn(1).expand(64), torch.randn(67)[3:]])
def test_a_bias_of_any_order_in_memory(kernels: str, bias: torch.Tensor) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(16, 64, 3, padding=1)
    plain.bias = nn.Parameter(bias, requires_grad=False)
    x = torch.randn(3, 16, 6, 6)
    fast = faster(plain)
    torch.testing.assert_close(fast(x), plain(x), rtol=0, atol=1e-4)


def outcome(layer: nn.Module, x: torch.Tensor) -> torch.Tensor | str:
    """What the layer computes, or why it does not."""
    try:
        computed: torch.Tensor = layer(x)
    except RuntimeError as error:
        return str(error)
    return computed


@pytest.mark.parametrize(
    ("name", "size", "dtype"),
    [
        ("weight", (16, 8, 3, 3), torch.float32),
        ("weight", (40, 16, 3, 3), torch.float32),
        ("weight", (16, 16, 9, 9), torch.float32),  # larger than the images
        ("bias", (3,), torch.float32),
        ("bias", (16,), torch.float64),
    ],
)
def test_parameters_put_in_later_are_taken_or_refused_as_ever(
    kernels: str, name: str, size: tuple[int, ...], dtype: torch.dtype
) -> None:
    plain = nn.Conv2d(16, 16, 3, padding=1)
    fast = faster(plain)
    setattr(plain, name, nn.Parameter(torch.randn(size, dtype=dtype)))
    x = torch.randn(2, 16, 5, 5)
    expected, computed = outcome(plain, x), outcome(fast, x)
    assert torch.equal(computed, expected) if isinstance(expected, torch.Tensor) else computed == expected


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(64, 64, 3),
        nn.Conv2d(48, 16, 3, padding=1, stride=2),
        nn.Conv2d(16, 16, 3, padding=1, dilation=2),
        nn.Conv2d(16, 16, 3, padding=1, groups=2),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(16, 16, 3, padding="same"),
        nn.Conv2d(32, 64, 9),
    ],
)
def test_other_convolutions_stay(convolution: nn.Conv2d) -> None:
    assert fast_convolution(convolution) is None
    assert faster(convolution) is convolution

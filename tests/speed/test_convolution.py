"""Compiled convolutions give PyTorch's numbers and gradients."""

import copy
import math

import pytest
import torch
from torch import nn

from runner.networks.standardized import StandardizedConv2d
from runner.speed.convolution import fast_convolution
from runner.speed.faster import faster

CONVOLVED = {
    "one pixel": (16, 16, 1, 1),
    "tiles cut off": (48, 112, 7, 10),
    "whole tiles": (32, 64, 8, 4),
    "a line": (16, 32, 33, 1),
    "surplus channels": (17, 35, 5, 3),
    "features": (243, 17, 2, 17),
    "standardised": (32, 48, 9, 6),
}


def difference(plain: nn.Conv2d, x: torch.Tensor, upstream: torch.Tensor) -> float:
    """Return by how much the compiled outputs and gradients differ from float64's, over the largest of each."""
    exact, results = copy.deepcopy(plain).double(), []
    for layer, images, g in ((faster(plain), x, upstream), (exact, x.double(), upstream.double())):
        images.requires_grad_()
        y = layer(images)
        results.append([y, *torch.autograd.grad(y, [images, *layer.parameters()], g)])
    pairs = zip(*results, strict=True)
    return max(float((fast.double() - right).abs().max() / right.abs().max()) for fast, right in pairs)


@pytest.mark.parametrize("case", CONVOLVED)
def test_convolution(kernels: str, case: str) -> None:
    """Outputs and all gradients, within 1e-5 of float64's largest. Every second shape has a bias and another layout."""
    torch.manual_seed(0)
    bias = case in ("tiles cut off", "a line")
    layout = torch.channels_last if case in ("tiles cut off", "whole tiles") else torch.contiguous_format
    channels_in, channels_out, height, width = CONVOLVED[case]
    if case == "standardised":
        plain = StandardizedConv2d(channels_in, channels_out, 3, padding=1)
    else:
        plain = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=bias)
    x = torch.randn(5, channels_in, height, width).to(memory_format=layout)
    upstream = torch.randn(5, channels_out, height, width)
    assert fast_convolution(plain)
    assert difference(plain, x, upstream) < 1e-5


SMALL = {  # channels, window, stride, padding, and the size of the images
    "MNIST, first": ((1, 16), (8, 8), (2, 2), (3, 3), (28, 28)),
    "MNIST, second": ((16, 32), (4, 4), (2, 2), (0, 0), (13, 13)),
    "strides beyond the window": ((3, 5), (2, 1), (3, 2), (0, 0), (9, 8)),
    "pixels that no window sees": ((2, 17), (3, 3), (2, 2), (0, 0), (8, 6)),
    "padded beyond the window": ((1, 8), (1, 2), (1, 1), (2, 3), (3, 1)),
    "one window": ((31, 9), (5, 3), (1, 1), (0, 0), (5, 3)),
    "few channels out": ((243, 10), (1, 1), (1, 1), (0, 0), (4, 5)),
}


@pytest.mark.parametrize("case", SMALL)
def test_a_small_convolution(kernels: str, case: str) -> None:
    """Outputs and all gradients, within 1e-6 of float64's largest, as PyTorch's."""
    torch.manual_seed(0)
    channels, window, stride, padding, size = SMALL[case]
    plain = nn.Conv2d(*channels, window, stride, padding, bias=case != "one window")  # type: ignore[arg-type]
    x = torch.randn(5, channels[0], *size)
    upstream = torch.randn(plain(x).shape)
    assert fast_convolution(plain)
    assert difference(plain, x, upstream) < 1e-6


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

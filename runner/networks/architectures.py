"""The convolutional networks of the papers.

Each function returns an `nn.Sequential` from images [batch, channels, height, width] to logits [batch, classes].
`activation` is called once per hidden layer, so that an activation may have parameters. The logits have none.
`input_shape` is [channels, height, width]. An input that is too small raises ValueError, here or in the first pass.
"""

import math
from collections.abc import Callable, Sequence

from torch import nn

from runner.config.fields import expect

Activation = Callable[[], nn.Module]


def flattened(channels: int, space: Sequence[int]) -> int:
    """Return how many numbers a feature map of this size has.

    Raises:
        ValueError: it has none.
    """
    if min(space) < 1:
        raise ValueError("its input is too small: the last feature map vanishes.")
    return channels * math.prod(space)


def linear(input_shape: Sequence[int], classes: int, activation: Activation) -> nn.Sequential:
    """Build one linear layer on all numbers of an input. It has no hidden layer, so `activation` is not used.

    Tramèr and Boneh (ICLR 2021) train it on ScatterNet features: 39,700 parameters on 81 x 7 x 7 of MNIST and
    FashionMNIST, 155,530 on 243 x 8 x 8 of CIFAR-10.

    >>> sum(p.numel() for p in linear([81, 7, 7], 10, nn.Tanh).parameters())
    39700
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes))


def small_cnn(
    input_shape: Sequence[int],
    classes: int,
    activation: Activation,
    filters: list[int],
    units: int,
    padding: int,
    bias: bool = True,
) -> nn.Sequential:
    """Build two strided convolutions, two overlapping max-poolings and two linear layers.

    Tempered Sigmoid, table 1, and the end-to-end MNIST network of Handcrafted-DP have 26,010 parameters on 1 x 28 x 28.
    They differ only in `padding`: 3 (SAME: 28 -> 14 -> 13 -> 5 -> 4) and 2 (28 -> 13 -> 12 -> 5 -> 4). The network of
    Backpropagation Clipping has neither padding (28 -> 11 -> 10 -> 4 -> 3) nor biases: 18,752 parameters.
    """
    expect(padding >= 0, "padding >= 0", padding)
    kernels = ((8, 2, padding), (4, 2, 0))
    return _two_convolutions(input_shape, classes, activation, filters, units, kernels, True, bias)


def _two_convolutions(
    input_shape: Sequence[int],
    classes: int,
    activation: Activation,
    filters: Sequence[int],
    units: int,
    kernels: Sequence[tuple[int, int, int]],
    pooled: bool,
    bias: bool = True,
) -> nn.Sequential:
    """Build activated convolutions with these kernels, strides and paddings, overlapping poolings, and two layers."""
    expect(len(filters) == len(kernels), f"{len(kernels)} filters", list(filters))
    channels, *space = input_shape
    layers: list[nn.Module] = []
    for width, (kernel, stride, padding) in zip(filters, kernels, strict=True):
        layers += [nn.Conv2d(channels, width, kernel, stride, padding, bias=bias), activation()]
        layers += [nn.MaxPool2d(2, stride=1)] if pooled else []
        channels, space = width, [(size + 2 * padding - kernel) // stride + 1 - pooled for size in space]
    return nn.Sequential(*layers, *_head(flattened(channels, space), units, classes, activation, bias))


def _blocks(
    channels: int,
    blocks: Sequence[Sequence[int]],
    activation: Activation,
    pool: Callable[[], nn.Module],
    kernel: int = 3,
    bias: bool = True,
) -> list[nn.Module]:
    """Build, for each block, an activated convolution for each width, then `pool`. Kernels of 3 keep the size."""
    layers: list[nn.Module] = []
    for block in blocks:
        for width in block:
            layers += [nn.Conv2d(channels, width, kernel, padding=(kernel - 1) // 2, bias=bias), activation()]
            channels = width
        layers.append(pool())
    return layers


def _head(inputs: int, units: int, classes: int, activation: Activation, bias: bool = True) -> list[nn.Module]:
    """Build two linear layers on the numbers of a feature map."""
    return [nn.Flatten(), nn.Linear(inputs, units, bias), activation(), nn.Linear(units, classes, bias)]


def all_convolutional(
    input_shape: Sequence[int], classes: int, activation: Activation, filters: list[int]
) -> nn.Sequential:
    """Build eight 3x3 convolutions, average pooling, mean over space: 605,226 parameters on 3 x 32 x 32.

    Tempered Sigmoid, table 2. The last of `filters` is a single convolution, followed by one with a filter per class.
    """
    channels = input_shape[0]
    *pairs, last = filters
    return nn.Sequential(
        *_blocks(channels, [[width, width] for width in pairs], activation, lambda: nn.AvgPool2d(2)),
        nn.Conv2d(pairs[-1], last, 3, padding=1),
        activation(),
        nn.Conv2d(last, classes, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def vgg_cnn(
    input_shape: Sequence[int], classes: int, activation: Activation, filters: list[int], units: int
) -> nn.Sequential:
    """Build six 3x3 convolutions, max-pooling, two linear layers: 550,570 parameters on 3 x 32 x 32.

    The end-to-end CIFAR-10 network of Handcrafted-DP.
    """
    channels, *space = input_shape
    after = [s >> len(filters) for s in space]
    return nn.Sequential(
        *_blocks(channels, [[width, width] for width in filters], activation, lambda: nn.MaxPool2d(2)),
        *_head(flattened(filters[-1], after), units, classes, activation),
    )


def scatternet_small_cnn(
    input_shape: Sequence[int], classes: int, activation: Activation, filters: list[int], units: int, pooled: bool
) -> nn.Sequential:
    """Build two 3x3 convolutions, the first strided, and two linear layers, on ScatterNet features.

    By default the MNIST and FashionMNIST network of Handcrafted-DP's code (33,066 parameters on 81 x 7 x 7:
    7 -> 4 -> 4). With `pooled`, the network of Losing Less, table 3, with an overlapping max-pooling after each
    convolution (20,778 parameters: 7 -> 4 -> 3 -> 3 -> 2).
    """
    return _two_convolutions(input_shape, classes, activation, filters, units, ((3, 2, 1), (3, 1, 1)), pooled)


def scatternet_cnn(
    input_shape: Sequence[int], classes: int, activation: Activation, blocks: list[list[int]], pooled_last: bool
) -> nn.Sequential:
    """Build blocks of 3x3 convolutions with SAME padding, 2x2 max-poolings between them, one linear layer.

    `blocks` has the filters of each convolution of each block. `pooled_last` adds a pooling after the last block. On
    ScatterNet features of CIFAR-10, Handcrafted-DP's code has [[64], [64]] (187,210 parameters on 243 x 8 x 8). Losing
    Less, table 4, has [[64, 64], [64, 64]] with `pooled_last` (253,386 parameters).
    """
    channels, *space = input_shape
    after = [s >> len(blocks) - (not pooled_last) for s in space]
    layers = _blocks(channels, blocks, activation, lambda: nn.MaxPool2d(2))[: None if pooled_last else -1]
    last = next((block[-1] for block in reversed(blocks) if block), channels)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(flattened(last, after), classes))


def unpadded_cnn(
    input_shape: Sequence[int], classes: int, activation: Activation, filters: list[int], units: int
) -> nn.Sequential:
    """Build eight 2x2 convolutions and two linear layers without padding or biases, for 3 x 32 x 32.

    Backpropagation Clipping, figure 4: two convolutions per width, and between the widths an average-pooling of stride
    1 (32 -> 30 -> 29 -> 27 -> 26 -> 24 -> 23 -> 21). It has 29,424,512 parameters, 28.9 million of them in the first
    linear layer.
    """
    channels, *space = input_shape
    after = [s - 3 * len(filters) + 1 for s in space]
    pairs = [[width, width] for width in filters]
    layers = _blocks(channels, pairs, activation, lambda: nn.AvgPool2d(2, stride=1), kernel=2, bias=False)[:-1]
    return nn.Sequential(*layers, *_head(flattened(filters[-1], after), units, classes, activation, bias=False))

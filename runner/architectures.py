"""The convolutional networks of the papers.

Each function returns an `nn.Sequential` from images [batch, channels, height, width] to logits [batch, classes].
`activation` is called once per hidden layer, so that an activation may have parameters of its own; the logits have
none. `input_shape` is [channels, height, width]. An input that a network cannot take raises ValueError.
"""

from collections.abc import Callable, Sequence

from torch import nn

Activation = Callable[[], nn.Module]


def _pooled(size: int, kernel: int, stride: int, padding: int) -> int:
    """Output size of a convolution or pooling along one dimension."""
    return (size + 2 * padding - kernel) // stride + 1


def small_cnn(
    input_shape: Sequence[int],
    classes: int,
    activation: Activation,
    filters: list[int],
    units: int,
    padding: int,
) -> nn.Sequential:
    """Two strided convolutions, two overlapping max-poolings, two linear layers: 26,010 parameters on 1 x 28 x 28.

    Tempered Sigmoid, table 1, and the end-to-end MNIST network of Handcrafted-DP, which differ in `padding` only:
    3 (SAME: 28 -> 14 -> 13 -> 5 -> 4) and 2 (28 -> 13 -> 12 -> 5 -> 4).
    """
    channels, *space = input_shape
    after = [_pooled(_pooled(_pooled(_pooled(s, 8, 2, padding), 2, 1, 0), 4, 2, 0), 2, 1, 0) for s in space]
    if min(after) < 1:
        raise ValueError(f"small_cnn cannot take an image of {space[0]} x {space[1]} pixels: its feature map vanishes.")
    return nn.Sequential(
        nn.Conv2d(channels, filters[0], 8, stride=2, padding=padding),
        activation(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(filters[0], filters[1], 4, stride=2),
        activation(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(filters[1] * after[0] * after[1], units),
        activation(),
        nn.Linear(units, classes),
    )


def _conv_pairs(
    channels: int, filters: list[int], activation: Activation, pool: Callable[[], nn.Module]
) -> list[nn.Module]:
    """For each width in `filters`: two 3x3 convolutions with SAME padding, each activated, then `pool`."""
    layers: list[nn.Module] = []
    for width in filters:
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), activation()]
            channels = width
        layers.append(pool())
    return layers


def all_convolutional(
    input_shape: Sequence[int], classes: int, activation: Activation, filters: list[int]
) -> nn.Sequential:
    """Eight 3x3 convolutions, average pooling, mean over space: 605,226 parameters on 3 x 32 x 32.

    Tempered Sigmoid, table 2. The last of `filters` is a single convolution, followed by one with a filter per class.
    """
    channels, *space = input_shape
    *pairs, last = filters
    if min(space) >> len(pairs) < 1:
        raise ValueError(
            f"all_convolutional cannot take an image of {space[0]} x {space[1]} pixels: its feature map vanishes."
        )
    return nn.Sequential(
        *_conv_pairs(channels, pairs, activation, lambda: nn.AvgPool2d(2)),
        nn.Conv2d(pairs[-1], last, 3, padding=1),
        activation(),
        nn.Conv2d(last, classes, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def vgg_cnn(
    input_shape: Sequence[int], classes: int, activation: Activation, filters: list[int], units: int
) -> nn.Sequential:
    """Six 3x3 convolutions, max-pooling, two linear layers: 550,570 parameters on 3 x 32 x 32.

    The end-to-end CIFAR-10 network of Handcrafted-DP.
    """
    channels, *space = input_shape
    after = [s >> len(filters) for s in space]
    if min(after) < 1:
        raise ValueError(f"vgg_cnn cannot take an image of {space[0]} x {space[1]} pixels: its feature map vanishes.")
    return nn.Sequential(
        *_conv_pairs(channels, filters, activation, lambda: nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(filters[-1] * after[0] * after[1], units),
        activation(),
        nn.Linear(units, classes),
    )

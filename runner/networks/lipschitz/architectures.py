"""The networks of the Lipschitz paper: chains of layers whose gradients have a bound (see `bounds`).

Each function returns an `nn.Sequential` from images [batch, channels, height, width] to logits [batch, classes]. Its
weights begin orthogonal. `activation` is called once per hidden layer. Sizes that do not fit raise ValueError. A factor
makes each convolution 1-Lipschitz: `Scale(1 / sqrt(m))`, m as in `bounds`.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from torch import nn

from runner.networks.architectures import Activation, flattened
from runner.networks.lipschitz.bounds import reads_of
from runner.networks.lipschitz.layers import Center, GlobalL2Pool, L2Pool2d, Patches, Residual, Scale, Transpose

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def lipschitz_mlp(
    input_shape: Sequence[int], classes: int, activation: Activation, units: list[int], bias: bool = False
) -> nn.Sequential:
    """Build linear layers with these `units`, each activated, and one for the logits."""
    sizes = [math.prod(input_shape), *units]
    hidden = [part for before, after in pairwise(sizes) for part in (_linear(before, after, bias), activation())]
    return nn.Sequential(nn.Flatten(), *hidden, _linear(sizes[-1], classes, bias))


def lipschitz_cnn(
    input_shape: Sequence[int],
    classes: int,
    activation: Activation,
    filters: list[int],
    units: int,
    padding: int,
    bias: bool,
    centered: bool,
    activated: bool,
    over_channels: bool = False,
) -> nn.Sequential:
    """Build 3x3 convolutions, each activated, pooled by 2 and optionally centred, then two linear layers.

    The MNIST network of the paper's experiments has filters [16, 32], 1,024 units, padding 1, biases and `centered`. It
    has no activation between its linear layers (`activated` is false), and its means are taken `over_channels`. The
    network of the paper's notebook has [32, 64], 512 units, no padding, no biases, no centring, and is `activated`.
    """
    channels, *space = input_shape
    layers: list[nn.Module] = []
    for width in filters:
        layers += [*convolution(channels, width, 3, padding=padding, bias=bias), activation(), L2Pool2d(2)]
        layers += [Center(over_channels)] if centered else []
        channels, space = width, [(size + 2 * padding - 2) // 2 for size in space]
    last = [activation()] if activated else []
    return nn.Sequential(
        *layers, nn.Flatten(), _linear(flattened(channels, space), units, bias), *last, _linear(units, classes, bias)
    )


def lipschitz_vgg(
    input_shape: Sequence[int], classes: int, activation: Activation, width: int, convolutions: int, bias: bool
) -> nn.Sequential:
    """Build three blocks of one or two convolutions, 5x5 in the first and then 3x3, and two linear layers.

    The blocks have width, 2 width and 4 width filters. The paper's VGG5 has one convolution per block and its VGG8 two,
    small (width 32) and large (64). Each block ends in a pooling by 2, the last one in a pooling over all positions.
    Every layer but the last is activated and centred.
    """
    channels = input_shape[0]
    layers: list[nn.Module] = []
    for block, filters in enumerate((width, 2 * width, 4 * width)):
        for _ in range(convolutions):
            kernel = 5 if block == 0 else 3
            layers += [*convolution(channels, filters, kernel, padding=kernel // 2, bias=bias), activation(), Center()]
            channels = filters
        layers.append(L2Pool2d(2) if block < 2 else GlobalL2Pool())
    layers += [_linear(channels, 8 * width, bias), activation(), Center(), _linear(8 * width, classes, bias)]
    return nn.Sequential(*layers)


def lipschitz_resnet(
    input_shape: Sequence[int], classes: int, activation: Activation, width: int, stages: list[int], bias: bool
) -> nn.Sequential:
    """Build a 3x3 convolution, then `stages` of residual blocks with two 3x3 convolutions each, and a linear layer.

    Each stage but the first begins with a 1x1 convolution to twice the filters and a pooling by 2. The skip adds with a
    weight of 1/2. The paper's ResNets have 6 to 10 layers with weights: stages [1, 1] give 7, [1, 1, 1] 10. The
    authors' code has another order of layers, a 1x1 convolution in every stage, and no biases.
    """
    channels = input_shape[0]
    layers = [*convolution(channels, width, 3, padding=1, bias=bias), L2Pool2d(2), Center(), activation()]
    for stage, blocks in enumerate(stages):
        if stage:
            layers += [*convolution(width, 2 * width, 1, padding=0, bias=bias), L2Pool2d(2)]
            width *= 2
        for _ in range(blocks):
            inner: list[nn.Module] = []
            for _ in range(2):
                inner += [*convolution(width, width, 3, padding=1, bias=bias), Center(), activation()]
            layers.append(Residual(nn.Sequential(*inner)))
    return nn.Sequential(*layers, GlobalL2Pool(), _linear(width, classes, bias))


def lipschitz_mixer(
    input_shape: Sequence[int],
    classes: int,
    activation: Activation,
    patch: int,
    hidden: int,
    tokens: int,
    channels: int,
    blocks: int,
    skip: bool,
    centered: bool = True,
) -> nn.Sequential:
    """Build an MLP-mixer (Tolstikhin et al., 2021) of linear layers without biases.

    Patches become tokens of `hidden` numbers. Each block mixes the tokens (to `tokens` and back), then the numbers of
    each token (to `channels` and back). In between it activates and, if `centered`, centres. With `skip`, each half is
    added to its input with a weight of 1/2. The paper's notebook has patch 4, hidden 64, tokens 64, channels 128, 2
    blocks, no skip, and is not centred. The paper's experiments have one block, centred, with sizes of 64 times a width
    of 1 or 2.
    """
    depth, height, width = input_shape
    count = flattened(1, (height // patch, width // patch))
    layers: list[nn.Module] = [Patches(patch), _linear(depth * patch**2, hidden, False)]

    def mix(inputs: int, inner: int) -> list[nn.Module]:
        center = [Center()] if centered else []
        return [_linear(inputs, inner, False), activation(), *center, _linear(inner, inputs, False)]

    for _ in range(blocks):
        token_mixing = nn.Sequential(Transpose(), *mix(count, tokens), Transpose())
        channel_mixing = nn.Sequential(*mix(hidden, channels))
        for mixing in (token_mixing, channel_mixing):
            layers.append(Residual(mixing) if skip else mixing)
    return nn.Sequential(*layers, nn.Flatten(), _linear(count * hidden, classes, False))


def _linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    """Return a linear layer with orthogonal rows or columns and no offset."""
    return _orthogonal(nn.Linear(inputs, outputs, bias))


def convolution(inputs: int, outputs: int, kernel: int, padding: int, bias: bool) -> list[nn.Module]:
    """Return a convolution, orthogonal as a matrix [out, in k k], and the factor that makes it 1-Lipschitz."""
    layer = _orthogonal(nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=bias))
    return [layer, Scale(1 / math.sqrt(reads_of(layer.kernel_size, layer.stride)))]


def _orthogonal(layer: Layer) -> Layer:
    nn.init.orthogonal_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer

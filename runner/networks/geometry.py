"""Geometry of a layer: the shapes that decide the cheapest way to find its per-example gradient norms.

A linear layer is a 1x1 convolution over its positions (one position, unless its input is a sequence), so one set of
formulas covers both. The gains of a group normalisation are one with a group for each channel. T is the number of
output positions and K the number of kernel positions (taps). C and O are the channels in and out.
"""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from runner.networks.standardized import StandardizedConv2d

Pair = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """One layer at one input size. Sizes are (height, width).

    views: the images of each example, which a convolution gets one after another. A linear layer has their positions in
        a row.
    """

    channels_in: int
    channels_out: int
    input: Pair
    output: Pair
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    views: int = 1

    @property
    def positions(self) -> int:
        """Return T, the number of terms in the sum that gives a weight's gradient."""
        return self.views * math.prod(self.output)

    @property
    def padded(self) -> Pair:
        return self.input[0] + 2 * self.padding[0], self.input[1] + 2 * self.padding[1]

    @property
    def weights(self) -> int:
        return math.prod(self.kernel) * self.channels_in * self.channels_out


def unsupported(module: nn.Module) -> str | None:
    """Return the reason why a module with parameters is not supported, or None if it is."""
    if type(module) in (nn.Linear, nn.GroupNorm):
        return None
    if type(module) not in (nn.Conv2d, StandardizedConv2d):
        return f"{type(module).__name__} is not a supported layer"
    assert isinstance(module, nn.Conv2d)
    if module.groups != 1:
        return "it is a convolution in groups"
    if module.padding_mode != "zeros":
        return f"its padding mode is {module.padding_mode}"
    if isinstance(module.padding, str) and module.padding != "valid" and any(_same(module, d)[1] for d in (0, 1)):
        return "its padding differs from side to side"
    return None


def _same(module: nn.Conv2d, dimension: int) -> Pair:
    """Return padding="same" along one dimension: on each side, and the remainder for one of them."""
    return divmod(module.dilation[dimension] * (module.kernel_size[dimension] - 1), 2)


def geometry(module: nn.Module, inputs: Tensor, outputs: Tensor, views: int = 1) -> Geometry:
    """Return the geometry of a supported layer from one call: inputs and outputs [batch * views, ...].

    The views of an example are one after another.
    """
    if isinstance(module, nn.Linear):
        positions = (1, views * math.prod(inputs.shape[1:-1]))
        return Geometry(module.in_features, module.out_features, positions, positions)
    if isinstance(module, nn.GroupNorm):
        size, channels = (1, math.prod(inputs.shape[2:])), module.num_channels
        return Geometry(1, channels, size, size, views=views)
    assert isinstance(module, nn.Conv2d)
    if module.padding == "same":
        padding = (_same(module, 0)[0], _same(module, 1)[0])
    else:
        padding = (0, 0) if isinstance(module.padding, str) else pair(module.padding)
    return Geometry(
        module.in_channels,
        module.out_channels,
        pair(inputs.shape[2:]),
        pair(outputs.shape[2:]),
        pair(module.kernel_size),
        pair(module.stride),
        padding,
        pair(module.dilation),
        views,
    )


def pair(size: int | tuple[int, ...]) -> Pair:
    """Return a size as (height, width), given as one number for both or as one for each."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])

"""The wide residual network of De et al. (2022), "Unlocking high-accuracy differentially private image classification".

Batch normalisation is replaced by group normalisation, and all convolutions have standardised weights. Choices that the
paper leaves open follow the authors' published code (jax_privacy 1.0, `experiments/image_classification/models`): a
block's layers are an activation, then group normalisation, then a convolution. The first skip of each of the three
stages has such layers, too, with a 1 x 1 convolution.

Two details differ from that code. Strided convolutions are padded by one pixel on each side, not on the right and below
only. In the standardisation, eps is added to the squared norm, while that code takes the larger of the two.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from runner.config.fields import expect
from runner.networks.architectures import Activation
from runner.networks.standardized import StandardizedConv2d


class Branches(nn.Module):
    """The sum of two modules of the same input.

    Raises:
        ValueError: their outputs have different shapes, so the sum would mix the examples.
    """

    def __init__(self, residual: nn.Module, skip: nn.Module) -> None:
        super().__init__()
        self.residual, self.skip = residual, skip

    def forward(self, x: Tensor) -> Tensor:
        residual, skip = self.residual(x), self.skip(x)
        if residual.shape != skip.shape:
            raise ValueError(f"Branches adds {tuple(residual.shape)} to {tuple(skip.shape)}: the shapes have to agree.")
        y: Tensor = residual + skip
        return y


def wide_resnet(
    input_shape: Sequence[int], classes: int, activation: Activation, depth: int, width: int, groups: int
) -> nn.Sequential:
    """Build WRN-`depth`-`width`: WRN-16-4 with 16 groups has 2,753,818 parameters on 3 x 32 x 32.

    A 3 x 3 convolution with 16 filters precedes three stages of (depth - 4) / 6 blocks. A block has two 3 x 3
    convolutions and a skip. The stages have 16, 32 and 64 times `width` filters, and the last two halve the image.

    Raises:
        ValueError: `depth` is not 10, 16, ..., 1000, `width` is below 1, or `groups` does not divide 16.
    """
    expect(depth in range(10, 1001, 6), "architecture.depth 10, 16, 22, ..., 1000", depth)
    expect(width >= 1, "architecture.width >= 1", width)
    expect(groups in (1, 2, 4, 8, 16), "architecture.groups 1, 2, 4, 8 or 16", groups)

    def convolution(channels: int, filters: int, kernel: int, stride: int) -> list[nn.Module]:
        layer = StandardizedConv2d(channels, filters, kernel, stride, padding=kernel // 2)
        return [activation(), nn.GroupNorm(groups, channels), layer]

    channels = 16
    layers: list[nn.Module] = [StandardizedConv2d(input_shape[0], channels, 3, padding=1)]
    for filters, first_stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
        for block in range((depth - 4) // 6):
            stride = 1 if block else first_stride
            residual = convolution(channels, filters, 3, stride) + convolution(filters, filters, 3, 1)
            skip = [] if block else convolution(channels, filters, 1, stride)
            layers.append(Branches(nn.Sequential(*residual), nn.Sequential(*skip)))
            channels = filters
    last = nn.Linear(channels, classes)
    nn.init.kaiming_normal_(last.weight, nonlinearity="linear")
    nn.init.zeros_(last.bias)
    return nn.Sequential(
        *layers, activation(), nn.GroupNorm(groups, channels), nn.AdaptiveAvgPool2d(1), nn.Flatten(), last
    )

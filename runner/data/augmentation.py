"""Views of an example: randomly changed copies. A step uses several (augmentation multiplicity).

De et al. (2022): in each step, an example's gradient is the mean over K views of it, and this mean is clipped. With
views v_1..v_K of example i and the loss l, example i contributes

    c_i = clip(1/K sum_k grad l(v_k(x_i), y_i)),    ||c_i||_2 <= C.

Sensitivity. Fix the random numbers of all views. Then c_i is a function of example i, and of no other. So adding or
removing it moves the sum by at most C, as without views, for any K. The numbers do not depend on the data. Each example
of a batch has numbers of its own, independent and of one distribution. So the release is a mixture over the numbers, of
the same weights for neighbouring data sets. By joint convexity, the guarantee for fixed numbers holds for the mixture.
The noise, the sampling rate and the charges therefore stay as they are. (Clipping each view and adding up would cost K
times the sensitivity. K views in the place of K examples would sample an example K times.)

An engine computes the mean's gradient exactly: `Objective.views` makes the mean loss of K views one loss of an example.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from runner.config.fields import expect, expect_option

_FILLS = {"reflect": "reflect", "zeros": "constant"}


class Augmentation(Protocol):
    """Random views of one example, chosen without private data."""

    views: int

    def draw(self, examples: int, generator: Generator) -> Tensor:
        """Return random numbers [examples, views, numbers] on the CPU, drawn alike for every view."""
        ...

    def __call__(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Return views [examples, views, *shape] of images [examples, *shape], each by its numbers.

        The views of an example depend on this example and its numbers only.
        """
        ...


@dataclass(frozen=True)
class Views:
    """Random crops of the padded image, in its size, and random reflections left to right.

    Args:
        views: K, their number.
        padding: pixels on each side before the crop; 0: no crop.
        fill: "reflect" the image at its border, or "zeros" in the features' units.
        flip: True if every second view, at random, is reflected. Digits are not the same afterwards.

    Raises:
        ValueError: an argument is out of its range.
    """

    views: int
    padding: int = 4
    fill: str = "reflect"
    flip: bool = True

    def __post_init__(self) -> None:
        expect(self.views > 0, "augmentation.views > 0", self.views)
        expect(self.padding >= 0, "augmentation.padding >= 0", self.padding)
        expect_option("augmentation.fill", self.fill, _FILLS)

    def draw(self, examples: int, generator: Generator) -> Tensor:
        """Return each view's first row and column in the padded image, and 1 for a reflection, else 0."""
        size = examples, self.views
        corners = torch.randint(2 * self.padding + 1, (*size, 2), generator=generator)
        return torch.cat([corners, torch.randint(1 + self.flip, (*size, 1), generator=generator)], dim=2)

    def __call__(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Return views [examples, K, channels, height, width], the channels innermost in memory."""
        height, width = images.shape[2:]
        padded = F.pad(images, [self.padding] * 4, mode=_FILLS[self.fill]).permute(0, 2, 3, 1)
        row, column, flipped = drawn.unbind(2)
        rows = row[..., None] + torch.arange(height, device=images.device)
        columns = torch.arange(width, device=images.device).expand(*flipped.shape, width)
        columns = column[..., None] + torch.where(flipped[..., None] > 0, width - 1 - columns, columns)
        example = torch.arange(len(images), device=images.device)[:, None, None, None]
        return padded[example, rows[..., None], columns[:, :, None]].permute(0, 1, 4, 2, 3)


def viewed(augmentation: Augmentation, images: Tensor, drawn: Tensor) -> Tensor:
    """Return inputs of an `Objective` with these `views`: [examples, views, *shape], or [examples, *shape] for one."""
    views = augmentation(images, drawn)
    return views if augmentation.views > 1 else views.flatten(0, 1)

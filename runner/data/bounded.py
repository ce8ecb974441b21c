"""Images of bounded L2 norm, from which bounds on gradients follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.data.colour import SPACES
from runner.data.features import Pixels

MAKES = ("clip", "normalize")
_AT_ONCE = 4096  # images, so that few copies of a data set are in memory
_SMALLEST, _LARGEST = 1e-6, 1e6  # squares of much smaller or larger norms leave the range of float32
_LEFT = 1 - 1e-6  # of the norm; the rest is for rounding


@dataclass(frozen=True)
class BoundedPixels:
    """Pixels in a colour space, standardised, centred, and then of L2 norm at most `largest_norm`.

    Each image is transformed separately, in four steps: the colour `space` (for images with three channels),
    (x - mean) / std by public constants, minus the image's mean if `centered`, and last

        clip:       x * min(1, largest_norm / ||x||)        normalize:  x * largest_norm / ||x||, or 0 for x = 0.

    An image that is not finite, or becomes too large for float32, is zero before the last step. So every sum over
    examples is finite.

    Raises:
        ValueError: the norm is not in [1e-6, 1e6], a name is unknown, or an argument that `Pixels` refuses.
    """

    largest_norm: float
    make: str = "clip"
    space: str = "rgb"
    mean: list[float] | None = None
    std: list[float] | None = None
    centered: bool = False

    def __post_init__(self) -> None:
        if not _SMALLEST <= self.largest_norm <= _LARGEST:
            raise ValueError(
                f"Expected features.largest_norm from {_SMALLEST:g} to {_LARGEST:g}, got {self.largest_norm}."
            )
        if self.make not in MAKES:
            raise ValueError(f"Expected features.make {' or '.join(MAKES)}, got {self.make}.")
        if self.space not in SPACES:
            raise ValueError(f"features.space has no {self.space}: choose from {', '.join(SPACES)}.")
        Pixels(self.mean, self.std)

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        channels, *space = image_shape
        if channels == 3:
            channels = SPACES[self.space][0]
        elif self.space != "rgb":
            raise ValueError(f"features.space={self.space} needs images with 3 channels, these have {channels}.")
        return Pixels(self.mean, self.std).shape([channels, *space])

    def __call__(self, images: Tensor) -> Tensor:
        return torch.cat([self._bounded(some) for some in images.split(_AT_ONCE)])

    def _bounded(self, images: Tensor) -> Tensor:
        coloured = SPACES[self.space][1](images) if images.shape[1] == 3 else images
        found = Pixels(self.mean, self.std)(coloured)
        if self.centered:
            found = found - found.mean((1, 2, 3), keepdim=True)
        finite = torch.isfinite(images).flatten(1).all(1) & torch.isfinite(found).flatten(1).all(1)
        found = torch.where(finite[:, None, None, None], found, 0.0)
        norms = torch.linalg.vector_norm(found, dim=(1, 2, 3), keepdim=True, dtype=torch.float64)
        factors = _LEFT * self.largest_norm / norms
        factors = factors.clamp(max=1.0) if self.make == "clip" else factors.nan_to_num(0.0, posinf=0.0)
        bounded: Tensor = found * factors
        return bounded.to(images.dtype)

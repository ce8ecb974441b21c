"""What the network sees of an image."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pixels:
    """Pixels in [0, 1], or standardised per channel by public constants: (x - mean) / std.

    Statistics of the private training set are no public constants: computing them would be a release of its own.

    Raises:
        ValueError: if only one of `mean` and `std` is given, their lengths differ, or a std is not positive.
    """

    mean: list[float] | None = None
    std: list[float] | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise ValueError("Expected features.mean and features.std both or neither.")
        if self.mean is not None and self.std is not None:
            if len(self.mean) != len(self.std):
                raise ValueError(
                    f"Expected features.mean and features.std of one length, got {self.mean} and {self.std}."
                )
            if min(self.std) <= 0:
                raise ValueError(f"Expected every features.std > 0, got {self.std}.")

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        """Shape of one example's features, [channels, height, width]; ValueError where the channels do not fit."""
        if self.mean is not None and len(self.mean) != image_shape[0]:
            raise ValueError(f"features.mean has {len(self.mean)} channels, the images have {image_shape[0]}.")
        return list(image_shape)

    def __call__(self, images: Tensor) -> Tensor:
        """Images [examples, channels, height, width] in [0, 1] to features of the same shape, float32."""
        if self.mean is None or self.std is None:
            return images
        mean = torch.tensor(self.mean, device=images.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(1, -1, 1, 1)
        return (images - mean) / std

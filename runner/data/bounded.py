"""Images of bounded L2 norm, from which bounds on gradients follow, and their colour spaces.

A colour is that of images [examples, 3, height, width] in [0, 1], by fixed constants for each pixel separately.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from runner.config.fields import expect, expect_option
from runner.data.features import Pixels

# Each row gives one channel of the result from red, green and blue (ITU-R BT.601; NTSC's and PAL's differences).
_GREY = [[0.299, 0.587, 0.114]]
_YIQ = [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]]
_YUV = [[0.299, 0.587, 0.114], [-0.14714119, -0.28886916, 0.43601035], [0.61497538, -0.51496512, -0.10001026]]


def hsv(images: Tensor) -> Tensor:
    """Return hue, saturation and value, each in [0, 1], by matplotlib; pixels are clamped to [0, 1] first."""
    from matplotlib.colors import rgb_to_hsv

    pixels = images.clamp(0, 1).movedim(1, -1).cpu().numpy()
    return torch.from_numpy(rgb_to_hsv(pixels)).movedim(-1, 1).contiguous().to(images)


def _linear(matrix: list[list[float]], images: Tensor) -> Tensor:
    return torch.einsum("or,nrhw->nohw", torch.tensor(matrix, dtype=images.dtype, device=images.device), images)


SPACES: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {  # name: number of channels, and conversion from RGB
    "rgb": (3, lambda images: images),
    "hsv": (3, hsv),
    "yiq": (3, partial(_linear, _YIQ)),
    "yuv": (3, partial(_linear, _YUV)),
    "grey": (1, partial(_linear, _GREY)),
}

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
        wanted = f"features.largest_norm from {_SMALLEST:g} to {_LARGEST:g}"
        expect(_SMALLEST <= self.largest_norm <= _LARGEST, wanted, self.largest_norm)
        expect(self.make in ("clip", "normalize"), "features.make clip or normalize", self.make)
        expect_option("features.space", self.space, SPACES)
        Pixels(self.mean, self.std)

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        channels, *space = image_shape
        if channels == 3:
            channels = SPACES[self.space][0]
        elif self.space != "rgb":
            raise ValueError(f"features.space={self.space} needs images with 3 channels, these have {channels}.")
        return Pixels(self.mean, self.std).shape([channels, *space])

    def __call__(self, images: Tensor) -> Tensor:
        bounded = []
        for batch in images.split(_AT_ONCE):
            coloured = SPACES[self.space][1](batch) if batch.shape[1] == 3 else batch
            pixels = Pixels(self.mean, self.std)(coloured)
            if self.centered:
                pixels = pixels - pixels.mean((1, 2, 3), keepdim=True)
            finite = torch.isfinite(batch).flatten(1).all(1) & torch.isfinite(pixels).flatten(1).all(1)
            pixels = torch.where(finite[:, None, None, None], pixels, 0.0)
            norms = torch.linalg.vector_norm(pixels, dim=(1, 2, 3), keepdim=True, dtype=torch.float64)
            factors = _LEFT * self.largest_norm / norms
            factors = factors.clamp(max=1.0) if self.make == "clip" else factors.nan_to_num(0.0, posinf=0.0)
            bounded.append((pixels * factors).to(batch.dtype))
        return torch.cat(bounded)

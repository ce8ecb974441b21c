"""Colour spaces of images [examples, 3, height, width] in [0, 1], by fixed constants for each pixel separately."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Each row gives one channel of the result from red, green and blue (ITU-R BT.601; NTSC's and PAL's differences).
_GREY = [[0.299, 0.587, 0.114]]
_YIQ = [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]]
_YUV = [[0.299, 0.587, 0.114], [-0.14714119, -0.28886916, 0.43601035], [0.61497538, -0.51496512, -0.10001026]]


def hsv(images: Tensor) -> Tensor:
    """Return hue, saturation and value, each in [0, 1], by matplotlib; pixels are clamped to [0, 1] first."""
    from matplotlib.colors import rgb_to_hsv

    pixels = images.clamp(0, 1).movedim(1, -1).cpu().numpy()
    return torch.from_numpy(rgb_to_hsv(pixels)).movedim(-1, 1).contiguous().to(images)


def _linear(matrix: list[list[float]]) -> Callable[[Tensor], Tensor]:
    def transform(images: Tensor) -> Tensor:
        return torch.einsum("or,nrhw->nohw", torch.tensor(matrix, dtype=images.dtype, device=images.device), images)

    return transform


SPACES: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {  # name: number of channels, and conversion from RGB
    "rgb": (3, lambda images: images),
    "hsv": (3, hsv),
    "yiq": (3, _linear(_YIQ)),
    "yuv": (3, _linear(_YUV)),
    "grey": (1, _linear(_GREY)),
}

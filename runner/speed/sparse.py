"""The first layer of a network on images that are mostly zero, such as MNIST, in a part of the time.

It is for evaluating the same images at many weights, as the nonzero pixels are found once. It sums the products of the
convolution without those with zero, in another order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from runner.speed.kernels import fits, integers, library, pointers, threads_for, waves
from runner.speed.max_pool import FastMaxPool, pair

MOST_PIXELS = 0.6  # of an image that are not zero: with more, an ordinary convolution is as fast


@dataclass(frozen=True)
class Pixels:
    """The pixels of images that are not zero (see sparse_convolution.cpp).

    Attributes:
        values: the values, [pixels].
        corners: the first output cell that each pixel adds to, [pixels].
        kinds: the kind of each pixel, [pixels].
        starts: the index of each image's first pixel, and the number of pixels, [images + 1].
    """

    values: Tensor
    corners: Tensor
    kinds: Tensor
    starts: Tensor

    def __len__(self) -> int:
        return len(self.starts) - 1


def agrees(compiled: ctypes.CDLL) -> bool:
    """Return True if a library convolves and pools as PyTorch does, at two geometries, one from a paper's network."""
    for channels, kernel, stride, padding, pool in ((16, 8, 2, 3, 2), (3, 3, 2, 0, 1)):
        images = waves(3, 1, 13, 12).relu()
        convolution = nn.utils.skip_init(nn.Conv2d, 1, channels, kernel, stride, padding)
        convolution.weight.copy_(waves(*convolution.weight.shape))
        convolution.bias.copy_(waves(channels))
        layer = SparseFirstLayer(convolution, [FastMaxPool(nn.MaxPool2d(pool, 1))], images.shape[2:])
        layer.load()
        expected = nn.functional.max_pool2d(convolution(images), pool, 1)
        if not torch.allclose(layer.by(compiled, layer.pixels(images), 2), expected, rtol=1e-4, atol=1e-4):
            return False
    return True


class SparseFirstLayer:
    """A convolution of images of one channel, and the max-pooling with stride 1 after it, if any.

    Args:
        convolution: without dilation, padded with zeros.
        behind: the layers after it.
        size: height and width of the images.

    `rest` is the network behind the pooling.
    """

    def __init__(self, convolution: nn.Conv2d, behind: Sequence[nn.Module], size: Sequence[int]) -> None:
        assert not isinstance(convolution.padding, str)
        kernel, self._stride = pair(convolution.kernel_size), pair(convolution.stride)
        self._padding = pair(convolution.padding)
        pool = (1, 1)
        if behind and isinstance(behind[0], FastMaxPool) and pair(behind[0].stride) == (1, 1):
            pool = pair(behind[0].kernel_size)
            behind = behind[1:]
        self._convolution, self.rest = convolution, nn.Sequential(*behind)
        self._pool = pool
        sides = list(zip(size, kernel, self._stride, self._padding, strict=True))
        self._taps = [-(-k // s) for _, k, s, _ in sides]
        outputs = [(n + 2 * p - k) // s + 1 for n, k, s, p in sides]
        reached = [(n - 1 + p) // s + 1 for n, _, s, p in sides]
        margins = [taps - 1 for taps in self._taps]
        self._cells = [max(o, r) + m for o, r, m in zip(outputs, reached, margins, strict=True)]
        self._output = [o - k + 1 for o, k in zip(outputs, pool, strict=True)]
        layout = (*self._cells, convolution.out_channels, *self._taps, *margins, *self._output, *pool)
        self._layout = (ctypes.c_int64 * len(layout))(*layout)
        self._weights = torch.empty(0)

    @classmethod
    def of(cls, network: nn.Module, images: Tensor) -> Self | None:
        """Return the first layer of a network for these images, or None.

        It has to be a convolution of the kind above, and the images need enough zeros to save time.
        """
        convolution, *behind = network.children() if isinstance(network, nn.Sequential) else [None]
        suitable = (
            type(convolution) is nn.Conv2d
            and convolution.in_channels == 1
            and convolution.dilation == (1, 1)
            and convolution.padding_mode == "zeros"
            and not isinstance(convolution.padding, str)
            and images.dim() == 4
            and fits(images)
            and fits(convolution.weight)
            and images.count_nonzero().item() <= MOST_PIXELS * images.numel()
            and library("sparse_convolution", agrees) is not None
        )
        return cls(convolution, behind, images.shape[2:]) if suitable else None  # type: ignore[arg-type]

    def pixels(self, images: Tensor) -> Pixels:
        """Of images [images, 1, height, width]."""
        image, y, x = images[:, 0].nonzero().T
        (sy, sx), (py, px) = self._stride, self._padding
        corners = (y + py) // sy * self._cells[1] + (x + px) // sx
        kinds = (y + py) % sy * sx + (x + px) % sx
        starts = torch.zeros(len(images) + 1, dtype=torch.int64)
        starts[1:] = image.bincount(minlength=len(images)).cumsum(0)
        return Pixels(images[image, 0, y, x].contiguous(), corners.int(), kinds.int(), starts)

    def load(self) -> bool:
        """Take the convolution's present weights. Returns whether they can be used: infinity times zero is no zero."""
        weight = self._convolution.weight.detach()  # [channels, 1, height, width]
        (sy, sx), (th, tw) = self._stride, self._taps
        whole = nn.functional.pad(weight[:, 0], (0, tw * sx - weight.shape[3], 0, th * sy - weight.shape[2]))
        by_kind = whole.view(len(weight), th, sy, tw, sx).permute(2, 4, 1, 3, 0)
        self._weights = by_kind.flip(2, 3).contiguous()  # an output further on sees the pixel a stride further back
        return bool(weight.isfinite().all())

    def __call__(self, pixels: Pixels) -> Tensor:
        """Return the pooled outputs at the weights last loaded: [images, channels, height, width], channels last."""
        compiled = library("sparse_convolution", agrees)
        assert compiled is not None
        return self.by(compiled, pixels, None)

    def by(self, compiled: ctypes.CDLL, pixels: Pixels, threads: int | None) -> Tensor:
        """Compute the pooled outputs with this library. With threads=None, the fastest number of threads is used."""
        channels = self._convolution.out_channels
        bias = self._convolution.bias
        bias = torch.zeros(channels) if bias is None else bias.detach().contiguous()
        y = torch.empty(len(pixels), *self._output, channels)
        inputs = pointers(pixels.values, pixels.corners, pixels.kinds, pixels.starts, self._weights, bias, y)
        compiled.sparse_convolution(*inputs, *integers(len(pixels)), self._layout, *integers(threads or threads_for(y)))
        return y.permute(0, 3, 1, 2)

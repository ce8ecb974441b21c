"""Features of an image, the input of the network, and the files that keep them: all can be deleted at any time."""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from runner.config.fields import expect
from runner.data import DataError
from runner.files import SEAL, cache_folder, is_sealed, locked, safe_folder, write_whole
from runner.terminal import Line, duration

_SCATTERED = 256  # images transformed at a time
_LONGEST = 3600.0  # seconds that a file may be unfinished, and that others wait for it


class Features(Protocol):
    """A fixed map of one image, chosen without private data."""

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        """Return the shape of one example's features, [channels, height, width].

        Raises:
            ValueError: it does not support such images.
        """
        ...

    def __call__(self, images: Tensor) -> Tensor:
        """Convert images [examples, channels, height, width] in [0, 1] to features [examples, *shape], float32."""
        ...


@dataclass(frozen=True)
class Pixels:
    """Pixels in [0, 1], or standardised per channel by public constants: (x - mean) / std.

    Statistics of the private training set are no public constants. Computing them would be another release.

    Raises:
        ValueError: only one of `mean` and `std` is given, their lengths differ, or a std is not positive.
    """

    mean: list[float] | None = None
    std: list[float] | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise ValueError("Expected features.mean and features.std both or neither.")
        if self.mean is not None and self.std is not None:
            one_length = len(self.mean) == len(self.std)
            expect(one_length, "features.mean and features.std of one length", f"{self.mean} and {self.std}")
            expect(min(self.std) > 0, "every features.std > 0", self.std)

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        if self.mean is not None and len(self.mean) != image_shape[0]:
            raise ValueError(f"features.mean has {len(self.mean)} channels, the images have {image_shape[0]}.")
        return list(image_shape)

    def __call__(self, images: Tensor) -> Tensor:
        if self.mean is None or self.std is None:
            return images
        mean = torch.tensor(self.mean, device=images.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(1, -1, 1, 1)
        return (images - mean) / std


@dataclass(frozen=True)
class ScatterNet:
    """Wavelet scattering coefficients of orders 0 to 2 of every image channel (Oyallon and Mallat, 2015), by Kymatio.

    J scales and L orientations give 1 + J L + J (J - 1) L^2 / 2 channels for each image channel. They have 1/2^J of the
    height and width, and are ordered by image channel first. For J = 2 and L = 8, 1 x 28 x 28 becomes 81 x 7 x 7, and
    3 x 32 x 32 becomes 243 x 8 x 8. If `mean` and `std` are given, the images are standardised first, as by `Pixels`.

    Features are computed once, in pieces, and cached. The file's name is a hash of the pixels, the transform and its
    version, so features of other images are never used. See `kept`.

    Raises:
        ValueError: J or L is not positive, or `Pixels` refuses an argument.
    """

    J: int
    L: int
    mean: list[float] | None = None
    std: list[float] | None = None

    def __post_init__(self) -> None:
        expect(min(self.J, self.L) > 0, "features.J > 0 and features.L > 0", f"{self.J} and {self.L}")
        self._pixels.shape([len(self.mean)] if self.mean else [0])

    @property
    def _pixels(self) -> Pixels:
        return Pixels(self.mean, self.std)

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        channels, *space = self._pixels.shape(image_shape)
        if any(size % 2**self.J for size in space):
            raise ValueError(
                f"features.J={self.J} needs a height and width divisible by {2**self.J}, not {space[0]} x {space[1]}."
            )
        paths = 1 + self.J * self.L + self.J * (self.J - 1) // 2 * self.L**2
        return [channels * paths, *(size // 2**self.J for size in space)]

    def __call__(self, images: Tensor) -> Tensor:
        """Convert images to features, as `Features` does.

        On a CPU the result is a memory map of the cached file, channels innermost, the order that CPU layers need.

        Raises:
            DataError: the file cannot be written.
        """
        line = Line()
        channels, height, width = self.shape(images.shape[1:])
        shape = [len(images), height, width, channels]
        features = kept(f"{self._key(images)}.scatternet", shape, lambda: self._pieces(images, line), line)
        features = features.permute(0, 3, 1, 2)
        return features if images.device.type == "cpu" else features.to(images.device).contiguous()

    def _key(self, images: Tensor) -> str:
        """Return 32 hex digits that change with anything that may change the features. Devices round differently."""
        import kymatio

        content = {
            "pixels": hashlib.sha256(images.cpu().contiguous().numpy().data).hexdigest(),
            "shape": list(images.shape),
            "transform": asdict(self),
            "order": "channels last",
            "kymatio": kymatio.__version__,
            "device": images.device.type,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]

    def _pieces(self, images: Tensor, line: Line) -> Iterator[Tensor]:
        """Yield the coefficients of some images at a time, [examples, height, width, channels]."""
        from kymatio.torch import Scattering2D

        transform = Scattering2D(self.J, tuple(images.shape[2:]), self.L).to(images.device)
        started, done = time.monotonic(), 0
        for some in images.split(_SCATTERED):
            yield transform(self._pixels(some)).flatten(1, 2).permute(0, 2, 3, 1)
            done += len(some)
            seconds = time.monotonic() - started
            left = duration(seconds / done * (len(images) - done))
            line.show(f"ScatterNet features, computed once: {done} of {len(images)} images · {left} left")
        line.keep(f"ScatterNet features of {len(images)} images computed in {duration(seconds)} and kept")


def kept(name: str, shape: Sequence[int], compute: Callable[[], Iterable[Tensor]], line: Line) -> Tensor:
    """Return a float32 tensor of `shape` from the file `name`, which is computed if it is missing or damaged.

    `compute` yields the tensor's rows in order, in pieces of any length. They are written one by one and never held
    together. The file is the numbers and then their SHA-256, and is written under a temporary name first. Its SHA-256
    is checked before each use. One process computes. Others that need the same file wait for it, at most an hour.

    The tensor is a memory map of the file, so processes that use the same file share memory. A write into the tensor
    stays in its process.

    Raises:
        DataError: the file cannot be written.
    """
    path = cache_folder() / "features" / name
    try:
        safe_folder(path.parent)
        if not _is_whole(path, shape):
            waits = partial(line.keep, "another process computes the same features: waiting for it")
            with locked(path.with_suffix(".lock"), wait=_LONGEST, on_wait=waits):
                if not _is_whole(path, shape):  # else another process was first
                    if path.exists():
                        line.keep(f"{path} is damaged or open to others, so it is computed again")
                    for part in path.parent.glob(f".{path.name}.*.part"):  # of processes that were killed
                        with suppress(OSError):  # it was renamed in the meantime
                            if time.time() - part.stat().st_mtime > _LONGEST:
                                part.unlink(missing_ok=True)
                    write_whole(path, _pieces(shape, compute()), replace=True, private=True)
    except OSError as error:
        raise DataError(
            f"The features cannot be kept in {path.parent} ({error}): XDG_CACHE_HOME can name another folder."
        ) from error
    try:
        numbers = torch.from_file(str(path), shared=False, size=math.prod(shape), dtype=torch.float32)
    except RuntimeError:  # a file system without memory maps
        numbers = torch.from_numpy(np.fromfile(path, np.float32, math.prod(shape)))
    return numbers.view(*shape)


def _is_whole(path: Path, shape: Sequence[int]) -> bool:
    """Return True if the file is the user's, has the size of `shape`, and ends in the SHA-256 of its numbers."""
    return path.exists() and path.stat().st_size == 4 * math.prod(shape) + SEAL and is_sealed(path)


def _pieces(shape: Sequence[int], rows: Iterable[Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the content of the file: the numbers, and then their SHA-256."""
    digest, count = hashlib.sha256(), 0
    for piece in rows:
        if list(piece.shape[1:]) != list(shape[1:]):
            raise ValueError(f"Expected rows of shape {list(shape[1:])}, got {list(piece.shape[1:])}.")
        content = piece.to("cpu", torch.float32).contiguous().numpy().data.cast("B")
        digest.update(content)
        count += len(piece)
        yield content
    if count != shape[0]:
        raise ValueError(f"Expected {shape[0]} rows, got {count}.")
    yield digest.digest()

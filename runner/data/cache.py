"""Files computed once per machine, in the user's cache folder. All of them can be deleted at any time."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from runner.data import DataError
from runner.data.files import SEAL, cache_folder, is_sealed, locked, safe_folder, write_whole
from runner.terminal import Line

_LONGEST = 3600.0  # seconds that a file may be unfinished, and that others wait for it


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

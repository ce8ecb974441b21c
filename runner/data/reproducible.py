"""Fixed seeds for a user's parts, and reading of their data so that every process gets the same examples."""

import hashlib
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    from runner.data.examples import Split

_SEED = 0  # not that of the run: runs with other seeds have the same data


@contextmanager
def seeded(seed: int, devices: "Sequence[torch.device]" = ()) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and `random`, which continue afterwards as if nothing had been drawn.

    Args:
        devices: CUDA devices whose generators are seeded, too. The others keep their state.
    """
    import torch  # not at the top, as commands that only read configs need no PyTorch

    before, numbers = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=devices):
        try:
            (torch.manual_seed if devices else torch.default_generator.manual_seed)(seed)
            seed_others(seed)
            yield
        finally:
            random.setstate(before)
            np.random.set_state(numbers)


def seed_others(seed: int) -> None:
    """Seed the global generators of NumPy and `random`."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextmanager
def reproducible() -> Iterator[None]:
    """Fix what a reader takes from its process: the generators of torch, NumPy and `random`, the order of folders.

    The generators continue afterwards as if nothing had been drawn. A reader that takes numbers from the clock, from
    the operating system or from the order of a set still differs. The hash of its examples tells so (`digest`).

    >>> with reproducible():
    ...     first = random.random()
    >>> with reproducible():
    ...     random.random() == first
    True
    """
    listed, scanned = os.listdir, os.scandir
    with seeded(_SEED):
        try:
            vars(os).update(
                listdir=lambda *place, **options: sorted(listed(*place, **options)),
                scandir=lambda *place, **options: _Sorted(scanned(*place, **options)),
            )
            yield
        finally:
            vars(os).update(listdir=listed, scandir=scanned)


class _Sorted(ExitStack):
    """The entries of a folder by name, as `os.scandir` gives them: an iterator and a context."""

    def __init__(self, entries: Any) -> None:
        super().__init__()
        with entries:
            self._left = iter(sorted(entries, key=attrgetter("name")))

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        return self._left

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._left)


def digest(splits: "Iterable[Split]") -> str:
    """Return the SHA-256 of the types, shapes and numbers of images and labels, in hex.

    >>> import torch
    >>> from runner.data.datasets import Split
    >>> digest([Split(torch.zeros(2, 3), torch.zeros(2))]) == digest([Split(torch.zeros(3, 2), torch.zeros(2))])
    False
    """
    hasher = hashlib.sha256()
    for tensor in (part for split in splits for part in (split.images, split.targets)):
        hasher.update(f"{tensor.dtype} {list(tensor.shape)} ".encode())
        hasher.update(tensor.contiguous().numpy().data.cast("B") if tensor.numel() else b"")
    return hasher.hexdigest()

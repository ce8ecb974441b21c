"""Pieces of a batch that fit the memory of a GPU."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


class Pieces:
    """The number of examples at a time, `size`, which is halved if the GPU's memory is too small for them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def fitting(self, take: Callable[[int], T], examples: int) -> T:
        """Return `take(size)` for the largest tried size that fits, of at most `examples`.

        Raises:
            torch.OutOfMemoryError: one example does not fit.
        """
        while True:
            size = min(self.size, examples)
            try:
                return take(size)
            except torch.OutOfMemoryError as error:
                if size <= 1:
                    error.add_note("one example does not fit: compute fewer runs at a time, by JOBS")
                    raise
            self.size = math.ceil(size / 2)
            torch.cuda.empty_cache()
            print(
                f"memory: {size} examples at a time do not fit, so {self.size} are computed at a time "
                f"(runtime.physical_batch={self.size}).",
                file=sys.stderr,
            )

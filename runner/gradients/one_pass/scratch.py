"""Memory that one layer reuses for every slice.

Fresh memory costs a page fault every 4 KiB if the allocator has returned the last slice's memory to the system. It does
so for buffers this large, and the faults take up to as much time as filling the buffers.
"""

from __future__ import annotations

import math

from torch import Tensor


class Scratch:
    """A buffer that is handed out again, and then overwritten."""

    def __init__(self) -> None:
        self._kept: Tensor | None = None

    def empty(self, like: Tensor, *size: int) -> Tensor:
        """Return an uninitialised tensor [size] of the type and on the device of `like`."""
        numbers = math.prod(size)
        kept = self._kept
        if kept is None or kept.numel() < numbers or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._kept = like.new_empty(numbers)
        return kept[:numbers].view(size)

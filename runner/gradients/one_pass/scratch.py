"""Memory that one layer uses again for every slice.

Fresh memory costs a page fault every 4 KiB whenever the allocator gave the last slice's back to the system, which
for buffers this large it does: up to as much time as filling them takes.
"""

from __future__ import annotations

import math

from torch import Tensor


class Scratch:
    """Hands out the same memory again: what was handed out before is then overwritten."""

    def __init__(self) -> None:
        self._kept: Tensor | None = None

    def empty(self, like: Tensor, *size: int) -> Tensor:
        """An uninitialised tensor [size] of the type and on the device of `like`."""
        numbers = math.prod(size)
        kept = self._kept
        if kept is None or kept.numel() < numbers or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._kept = like.new_empty(numbers)
        return kept[:numbers].view(size)

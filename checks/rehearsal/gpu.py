"""The state of the made-up device: counts, the present capture, and the limits."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import torch

_HERE = str(Path(__file__).parent)
_REPOSITORY = str(Path(__file__).parents[2])


class Gpu:
    """Counts of all that the made-up devices do.

    Attributes:
        devices: the number of devices.
        current: the index of the device that `cuda` means.
        launches: kernels and library calls, by the operation's name.
        waits: waits of the host for a device, by their reason and place in the code.
        uploads: copies from the host to a device, by their reason and place in the code.
        capturing: the graph that is captured now, or None.
        graphs: the graphs whose memory is held.
        together: the largest number of graphs that were held during a capture.
        largest: the bytes above which no tensor fits into memory; None: every tensor fits.
    """

    present: ClassVar[Gpu | None] = None

    def __init__(self, devices: int) -> None:
        self.devices, self.current = devices, 0
        self.launches, self.waits, self.uploads = Counter[str](), Counter[str](), Counter[str]()
        self.capturing: Any = None
        self.graphs = WeakSet[Any]()
        self.together = 0
        self.largest: int | None = None

    def clear(self) -> None:
        """Set the counts to zero."""
        for counts in (self.launches, self.waits, self.uploads):
            counts.clear()

    def wait(self, reason: str) -> None:
        """Count a wait of the host.

        Raises:
            RuntimeError: a graph is captured.
        """
        self.waits[f"{reason} in {place()}"] += 1
        if self.capturing is not None:
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({reason} in {place()})")

    def upload(self, reason: str) -> None:
        """Count a copy from the host.

        Raises:
            RuntimeError: a graph is captured.
        """
        self.uploads[f"{reason} in {place()}"] += 1
        if self.capturing is not None:
            raise RuntimeError(
                "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned "
                f"({reason} in {place()})"
            )

    def allocate(self, size: int) -> None:
        """Refuse a tensor of more than `largest` bytes.

        Raises:
            torch.OutOfMemoryError: it has more.
        """
        if self.largest is not None and size > self.largest:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")


def present() -> Gpu:
    """Return the state of the device that is made up now."""
    assert Gpu.present is not None
    return Gpu.present


def place() -> str:
    """Return the file and line of this repository that asked for the present operation."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if file.startswith(_REPOSITORY) and not file.startswith(_HERE):
            return f"{file[len(_REPOSITORY) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"

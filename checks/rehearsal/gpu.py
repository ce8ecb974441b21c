"""The state of the made-up device: counts, the present capture, the limits, and its graphs."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch import Generator, Tensor
from torch.utils._pytree import tree_leaves

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

    present: "ClassVar[Gpu | None]" = None

    def __init__(self, devices: int) -> None:
        self.devices, self.current = devices, 0
        self.launches, self.waits, self.uploads = Counter[str](), Counter[str](), Counter[str]()
        self.capturing: Graph | None = None
        self.graphs = WeakSet[Graph]()
        self.together = 0
        self.largest: int | None = None

    def clear(self) -> None:
        for counts in (self.launches, self.waits, self.uploads):
            counts.clear()

    def wait(self, reason: str) -> None:
        """Count a wait of the host.

        Raises:
            RuntimeError: a graph is captured.
        """
        reason = f"{reason} in {place()}"
        self.waits[reason] += 1
        if self.capturing is not None:
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({reason})")

    def upload(self, reason: str) -> None:
        """Count a copy from the host.

        Raises:
            RuntimeError: a graph is captured.
        """
        reason = f"{reason} in {place()}"
        self.uploads[reason] += 1
        if self.capturing is not None:
            refusal = "Cannot copy between CPU and CUDA tensors during CUDA graph capture"
            raise RuntimeError(f"{refusal} unless the CPU tensor is pinned ({reason})")

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


class Graph:
    """A stand-in for `torch.cuda.CUDAGraph`: recorded calls, which a replay makes again, with the same memory."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._calls: list[tuple[Any, Any, Any, Any]] = []
        self._before: list[tuple[Tensor, Tensor]] = []
        self._generators: list[tuple[Any, Tensor]] = []
        self.device = 0
        present().graphs.add(self)

    def register_generator_state(self, generator: Generator) -> None:
        """Allow the graph to draw from a generator, which a capture leaves as it was, and a replay moves on."""
        self._generators.append((generator, generator.get_state()))

    def record(self, func: Any, args: Any, kwargs: Any, written: list[Tensor]) -> Any:
        """Make a call and record it. `written` are the tensors that it changes, which `undo` restores.

        Raises:
            RuntimeError: it draws from a generator that is not registered.
        """
        asked: Any = kwargs.get("generator")
        registered = [generator_._cdata for generator_, _ in self._generators]
        if asked is not None and asked._cdata not in registered:
            raise RuntimeError("Attempt to increase offset for a CUDA generator not in capture mode.")
        self._before.extend((tensor, tensor.clone()) for tensor in written)
        out = func(*args, **kwargs)
        self._calls.append((func, args, kwargs, out))
        return out

    def undo(self) -> None:
        """Undo what the capture computed, as CUDA computes nothing during a capture."""
        for tensor, before in reversed(self._before):
            tensor.copy_(before)
        self._before.clear()
        for generator, state in self._generators:
            generator.set_state(state)

    def replay(self) -> None:
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            for func, args, kwargs, recorded in self._calls:
                repeated = func(*args, **kwargs)
                for old, new in zip(tree_leaves(recorded), tree_leaves(repeated), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


@contextmanager
def graph(
    cuda_graph: Graph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
) -> Iterator[None]:
    """Stand in for `torch.cuda.graph`. The capture belongs to the current device, or to the stream's."""
    gpu = present()
    gpu.together = max(gpu.together, len(gpu.graphs))
    cuda_graph.device = gpu.current if stream is None else stream.device.index
    gpu.capturing = cuda_graph
    try:
        yield
    finally:
        gpu.capturing = None
        cuda_graph.undo()

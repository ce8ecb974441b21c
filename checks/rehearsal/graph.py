"""CUDA graphs of the made-up device: calls that are recorded and repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils._pytree import tree_leaves

from checks.rehearsal.gpu import present


class Graph:
    """A stand-in for `torch.cuda.CUDAGraph`. A replay makes the recorded calls again, with the same memory."""

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

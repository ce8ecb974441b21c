"""Compilation of a step by PyTorch's compiler, and its capture as a CUDA graph with its noise, and of an evaluation."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor

from runner.data.datasets import Split
from runner.gradients import Objective
from runner.training.evaluate import Predictions, predict

_WARM_UP = 3  # passes before a capture, as PyTorch's documentation recommends
_COMPILATION = 20.0  # seconds
_SAVED, _SAVED_BY_NUMBER = 2e-4, 5e-12  # seconds of a step, and for each number that layers hold


def compiling_pays(steps: int, numbers: int, times: int = 1) -> bool:
    """Return True if this number of steps saves more time by compiled code than to compile it so many `times` takes.

    A run of a small and of a large network was timed on an H200 (docs/performance.md). `numbers` are those that the
    layers hold for a step.
    """
    return steps * (_SAVED + _SAVED_BY_NUMBER * numbers) > times * _COMPILATION


def captured(
    draw: Callable[[], None],
    advance: Callable[[], None],
    drawing: Sequence[Generator],
    side: torch.cuda.Stream,
    pool: Any = None,
) -> Callable[[], None]:
    """Return the replay of a graph that draws noise and then advances.

    Some passes are made before, so the caller restores the state and the generators.

    Args:
        drawing: the generators that `draw` draws from. A replay moves them on.
        side: the stream to capture on, of the device.
        pool: the memory of several graphs of a stream, none of which leaves anything in it
            (`torch.cuda.graph_pool_handle`).

    Raises:
        RuntimeError: the calls cannot be captured.
    """
    with torch.cuda.device(side.device), _fastest_convolutions():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                draw()
                advance()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        for source in drawing:
            graph.register_generator_state(source)
        with torch.cuda.graph(graph, pool=pool, stream=side):
            draw()
            advance()
    replay: Callable[[], None] = graph.replay
    return replay


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Have cuDNN time its convolutions for a shape, those that are repeatable, and take the fastest."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def compiled(function: Callable[[], None], backend: str | Callable[..., Any] = "inductor") -> Callable[[], None]:
    """Return a function compiled as one graph, with the backward pass in it, for the shapes of its first call.

    Images keep their layout, in which windows are copied in the order of memory. Code that was compiled before is
    dropped, as a captured graph has no use for it.
    """
    from torch._dynamo import config as dynamo  # its import takes seconds
    from torch._dynamo import reset
    from torch._inductor import config as inductor

    reset()
    compiled_function: Callable[[], None] = torch.compile(function, fullgraph=True, dynamic=False, backend=backend)

    def call() -> None:
        with dynamo.patch(trace_autograd_ops=True), inductor.patch(layout_optimization=False):
            compiled_function()

    return call


def captured_predictions(objective: Objective, split: Split) -> Predictions | None:
    """Return `predict` at an objective's present weights as the replay of a CUDA graph, or None if it cannot be one.

    The weights have to keep their memory, as those of a `GraphStep` do.
    """
    if objective.isolated:
        return None
    buffers = predict(objective, split)

    def refill() -> None:
        for tensor, predicted in zip(buffers, predict(objective, split), strict=True):
            tensor.copy_(predicted)

    try:
        replay = captured(lambda: None, refill, [], torch.cuda.Stream(split.images.device))
    except RuntimeError:  # of a module that waits, or for lack of memory
        return None

    def replayed() -> tuple[Tensor, Tensor]:
        replay()
        return buffers

    return replayed

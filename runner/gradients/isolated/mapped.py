"""A user's function of one example, applied to every example of a batch, each by itself.

There are three ways, and the first one that works on made-up examples is taken:

- together: the recorded function (`runner.gradients.isolated.recording`) is mapped by `torch.func.vmap`;
- one by one: the recorded function is called in a loop, as not every operator has a rule for `vmap`;
- forked: what cannot be recorded is called as it is, in a process of its own for each example
  (`runner.gradients.isolated.forked`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from runner.gradients.isolated.forked import ForkedError, Forks
from runner.gradients.isolated.recording import RecordingError, recorded
from runner.gradients.undisturbed import undisturbed

Shared = dict[str, Tensor]
_MADE_UP = 2  # examples


class NotMappableError(ValueError):
    """Raised where a function of one example cannot be applied to the examples of a batch; the message is why."""


class Mapped:
    """A function of one example, applied to all examples of a batch.

    Args:
        function: `function(shared, *example)`; returns tensors, in lists or dicts. It can be pickled.
        shared: tensors by name that are the same for all examples.
        example: one made-up example, a tensor each of the shape and type of the later ones.
        result: tensors of the shapes and types that the function returns for one example, without numbers (on the meta
            device, say), in the same lists or dicts.

    Attributes:
        slow: None where the examples are taken together; else why they are not.
        rate: how many examples a second go by where they are not taken together.
        forked: whether the function runs as it is, in a process for each example.

    Raises:
        NotMappableError: the function fails on the made-up example in every way, or returns something else.
    """

    def __init__(self, function: Callable[..., Any], shared: Shared, example: tuple[Tensor, ...], result: Any) -> None:
        self._leaves, self._structure = pytree.tree_flatten(result)
        self.slow: str | None = None
        self.rate = math.inf
        self.forked = False
        try:
            graph = recorded(function, (shared, *example), self._structure)
        except RecordingError as reason:
            self.forked = True
            try:
                forks = Forks(function, result)
            except ForkedError as error:
                raise NotMappableError(f"{reason}; and {error}") from error
            self._one_by_one(lambda shared, *examples: forks(shared, examples), shared, example, str(reason))
            return
        by_example = vmap(graph, (*[None] * len(shared), *[0] * len(example)), randomness="different")
        self._call: Callable[..., Sequence[Any]] = lambda *given: by_example(*pytree.tree_leaves(given))
        try:
            self._try(shared, example)
        except NotMappableError as reason:
            loop: Callable[..., Iterator[Any]] = lambda shared, *examples: (  # noqa: E731
                graph(*pytree.tree_leaves((_copied(shared), *map(torch.clone, each))))
                for each in zip(*examples, strict=True)
            )
            self._one_by_one(loop, shared, example, str(reason))

    @undisturbed()
    def __call__(self, shared: Shared, *examples: Tensor) -> Any:
        """The function's results for examples, tensors [batch, ...]: the same, each with [batch] before its shape.

        Raises:
            NotMappableError: the function failed, or returned other shapes or types than before.
        """
        count = len(examples[0])
        try:
            with torch.no_grad():
                leaves = self._call(_copied(shared), *map(torch.clone, examples))
        except Exception as error:  # whatever a user's code raises
            raise NotMappableError(_line(error)) from error
        if len(leaves) != len(self._leaves) or any(
            type(leaf) is not Tensor or leaf.shape != (count, *like.shape) or leaf.dtype is not like.dtype
            for leaf, like in zip(leaves, self._leaves, strict=True)
        ):
            expected = ", ".join(f"{tuple(like.shape)} of {like.dtype}" for like in self._leaves)
            raise NotMappableError(f"for one example it does not return tensors of shape {expected}")
        return pytree.tree_unflatten(leaves, self._structure)

    def _one_by_one(self, results: Callable[..., Iterator[Any]], shared: Shared, example: Any, why: str) -> None:
        self._call = lambda shared, *examples: _stacked(results(shared, *examples))
        self._try(shared, example)  # a first call also loads libraries
        started = time.perf_counter()
        self._try(shared, example)
        self.slow, self.rate = why, _MADE_UP / (time.perf_counter() - started)

    def _try(self, shared: Shared, example: tuple[Tensor, ...]) -> None:
        """Call on copies of the made-up example. PyTorch's generators are left as they were."""
        devices = [each.device for each in example if each.device.type == "cuda"]
        with torch.random.fork_rng(devices=devices):
            self(shared, *(torch.stack([each] * _MADE_UP) for each in example))


def _copied(shared: Shared) -> Shared:
    """A copy for one call: what the function changes in place is seen by no other call."""
    return {name: tensor.clone() for name, tensor in shared.items()}


def _stacked(results: Iterator[Any]) -> list[Tensor]:
    """The tensors of single examples' results as tensors [batch, ...]."""
    return list(map(torch.stack, zip(*map(pytree.tree_leaves, results), strict=True)))


def _line(error: Exception) -> str:
    """The first line of what was raised; of this module's own errors without the class."""
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, ForkedError) else f"{type(error).__name__}: {text}"

"""A user's function of one example, applied to every example of a batch separately.

The function is recorded (`runner.gradients.isolated.recording`), and the recording is mapped by `torch.func.vmap`. Some
operators have no rule for `vmap`. A recording with such operators is called in a loop over the examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from runner.gradients.isolated.recording import NotMappableError, in_words, recorded
from runner.gradients.undisturbed import undisturbed

Shared = dict[str, Tensor]
_MADE_UP = 2  # examples


class Mapped:
    """A function of one example, applied to all examples of a batch.

    Args:
        function: `function(shared, *example)`; returns tensors, in lists or dicts. It can be copied.
        shared: tensors by name that are the same for all examples.
        example: one made-up example, a tensor each of the shape and type of the later ones.
        result: tensors of the shapes and types that the function returns for one example, without numbers (on the meta
            device, for example), in the same lists or dicts.

    Attributes:
        rate: examples per second if the examples are computed one after another; else None.

    Raises:
        NotMappableError: the function cannot be recorded, fails on the made-up example, or returns something else.
    """

    def __init__(self, function: Callable[..., Any], shared: Shared, example: tuple[Tensor, ...], result: Any) -> None:
        self._leaves, self._structure = pytree.tree_flatten(result)
        self.rate: float | None = None
        example = tuple(each.contiguous() for each in example)  # as in every call
        graph = recorded(function, (shared, *example), self._structure)
        by_example = vmap(graph, (*[None] * len(shared), *[0] * len(example)), randomness="different")
        self._call: Callable[..., Sequence[Any]] = lambda *given: by_example(*pytree.tree_leaves(given))
        try:
            self._try(shared, example)
        except NotMappableError:
            self._call = lambda shared, *examples: _stacked(
                graph(*pytree.tree_leaves((_copied(shared), *map(torch.clone, each))))
                for each in zip(*examples, strict=True)
            )
            self._try(shared, example)  # a first call also loads libraries
            started = time.perf_counter()
            self._try(shared, example)
            self.rate = _MADE_UP / (time.perf_counter() - started)

    @undisturbed()
    def __call__(self, shared: Shared, *examples: Tensor) -> Any:
        """Return the function's results for examples [batch, ...], each with [batch] before its shape.

        Raises:
            NotMappableError: the function failed, or returned other shapes or types than before.
        """
        count = len(examples[0])
        try:
            with torch.no_grad():
                leaves = self._call(_copied(shared), *map(_contiguous, examples))
        except Exception as error:  # any error of a user's code
            raise NotMappableError(in_words(error)) from error
        if len(leaves) != len(self._leaves) or any(
            type(leaf) is not Tensor or leaf.shape != (count, *like.shape) or leaf.dtype is not like.dtype
            for leaf, like in zip(leaves, self._leaves, strict=True)
        ):
            expected = ", ".join(f"{tuple(like.shape)} of {like.dtype}" for like in self._leaves)
            raise NotMappableError(f"for one example it does not return tensors of shape {expected}")
        return pytree.tree_unflatten(leaves, self._structure)

    def _try(self, shared: Shared, example: tuple[Tensor, ...]) -> None:
        """Call on copies of the made-up example, without changing PyTorch's generators."""
        devices = [each.device for each in example if each.device.type == "cuda"]
        with torch.random.fork_rng(devices=devices):
            self(shared, *(torch.stack([each] * _MADE_UP) for each in example))


def _copied(shared: Shared) -> Shared:
    """Return a copy for one call, so that in-place changes by the function reach no other call."""
    return {name: tensor.clone() for name, tensor in shared.items()}


def _contiguous(examples: Tensor) -> Tensor:
    """Return a copy in the usual order of memory, for which the function was recorded."""
    return examples.clone(memory_format=torch.contiguous_format)


def _stacked(results: Iterable[Any]) -> list[Tensor]:
    """Stack the tensors of single examples' results to tensors [batch, ...]."""
    return list(map(torch.stack, zip(*map(pytree.tree_leaves, results), strict=True)))

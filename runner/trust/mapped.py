"""A user's function of one example, applied to every example of a batch by itself.

`torch.func.vmap` maps the function, so an operation over the batch is over one example. For each batch the function is
made anew, from a fresh copy of the object that it belongs to. So nothing that it keeps in attributes or buffers is
there for the next batch.

The first batch is compared: for `COMPARED` of its examples, the mapped results are compared with those of the example
alone, without `vmap` and by ordinary autograd. A difference is refused, and so is a function whose result for an
example changes after it has seen others. (For this comparison alone, all examples draw the same random numbers.)

What `vmap` cannot map is applied to the examples one after another, each by a fresh copy. That is slow, and `rate` and
`reason` tell the user so.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from runner.gradients.mapped import mapped

COMPARED = 4  # examples of the first batch, evenly spread over it
_MADE_UP = 2  # examples that a function is tried on, before there is data
_AGREE, _NOTHING = 1e-3, 1e-7  # tolerance: relative to the largest of the compared results, and absolute
_REASONS = (  # a part of PyTorch's message, and what it means
    (
        (".item()", "data pointer", "dynamic shape"),
        "its code asks for an example's numbers, as `if x.sum() > 0` or `.item()` does: `torch.where` is faster",
    ),
    (
        ("setup_context",),
        "its autograd.Function has no `setup_context`: with that and `generate_vmap_rule = True` it is faster",
    ),
    (
        ("inplace arithmetic", "match the broadcast shape", "mutate a captured Tensor"),
        "it, or a layer in it, writes an example's numbers in place into a tensor without them, as into a buffer: a "
        "new tensor is faster",
    ),
    (
        ("as_strided",),
        "it addresses memory by `as_strided`, where other examples could lie: `unfold` is faster",
    ),
    (
        ("same randomness",),
        "it draws by an example's numbers, as `torch.bernoulli(p)` does: `torch.rand_like(p) < p` is faster",
    ),
)
_KEEPS = "it keeps something outside of its own attributes, as in a global or in a class: leave that out"
_OTHERWISE = "PyTorch cannot map one of its operators over examples"

NO_SHARED: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})


class NotMappableError(ValueError):
    """A function of one example cannot be applied to the examples of a batch; the message is the reason."""


class Mapped:
    """A function of one example, applied to all examples of a batch.

    Args:
        make: returns `function(parameters, buffers, *example)` on a fresh copy of its object. The function returns
            tensors, in lists, tuples or dicts.
        shared: parameters and buffers by name, the same for all examples.
        example: one made-up example, a tensor each of the shape and type of the later ones.
        result: tensors of the shapes and types that the function returns for one example, without numbers (on the meta
            device, for example), in the same lists, tuples or dicts.
        alone: `make` for the comparison, if the function without `vmap` is another one.

    Attributes:
        rate: examples per second if the examples are computed one after another; else None.
        reason: why they are, or None.

    Raises:
        NotMappableError: the function fails on the made-up example, returns something else, or draws from Python's or
            NumPy's generator, which would give all examples of a batch the same numbers.
    """

    def __init__(
        self,
        make: Callable[[], Callable[..., Any]],
        shared: tuple[Any, Any],
        example: Sequence[Tensor],
        result: Any,
        alone: Callable[[], Callable[..., Any]] | None = None,
    ) -> None:
        self._make, self._alone, self._compared = make, alone or make, False
        self._like, self._structure = pytree.tree_flatten(result)
        self.rate: float | None = None
        self.reason: str | None = None
        made_up = [torch.stack([tensor] * _MADE_UP) for tensor in example]
        before = _generators()
        with _seeded(example), torch.no_grad():
            with _errors_in_words(), _Strides() as strides:
                self._checked(_stacked([self._one(shared, made_up, 0)]), 1)
            try:
                if strides.used:
                    raise RuntimeError("as_strided")
                for randomness in ("different", "same"):
                    self._map(shared, made_up, randomness)
            except Exception as error:
                causes = (cause for parts, cause in _REASONS if any(part in str(error) for part in parts))
                self.reason = next(causes, _OTHERWISE)
                started = time.perf_counter()
                self._one(shared, made_up, 1)
                self.rate = 1 / (time.perf_counter() - started)
        if before != _generators():
            raise NotMappableError("it draws from Python's or NumPy's generator: draw by PyTorch instead")

    def __call__(self, shared: tuple[Any, Any], *examples: Tensor) -> Any:
        """Return the function's results for examples [batch, ...], each with [batch] before its shape.

        Raises:
            NotMappableError: the function fails, returns other shapes or types than before, or the first batch shows
                that an example's result is not that of the example alone.
        """
        with _errors_in_words(), torch.no_grad():
            if not self._compared and len(examples[0]) > 1:
                self._compare(shared, examples)
                self._compared = True
            return self._checked(self._over_batch(shared, examples), len(examples[0]))

    def _over_batch(self, shared: tuple[Any, Any], examples: Sequence[Tensor]) -> Any:
        if self.rate is None:
            return self._map(shared, examples, "different")
        return _stacked(self._one(shared, examples, index) for index in range(len(examples[0])))

    def _map(self, shared: tuple[Any, Any], examples: Sequence[Tensor], randomness: str) -> Any:
        return mapped(self._make(), randomness)(*_copies(shared, examples))

    def _one(self, shared: tuple[Any, Any], examples: Sequence[Tensor], index: int) -> Any:
        """Return the result of one example, on a fresh copy and without `vmap`."""
        return self._alone()(*_copies(shared, [tensor[index] for tensor in examples]))

    def _compare(self, shared: tuple[Any, Any], examples: Sequence[Tensor]) -> None:
        count = len(examples[0])
        chosen = sorted({round(place * (count - 1) / (COMPARED - 1)) for place in range(COMPARED)})

        def alone(index: int) -> list[Tensor]:
            with _seeded(examples):
                return _vectors(self._one(shared, examples, index))

        expected = {index: alone(index) for index in chosen}
        again = alone(chosen[0])  # after the other ones
        lengths = [[float(v.nan_to_num(0.0, 0.0, 0.0).double().norm()) for v in parts] for parts in expected.values()]
        scales = [max(of_part) for of_part in zip(*lengths, strict=True)]
        if _differ(again, expected[chosen[0]], scales):
            raise NotMappableError(f"its result for an example depends on the examples before: {_KEEPS}")
        if self.rate is not None:
            return
        with _seeded(examples):
            together = self._map(shared, examples, "same")
        for index in chosen:
            results = _vectors(pytree.tree_map(lambda tensor, place=index: tensor[place], together))
            if _differ(results, expected[index], scales):
                raise NotMappableError(
                    "in a batch, an example's result is not the result of that example alone: use PyTorch's "
                    "operators on the dimensions of one example, and not on its memory"
                )

    def _checked(self, results: Any, count: int) -> Any:
        leaves, structure = pytree.tree_flatten(results)
        if structure != self._structure or any(
            tensor.shape != (count, *like.shape) or tensor.dtype is not like.dtype
            for tensor, like in zip(leaves, self._like, strict=True)
        ):
            expected = ", ".join(f"{tuple(like.shape)} of {like.dtype}" for like in self._like)
            actual = ", ".join(f"{tuple(tensor.shape[1:])} of {tensor.dtype}" for tensor in leaves)
            raise NotMappableError(f"for one example it returns shape {actual or 'nothing'}, in place of {expected}")
        return results


class MappedObject:
    """A function of a user's object and of one example, whose object is copied for each batch.

    Args:
        part: the user's object.
        call: `call(part, *example)`, which returns tensors, in lists, tuples or dicts.
        result: returns tensors like those of `call`, from an example.
    """

    def __init__(self, part: Any, call: Callable[..., Any], result: Callable[..., Any]) -> None:
        self._part, self._call, self._result = part, call, result
        self._mapped: dict[Any, Mapped] = {}

    def ready(self, *examples: Tensor) -> Mapped:
        """Return the function, ready to be mapped; only the shapes and types of one example are used.

        Raises:
            NotMappableError: see `Mapped`.
        """
        key = tuple((tensor.shape[1:], tensor.dtype, tensor.device) for tensor in examples)
        if key not in self._mapped:
            example = [torch.zeros_like(tensor[0]) for tensor in examples]
            self._mapped[key] = Mapped(self._make, NO_SHARED, example, self._result(*example))
        return self._mapped[key]

    def __call__(self, *examples: Tensor) -> Any:
        """Return the function's results for examples [batch, ...], as `Mapped` does."""
        return self.ready(*examples)(NO_SHARED, *examples)

    def _make(self) -> Callable[..., Any]:
        part = deepcopy(self._part)
        return lambda _, __, *example: self._call(part, *example)


class _Strides(TorchFunctionMode):
    """Notes whether memory is addressed by strides, which vmap keeps within a batch but not within an example."""

    used = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.used = self.used or getattr(function, "__name__", "").startswith("as_strided")
        return function(*args, **kwargs or {})


@contextmanager
def _errors_in_words() -> Iterator[None]:
    """Turn an error of a user's code within into a NotMappableError with its first line, or with what it means."""
    try:
        yield
    except NotMappableError:
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise NotMappableError(_KEEPS if "escaped from inside" in str(error) else words) from error


def _copies(shared: tuple[Any, Any], examples: Sequence[Tensor]) -> list[Any]:
    """Return copies for one call, so that in-place changes by the function reach no other call.

    Examples are in the usual order of memory, which a function may rely on.
    """
    tensors = [{name: tensor.clone() for name, tensor in group.items()} for group in shared]
    return [*tensors, *(tensor.clone(memory_format=torch.contiguous_format) for tensor in examples)]


def _stacked(results: Iterable[Any]) -> Any:
    """Stack the tensors of single examples' results to tensors [batch, ...]."""
    first, *following = results
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), first, *following)


def _vectors(result: Any) -> list[Tensor]:
    """Return a vector for each part of one example's result, as its gradient and its loss, of its real numbers."""
    parts = [pytree.tree_leaves(part) for part in (result if isinstance(result, tuple) else (result,))]
    return [torch.cat([tensor.flatten() for tensor in part if tensor.is_floating_point()]) for part in parts]


def _differ(results: Sequence[Tensor], expected: Sequence[Tensor], scales: Sequence[float]) -> bool:
    for result, reference, scale in zip(results, expected, scales, strict=True):
        distance = float((result - reference)[reference.isfinite()].double().norm())
        if not distance <= _AGREE * scale + _NOTHING:  # a NaN in the mapped result alone is a difference
            return True
    return False


def _generators() -> str:
    return f"{random.getstate()} {numpy.random.get_state(legacy=False)}"


@contextmanager
def _seeded(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Draw the same random numbers by PyTorch within, and go on afterwards as if none had been drawn."""
    with torch.random.fork_rng(devices=[tensor.device for tensor in tensors if tensor.is_cuda]):
        torch.manual_seed(0)
        yield

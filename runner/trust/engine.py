"""A user's function of one example, applied to every example of a batch by itself, for gradients and for guesses.

`torch.func.vmap` maps the function, so an operation over the batch is over one example. For each batch the function is
made anew, from a fresh copy of the object that it belongs to. So nothing that it keeps in attributes or buffers is
there for the next batch.

For `COMPARED` examples of the first batch, the mapped results are compared with those of the example alone, without
`vmap` and by ordinary autograd. A difference is refused, and so is a function whose result for an example changes after
it has seen others. (For this comparison alone, all examples draw the same random numbers.)

What `vmap` cannot map is applied to the examples one after another, each by a fresh copy. That is slow, and `rate` and
`reason` tell the user so.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from runner.config import ConfigError
from runner.gradients import unknown_module
from runner.gradients.interface import (
    Gradients,
    MappedEngine,
    Within,
    as_function,
    example_loss,
    mapped,
    shared_tensors,
)
from runner.gradients.terms import agrees_at, as_rows
from runner.networks.objective import Objective, fresh_copy

COMPARED = 4  # examples of the first batch, evenly spread over it
_AGREE, _NOTHING = 1e-3, 1e-7  # tolerance: relative to the largest of the compared results, and absolute
_SAME, _SAME_ELSEWHERE = 1e-6, 1e-5  # relative, for the same call again; a GPU may add up in another order
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
    (("as_strided",), "it addresses memory by `as_strided`, where other examples could lie: `unfold` is faster"),
    (
        ("same randomness",),
        "it draws by an example's numbers, as `torch.bernoulli(p)` does: `torch.rand_like(p) < p` is faster",
    ),
    (("",), "PyTorch cannot map one of its operators over examples"),
)
_KEEPS = "it keeps something outside of its own attributes, as in a global or in a class: leave that out"


class Mapped:
    """A function of one example, applied to all examples of a batch.

    Args:
        name: of its classes, for messages.
        group: of the config, or groups, which the classes belong to.
        make: returns `function(parameters, buffers, *example)` on a fresh copy of its object. The function returns
            tensors, in lists, tuples or dicts.
        result: returns tensors of the shapes and types that the function returns for an example, without numbers (on
            the meta device, for example), in the same lists, tuples or dicts.
        shared: returns parameters and buffers by name, the same for all examples.
        alone: `make` for the comparison, if the function without `vmap` is another one.

    Attributes:
        rate: examples per second if the examples are computed one after another; else None.
        reason: why they are, or None.
    """

    def __init__(
        self,
        name: str,
        group: str,
        make: Callable[[], Callable[..., Any]],
        result: Callable[..., Any],
        shared: Callable[[], tuple[Any, Any]] = lambda: ({}, {}),
        alone: Callable[[], Callable[..., Any]] | None = None,
    ) -> None:
        self.name = name
        self._place = f"{group} ({name})"
        self._make, self._result, self._shared, self._alone = make, result, shared, alone or make
        self._kinds: Any = None  # shape, type and device of the examples that it is ready for
        self._compared = False
        self.rate: float | None = None
        self.reason: str | None = None

    def ready(self, *examples: Tensor) -> "Mapped":
        """Return the function, ready to be mapped; only the shapes and types of one example are used.

        Raises:
            ConfigError: the function fails on a made-up example, returns something else, or draws from Python's or
                NumPy's generator, which would give all examples of a batch the same numbers.
        """
        kinds = [(tensor.shape[1:], tensor.dtype, tensor.device) for tensor in examples]
        if kinds == self._kinds:
            return self
        shared, made_up = self._shared(), [tensor.new_zeros(2, *tensor.shape[1:]) for tensor in examples]
        self._expected = _kinds(self._result(*(tensor[0] for tensor in made_up)), 0)
        self._compared = False
        self.rate = None
        self.reason = None
        before = _generators()
        with _seeded(examples), torch.no_grad():
            with self._errors_in_words(), _Strides() as strides:
                self._checked(_stacked([self._result_alone(shared, made_up, 0)]))
            try:
                if strides.used:
                    raise RuntimeError("as_strided")
                for randomness in ("different", "same"):
                    self._map(shared, made_up, randomness)
            except Exception as error:
                self.reason = next(cause for parts, cause in _REASONS if any(part in str(error) for part in parts))
                started = time.perf_counter()
                self._result_alone(shared, made_up, 1)
                self.rate = 1 / (time.perf_counter() - started)
        if before != _generators():
            raise self._error("it draws from Python's or NumPy's generator: draw by PyTorch instead")
        self._kinds = kinds
        return self

    def __call__(self, *examples: Tensor) -> Any:
        """Return the function's results for examples [batch, ...], each with [batch] before its shape.

        Raises:
            ConfigError: the function fails, returns other shapes or types than before, or the first batch shows
                that an example's result is not that of the example alone.
        """
        self.ready(*examples)
        shared, count = self._shared(), len(examples[0])
        with self._errors_in_words(), torch.no_grad():
            if not self._compared and count > 1:
                self._compare(shared, examples)
                self._compared = True
            if self.rate is None:
                return self._checked(self._map(shared, examples, "different"))
            return self._checked(_stacked(self._result_alone(shared, examples, index) for index in range(count)))

    def _map(self, shared: tuple[Any, Any], examples: Sequence[Tensor], randomness: str) -> Any:
        return mapped(self._make(), randomness)(*_copies(shared, examples))

    def _result_alone(self, shared: tuple[Any, Any], examples: Sequence[Tensor], index: int) -> Any:
        """Return the result of one example, on a fresh copy and without `vmap`."""
        return self._alone()(*_copies(shared, [tensor[index] for tensor in examples]))

    def _compare(self, shared: tuple[Any, Any], examples: Sequence[Tensor]) -> None:
        """Compare a few examples of a batch with what each gives alone, by the same random numbers."""
        count = len(examples[0])
        chosen = sorted({round(place * (count - 1) / (COMPARED - 1)) for place in range(COMPARED)})

        def agrees(*examples: Tensor) -> bool:
            alone = []
            for index in (*chosen, chosen[0]):  # the first one again, after the other ones
                with _seeded(examples):
                    alone.append(self._result_alone(shared, examples, index))
            expected = _rows(_stacked(alone[:-1]))
            same = _SAME if expected[0].device.type == "cpu" else _SAME_ELSEWHERE
            if _differ(_rows(_stacked([alone[-1], *alone[1:-1]])), expected, same):
                raise self._error(f"its result for an example depends on the examples before: {_KEEPS}")
            if self.rate is not None:
                return True
            with _seeded(examples):
                together = self._map(shared, examples, "same")
            return not _differ(_rows(pytree.tree_map(lambda tensor: tensor[chosen], together)), expected)

        if not agrees_at(agrees, examples):
            raise self._error(
                "in a batch, an example's result is not the result of that example alone: use PyTorch's "
                "operators on the dimensions of one example, and not on its memory"
            )

    def _checked(self, results: Any) -> Any:
        if (returned := _kinds(results, 1)) != self._expected:
            raise self._error(f"for one example it returns shape {returned}, in place of {self._expected}")
        return results

    def _error(self, reason: str) -> ConfigError:
        return ConfigError(f"{self._place}: {reason}")

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        """Turn an error of a user's code within into a ConfigError with its first line, or with what it means."""
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            words = f"it fails on one example: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            raise self._error(_KEEPS if "escaped from inside" in str(error) else words) from error


def mapped_object(group: str, part: Any, call: Callable[..., Any], result: Callable[..., Any]) -> Mapped:
    """Map `call(part, *example)` of a user's object, which is copied for each batch; `result` is as for `Mapped`."""

    def make() -> Callable[..., Any]:
        copied = deepcopy(part)
        return lambda _, __, *example: call(copied, *example)

    return Mapped(type(part).__qualname__, group, make, result)


class IsolatedEngine(MappedEngine):
    """Per-example gradients of any objective, each computed from one example alone.

    Each batch is differentiated on a fresh copy of the objective, so the objective itself never sees an example.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective)
        self._by_change: dict[Within | None, Mapped] = {}

    def gradients(self, inputs: Tensor, targets: Tensor, within: Within | None = None) -> Gradients:
        """See `MappedEngine.gradients`. A gradient that is not of one example alone raises ConfigError."""
        gradients: Gradients = self.mapped(within)(inputs, targets)
        return gradients

    def mapped(self, within: Within | None = None) -> Mapped:
        """Return the gradient of one example, by parameter name, and its loss."""
        if within not in self._by_change:
            objective = self.objective
            gradients = {name: torch.empty_like(p, device="meta") for name, p in objective.named_parameters()}
            loss = next(objective.parameters()).new_empty((), device="meta")
            self._by_change[within] = Mapped(
                _classes_of(objective),
                "architecture or loss",
                lambda: grad_and_value(example_loss(fresh_copy(objective), within)),
                lambda *_: (gradients, loss),
                lambda: shared_tensors(objective),
                lambda: _differentiated(example_loss(fresh_copy(objective), within)),
            )
        return self._by_change[within]


def _classes_of(objective: Objective) -> str:
    classes = {type(module).__qualname__: None for module in objective.modules() if unknown_module(module)}
    return ", ".join(classes) or type(objective.network).__qualname__


def _differentiated(loss: Callable[..., Tensor]) -> Callable[..., Gradients]:
    """Return the gradient of one example's loss, and the loss, by ordinary autograd."""

    def gradient(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], *example: Tensor) -> Gradients:
        leaves = {name: tensor.requires_grad_() for name, tensor in parameters.items()}
        with torch.enable_grad():
            value = loss(leaves, buffers, *example)
        if not value.requires_grad:
            raise ValueError("no weight has a gradient, so training would be noise alone")
        gradients = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        return dict(zip(leaves, gradients, strict=True)), value.detach()

    return gradient


def isolated_prediction(objective: Objective) -> Mapped:
    """Return guess and loss of one example in evaluation mode, at the objective's present weights.

    So the evaluated function is the trained one: no guess depends on the other examples of a batch.
    """

    def predict(objective: Objective, inputs: Tensor, target: Tensor) -> list[Tensor]:
        logits, losses = objective.predict(inputs[None], target[None])
        return [logits[0].argmax(), losses[0]]

    loss = next(objective.parameters()).new_empty((), device="meta")
    return Mapped(
        _classes_of(objective),
        "architecture or loss in evaluation",
        lambda: as_function(fresh_copy(objective).eval(), predict),
        lambda *_: [loss.long(), loss],
        lambda: shared_tensors(objective),
    )


class _Strides(TorchFunctionMode):
    """Notes whether memory is addressed by strides, which vmap keeps within a batch but not within an example."""

    used = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.used = self.used or getattr(function, "__name__", "").startswith("as_strided")
        return function(*args, **kwargs or {})


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


def _kinds(results: Any, start: int) -> Any:
    """Return the shape from the dimension `start` on, and the type, of each tensor, in the same structure."""
    return pytree.tree_map(lambda tensor: f"{tuple(tensor.shape[start:])} of {tensor.dtype}", results)


def _rows(results: Any) -> list[Tensor]:
    """Return the real numbers [batch, numbers] of each part of stacked results, as of gradients and of losses."""
    parts = [pytree.tree_leaves(part) for part in (results if isinstance(results, tuple) else (results,))]
    return [torch.cat([as_rows(t).double() for t in part if t.is_floating_point()], dim=1) for part in parts]


def _differ(results: Sequence[Tensor], expected: Sequence[Tensor], relative: float = _AGREE) -> bool:
    for rows, references in zip(results, expected, strict=True):
        distances = torch.where(references.isfinite(), rows - references, 0).norm(dim=1)
        scale = references.nan_to_num(0.0, 0.0, 0.0).norm(dim=1).max()
        if not distances.max() <= relative * scale + _NOTHING:  # a NaN in the mapped result alone is a difference
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

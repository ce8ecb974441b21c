"""A function of one example, recorded as a graph of PyTorch's operators, so that the function never gets an example.

Python code can store its inputs: in an attribute, in a variable of its file, in the default of an argument. So a
function that a user wrote is not called on data. It is called once on tensors without numbers (`FakeTensor`, with
shape, type and device), and PyTorch records the operators that it applies. This graph then runs on data. It holds
operators and constants and has no memory. It is mapped over the examples of a batch, so no example's result depends on
another example. A function that needs a number, as `if x.sum() > 0` does, cannot be recorded and is refused.
"""

from __future__ import annotations

import copy
import logging
import operator
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._pytree import TreeSpec

from runner.config.origin import is_one_of
from runner.gradients.undisturbed import undisturbed

_NAMESPACES = ("aten::", "prims::")  # others have operators of libraries, which can read beyond an example
_OPERATORS = frozenset(  # before a user's code is imported
    name for name in torch._C._dispatch_get_all_op_names() if name.startswith(_NAMESPACES)
)
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_DRAWN = frozenset(  # random operators that draw equally many numbers for all inputs
    {
        "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "bernoulli", "normal",
        "uniform", "native_dropout", "dropout", "feature_dropout", "alpha_dropout", "exponential",
    }
)  # fmt: skip
_UNFILLED = ("empty", "new_empty")  # prefixes of operators that return uninitialised memory
_RESIZING = frozenset({"resize", "resize_as", "set", "_resize_output"})  # can expose such memory
_BY_ADDRESS = ("segment_reduce", "sparse", "_coo", "_csr", "nested", "jagged")  # in names: not limited to their input
_ASKS = "DataDependent"  # in the names of PyTorch's errors
_CLONE, _FILL = torch.ops.aten.clone.default, torch.ops.aten.fill_.Scalar


class NotMappableError(ValueError):
    """A function of one example cannot be applied to the examples of a batch; the message is the reason."""


def recorded(function: Callable[..., Any], arguments: Sequence[Any], structure: TreeSpec) -> GraphModule:
    """Record a function of tensors of one example, on a copy of it, whose changes to its state are discarded.

    Args:
        function: takes and returns tensors, or lists and dicts of them. It can be copied.
        arguments: tensors, or dicts of them, of the shapes, types and devices of the later ones; their numbers are
            ignored.
        structure: the structure of the lists and dicts that the function returns.

    Returns:
        A module that takes the tensors of the arguments, one after the other, and returns a list of the result's
        tensors. It is newly built from the recording and shares no part with other objects.

    Raises:
        NotMappableError: the function needs a number of a tensor, fails, or draws from Python's or NumPy's generator. A
            graph would repeat those draws in every call.
    """
    before = _state_of_generators()
    leaves, given = pytree.tree_flatten(arguments)

    def flat(*leaves: Tensor) -> list[Any]:
        results, found = pytree.tree_flatten(function(*pytree.tree_unflatten(leaves, given)))
        if found != structure:
            raise ValueError("it returns other lists or dicts than it should")
        return results

    try:
        function = copy.deepcopy(function)
        with _plain_operators():
            graph = _rebuilt(make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)(*leaves))
    except NotMappableError:
        raise
    except Exception as error:  # any error of a user's code
        raise NotMappableError(in_words(error)) from error
    if before != _state_of_generators():
        raise NotMappableError("it draws from Python's or NumPy's generator: draw by PyTorch instead")
    return graph


def in_words(error: Exception) -> str:
    """Return the first line of an error of a user's code, or a way around for code that needs an example's numbers."""
    if _ASKS in type(error).__name__:
        return "its code asks for an example's numbers, as `if x.sum() > 0` does: use `torch.where` instead"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


@undisturbed()
def _rebuilt(found: GraphModule) -> GraphModule:
    """Build a graph of the same operators on the same constants.

    Accepted are PyTorch's operators, plain numbers and plain constants. Other values could run a user's code on data.
    Constants are copied in every call, and uninitialised memory is zeroed. Otherwise an operator that changes a
    constant in place, or reads memory before writing it, could pass data from one example to another.

    Raises:
        NotMappableError: the graph has any other value.
    """
    graph, holder, new = Graph(), nn.Module(), dict[Node, Node]()
    for node in found.graph.nodes:
        if node.op == "placeholder":
            new[node] = graph.placeholder(f"given_{len(new)}")
        elif node.op == "get_attr":
            constant = getattr(found, str(node.target))
            if not is_one_of(type(constant), Tensor, nn.Parameter):
                raise NotMappableError(f"it holds a {type(constant).__qualname__}")
            holder.register_buffer(name := f"constant_{len(new)}", constant.detach().clone())
            new[node] = graph.call_function(_CLONE, (graph.get_attr(name),))
        elif node.op == "call_function":
            arguments, named = _plain(node.args, new), _plain(node.kwargs, new)
            called = _operator(node.target)
            new[node] = graph.call_function(called, arguments, named)
            if isinstance(called, OpOverload) and called.overloadpacket.__name__.startswith(_UNFILLED):
                new[node] = graph.call_function(_FILL, (new[node], 0))
        elif node.op == "output":
            graph.output(_plain(node.args[0], new))
        else:
            raise NotMappableError(f"it has a part of the kind {node.op}")
    return GraphModule(holder, graph)


def _operator(target: Any) -> Callable[..., Any]:
    """Return the operator that replaces a recorded one, as PyTorch registers it.

    Raises:
        NotMappableError: it is no operator, draws a number of random numbers that depends on data, exposes
            uninitialised memory, or can read or write beyond an example.
    """
    called: Callable[..., Any] = target
    if target is operator.getitem:
        return called
    if type(target) is not OpOverload or target.name() not in _OPERATORS or not _is_there(target):
        raise NotMappableError(f"it applies {target}, which is no operator of PyTorch's own")
    name = target.overloadpacket.__name__.rstrip("_")
    if torch.Tag.nondeterministic_seeded in target.tags and name not in _DRAWN:
        raise NotMappableError(f"it applies {target}, which draws more random numbers for some numbers")
    if name in _RESIZING:
        raise NotMappableError(f"it applies {target}, which leaves memory as it was found")
    if any(part in name for part in _BY_ADDRESS):
        raise NotMappableError(f"it applies {target}, which can read or write memory beyond one example")
    if target is torch.ops.aten.view.default:  # recorded with one example's strides, which differ in a batch
        called = torch.ops.aten.reshape.default
    return called


def _is_there(target: OpOverload) -> bool:
    """Return True if an operator is the one that PyTorch has under its name, and not an object that claims so."""
    namespace, _, name = target.name().partition("::")
    packet, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default") is target


def _plain(value: Any, new: Mapping[Node, Node]) -> Any:
    """Return an operator's arguments, with the new nodes in place of the recorded ones.

    Raises:
        NotMappableError: one is neither a node nor a plain value.
    """
    kind = type(value)
    if is_one_of(kind, list, immutable_list, tuple):
        return (tuple if kind is tuple else list)(_plain(each, new) for each in value)
    if is_one_of(kind, dict, immutable_dict):
        return {_plain(key, new): _plain(each, new) for key, each in value.items()}
    if kind is slice:
        return slice(*(_plain(each, new) for each in (value.start, value.stop, value.step)))
    if kind is Node and value in new:
        return new[value]
    if not is_one_of(kind, *_PLAIN):
        raise NotMappableError(f"it hands a {kind.__qualname__} to an operator")
    return value


def _state_of_generators() -> str:
    """Return the state of Python's and NumPy's generators, which a graph does not record."""
    return f"{random.getstate()} {numpy.random.get_state(legacy=False)}"


@contextmanager
def _plain_operators() -> Iterator[None]:
    """Build attention and recurrent layers from simple operators, as the fused ones have no rule for `vmap`.

    PyTorch's log of an operator that fails is off, as its error is told in a sentence.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    with (
        _disabled(log),
        warnings.catch_warnings(action="ignore"),
        sdpa_kernel(SDPBackend.MATH),
        torch.backends.mkldnn.flags(enabled=False),
        torch.backends.cudnn.flags(enabled=False),
    ):
        yield


@contextmanager
def _disabled(log: logging.Logger) -> Iterator[None]:
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before

"""A function of one example, recorded as a graph of PyTorch's operators: the function itself never sees an example.

Python code can keep what it sees: in an attribute, in a variable of its file, in the default of an argument. So a
function that a user wrote is not called on data at all. It is called once on tensors without numbers (`FakeTensor`:
shape, type and device), and PyTorch notes which operators it applies. What runs on data afterwards is this graph. It
holds operators and constants, has no memory, and is mapped over the examples of a batch, so that no example's result
depends on another example. What cannot be recorded asks for a number while there is none, as `if x.sum() > 0` does.
"""

from __future__ import annotations

import copy
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

from runner.gradients.undisturbed import undisturbed

_OPERATORS = frozenset(torch._C._dispatch_get_all_op_names())  # PyTorch's, before a user's code is imported
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_DRAWN = frozenset(  # random operators that draw as many numbers whatever their inputs are
    {
        "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "bernoulli", "normal",
        "uniform", "native_dropout", "dropout", "feature_dropout", "alpha_dropout", "exponential",
    }
)  # fmt: skip
_UNFILLED = ("empty", "new_empty")  # how operators begin that return memory as they found it
_RESIZING = frozenset({"resize", "resize_as", "resize_as_sparse", "set", "_resize_output"})  # a tensor, likewise
_CLONE, _FILL = torch.ops.aten.clone.default, torch.ops.aten.fill_.Scalar


class RecordingError(Exception):
    """Raised where a function cannot be recorded; the message is the reason."""


def recorded(function: Callable[..., Any], arguments: Sequence[Any], structure: TreeSpec) -> GraphModule:
    """Record a function of tensors of one example, on a copy of it: what it writes into its own parts is discarded.

    Args:
        function: takes and returns tensors, or lists and dicts of them. It can be copied.
        arguments: tensors, or dicts of them, of the shapes, types and devices of the later ones; their numbers are not
            looked at.
        structure: of the lists and dicts that the function returns.

    Returns:
        A module that takes the tensors of the arguments, one after the other, and returns a list of those of the
        result. It is made here of what was recorded, and nobody else holds a part of it.

    Raises:
        RecordingError: the function asks for a number of a tensor, fails, or draws from Python's or NumPy's generator,
            whose numbers would be the same in every call of the graph.
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
    except RecordingError:
        raise
    except Exception as error:  # whatever a user's code raises
        raise RecordingError(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    if before != _state_of_generators():
        raise RecordingError("it draws from Python's or NumPy's generator: draw by PyTorch instead")
    return graph


@undisturbed()
def _rebuilt(found: GraphModule) -> GraphModule:
    """A graph of the same operators on the same constants.

    Accepted are PyTorch's own operators, plain numbers and plain constants: anything else could run code of the user's
    on data. Constants are copied in every call, and memory is zero where it would not be filled: else an operator that
    changes one in place, or one that reads what nobody wrote, could tell one example of another.

    Raises:
        RecordingError: for anything else.
    """
    graph, holder, new = Graph(), nn.Module(), dict[Node, Node]()
    for node in found.graph.nodes:
        if node.op == "placeholder":
            new[node] = graph.placeholder(f"given_{len(new)}")
        elif node.op == "get_attr":
            constant = getattr(found, str(node.target))
            if type(constant) not in (Tensor, nn.Parameter):
                raise RecordingError(f"it holds a {type(constant).__qualname__}")
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
            raise RecordingError(f"it has a part of the kind {node.op}")
    return GraphModule(holder, graph)


def _operator(target: Any) -> Callable[..., Any]:
    """The operator that is called for a recorded one: PyTorch's own, looked up there.

    Raises:
        RecordingError: it is none, draws more random numbers for some numbers, or has memory that nobody filled.
    """
    called: Callable[..., Any] = target
    if target is operator.getitem:
        return called
    if type(target) is not OpOverload or target.name() not in _OPERATORS or not _is_there(target):
        raise RecordingError(f"it applies {target}, which is no operator of PyTorch's own")
    name = target.overloadpacket.__name__.rstrip("_")
    if torch.Tag.nondeterministic_seeded in target.tags and name not in _DRAWN:
        raise RecordingError(f"it applies {target}, which draws more random numbers for some numbers")
    if name in _RESIZING:
        raise RecordingError(f"it applies {target}, which leaves memory as it was found")
    if target is torch.ops.aten.view.default:  # whose strides are those of one example alone, not of one in a batch
        called = torch.ops.aten.reshape.default
    return called


def _is_there(target: OpOverload) -> bool:
    """Whether an operator is the one that PyTorch has by its name, and not an object of its class that says so."""
    namespace, _, name = target.name().partition("::")
    packet, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default") is target


def _plain(value: Any, new: Mapping[Node, Node]) -> Any:
    """Arguments of an operator with the new nodes for the recorded ones.

    Raises:
        RecordingError: one is neither a node nor a plain value.
    """
    kind = type(value)
    if kind in (list, immutable_list, tuple):
        return (tuple if kind is tuple else list)(_plain(each, new) for each in value)
    if kind in (dict, immutable_dict):
        return {_plain(key, new): _plain(each, new) for key, each in value.items()}
    if kind is slice:
        return slice(*(_plain(each, new) for each in (value.start, value.stop, value.step)))
    if kind is Node and value in new:
        return new[value]
    if kind not in _PLAIN:
        raise RecordingError(f"it hands a {kind.__qualname__} to an operator")
    return value


def _state_of_generators() -> str:
    """Python's and NumPy's, of which a graph knows nothing."""
    return f"{random.getstate()} {numpy.random.get_state(legacy=False)}"


@contextmanager
def _plain_operators() -> Iterator[None]:
    """Have attention and recurrent layers consist of simple operators: the fused ones have no rule for `vmap`."""
    with (
        warnings.catch_warnings(action="ignore"),
        sdpa_kernel(SDPBackend.MATH),
        torch.backends.mkldnn.flags(enabled=False),
        torch.backends.cudnn.flags(enabled=False),
    ):
        yield

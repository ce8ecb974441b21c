"""A function of one example, recorded as a graph of PyTorch's operators: the function itself never sees an example.

Python code can keep what it sees: in an attribute, in a variable of its file, in the default of an argument. So a
function that a user wrote is not called on data at all. It is called once on tensors without numbers (`FakeTensor`:
shape, type and device), and PyTorch notes which operators it applies. What runs on data afterwards is this graph. It
holds operators and constants, has no memory, and is mapped over the examples of a batch, so that no example's result
depends on another example. What cannot be recorded asks for a number while there is none, as `if x.sum() > 0` does.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

_OPERATORS = frozenset(torch._C._dispatch_get_all_op_names())  # PyTorch's, before a user's code is imported
_MODULES = ("_operator", "math", "torch")  # of arithmetic on sizes and numbers
_DRAWN = frozenset(  # random operators that draw as many numbers whatever their inputs are
    {
        "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "bernoulli", "normal",
        "uniform", "native_dropout", "dropout", "feature_dropout", "alpha_dropout", "exponential",
    }
)  # fmt: skip
_VIEW, _RESHAPE = torch.ops.aten.view.default, torch.ops.aten.reshape.default


class RecordingError(Exception):
    """Raised where a function cannot be recorded; the message is the reason."""


def recorded(function: Callable[..., Any], *arguments: Any) -> GraphModule:
    """Record a function of tensors of one example, on a copy of it: what it writes into its own parts is discarded.

    Args:
        function: takes and returns tensors, or lists and dicts of them. It can be copied.
        arguments: tensors, or dicts of them, of the shapes, types and devices of the later ones; their numbers are not
            looked at.

    Raises:
        RecordingError: the function asks for a number of a tensor, fails, or draws from Python's or NumPy's generator,
            whose numbers would be the same in every call of the graph.
    """
    before = _state_of_generators()
    try:
        function = copy.deepcopy(function)
        with _plain_operators():
            graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*arguments)
    except Exception as error:  # whatever a user's code raises
        raise RecordingError(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    if before != _state_of_generators():
        raise RecordingError("it draws from Python's or NumPy's generator: draw by PyTorch instead")
    for node in list(graph.graph.nodes):
        _check(node, graph)
        if node.target is _VIEW:  # whose strides are those of one example alone, not of one in a batch
            node.target = _RESHAPE
        if node.op == "get_attr":
            _give_a_copy(node, graph)
    graph.recompile()
    return graph


def _give_a_copy(constant: Node, graph: GraphModule) -> None:
    """Have every call read a fresh copy of a constant: an operator that changes it in place changes nothing else."""
    with graph.graph.inserting_after(constant):
        copied = graph.graph.call_function(torch.ops.aten.clone.default, (constant,))
    constant.replace_all_uses_with(copied, lambda user: user is not copied)


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


def _check(node: Node, graph: GraphModule) -> None:
    """Accept PyTorch's own operators and plain constants. Anything else could run code of the user's on data.

    Raises:
        RecordingError: for an operator that was registered from outside, or a constant of a subclass of `Tensor`.
    """
    if isinstance(node.target, OpOverload):
        if node.target.name() not in _OPERATORS:
            raise RecordingError(f"it applies {node.target}, which is no operator of PyTorch's own")
        drawn = torch.Tag.nondeterministic_seeded in node.target.tags
        if drawn and node.target.overloadpacket.__name__.rstrip("_") not in _DRAWN:
            raise RecordingError(f"it applies {node.target}, which draws more random numbers for some numbers")
    elif node.op == "call_function":
        if getattr(node.target, "__module__", None) not in _MODULES:
            raise RecordingError(f"it applies {node.target}, which is no operator of PyTorch's own")
    elif node.op == "get_attr":
        constant = getattr(graph, str(node.target))
        if type(constant) not in (Tensor, nn.Parameter):
            raise RecordingError(f"it holds a {type(constant).__qualname__}")
    elif node.op not in ("placeholder", "output"):
        raise RecordingError(f"it has a part of the kind {node.op}")

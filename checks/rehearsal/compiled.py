"""The kernels of a compiled step, and the bytes that they read and write, as PyTorch's compiler plans them.

The plan is the one for this machine's processor, as there is no GPU. Each kernel or library call reads its inputs once
and writes its outputs once. The planned code is not made: the graph is called operation by operation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import detect_fake_mode
from torch._inductor.compile_fx import compile_fx
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V


@dataclass(frozen=True)
class Plan:
    """The number of kernels and library calls, and the bytes moved."""

    kernels: int
    bytes: int


class PlannedError(Exception):
    """Ends a compilation whose plan is known."""


def planning(plans: list[Plan], *, only: bool = False) -> Callable[[Any, Sequence[Tensor]], Any]:
    """Return a backend of `torch.compile` that adds the plan of every graph to `plans`.

    Raises:
        PlannedError: inside a compilation, if the plan is `only` made and no graph is to be called.
    """

    def plan(module: torch.fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Any:
        fake = detect_fake_mode(inputs)
        graph = GraphLowering(module, shape_env=fake.shape_env if fake else None)
        with V.set_graph_handler(graph), V.set_debug_handler(DebugContext()):
            graph.run(*inputs)
            graph.init_wrapper_code()
            graph._update_scheduler()
            plans.append(Plan(len(graph.scheduler.nodes), graph.count_bytes()[0]))
        if only:
            raise PlannedError
        return make_boxed_func(module.forward)

    return lambda module, inputs: compile_fx(module, list(inputs), inner_compile=plan)

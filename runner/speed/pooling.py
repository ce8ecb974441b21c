"""Max-pooling before the activation instead of after it: the same function, on fewer elements.

phi(max x) = max phi(x) for every non-decreasing phi, and the gradient reaches the same input: where phi is strictly
increasing, the largest x is the largest phi(x), and of equal x both orders choose the first. Where phi is flat (ReLU
below zero, tanh rounded to one) its derivative is zero, wherever it goes. Two inputs that differ and round to the
same phi(x) are told apart in this order only, as they are in exact arithmetic.

Only in chains: the objective's network, where it is an `nn.Sequential`, and every `nn.Sequential` directly in one.
What any other module does with its parts is not known.

Activations that work in place are made not to, everywhere: the engine needs the layers' outputs as they were.

Cost: phi and its derivative on the pooled elements, a quarter of them for 2 x 2 pooling.
"""

from __future__ import annotations

import copy

from torch import nn

from runner.networks.activations import is_monotone
from runner.networks.objective import Objective


def pool_first(module: nn.Module, *, chain: bool = True) -> nn.Module:
    """Return a network or an objective with activation and max-pooling exchanged in its chains.

    Modules with other children are copied. Layers, their parameters and their buffers are shared.
    """
    if getattr(module, "inplace", False):
        module = copy.copy(module)
        module.inplace = False  # type: ignore[assignment]
    chain = chain and (type(module) is nn.Sequential or isinstance(module, Objective))
    # Not named_children(), which leaves out a module that is there before.
    parts = {name: part and pool_first(part, chain=chain) for name, part in module._modules.items()}
    if chain and type(module) is nn.Sequential:
        parts = _exchanged(parts)
    return with_parts(module, parts)


def with_parts(module: nn.Module, parts: dict[str, nn.Module | None]) -> nn.Module:
    """Return a module with other children, in their order. It is a copy if a child differs, and shares the rest."""
    before = module._modules.items()
    if all(one is other for pair in zip(parts.items(), before, strict=True) for one, other in zip(*pair, strict=True)):
        return module
    copied = copy.copy(module)
    copied._modules = parts
    return copied


def _exchanged(parts: dict[str, nn.Module | None]) -> dict[str, nn.Module | None]:
    order = list(parts.items())
    for i in range(len(order) - 1):
        if is_monotone(order[i][1]) and type(order[i + 1][1]) is nn.MaxPool2d:
            order[i], order[i + 1] = order[i + 1], order[i]
    return dict(order)

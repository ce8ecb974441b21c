"""A network in the same function and the same gradients, in less time: what is done to it before any pass.

Layers that have a kernel get it, and max-pooling comes before the activation instead of after it, on fewer elements.
phi(max x) = max phi(x) for every non-decreasing phi, and the gradient reaches the same input: where phi is strictly
increasing, the largest x is the largest phi(x), and of equal x both orders choose the first. Where phi is flat (ReLU
below zero, tanh rounded to one) its derivative is zero, wherever it goes. Two inputs that differ and round to the
same phi(x) are told apart in this order only, as they are in exact arithmetic.

Only in chains: the objective's network, where it is an `nn.Sequential`, and every `nn.Sequential` directly in one.
What any other module does with its parts is not known. Activations that work in place are made not to, everywhere: the
engine needs the layers' outputs as they were.
"""

from __future__ import annotations

import copy

from torch import nn

from runner.networks.activations import is_monotone
from runner.networks.lipschitz.layers import GlobalL2Pool, GroupSort2, L2Pool2d
from runner.networks.objective import Objective
from runner.speed.compiled import FastGlobalL2Pool, FastGroupNorm, FastGroupSort, FastL2Pool, FastMaxPool, FastTanh
from runner.speed.convolution import FastConvolution


def faster(module: nn.Module) -> nn.Module:
    """Return a network or objective with its fastest layers, and with pooling before activations.

    Layers, parameters and buffers are shared.
    """
    return _replaced(pool_first(module), {})


def _replaced(module: nn.Module, convolutions: dict[nn.Module, nn.Module]) -> nn.Module:
    """Replace layers. `convolutions` maps each to its fast one, so that one which is called twice stays one layer."""
    if type(module) is nn.Tanh:
        return FastTanh()
    if type(module) is GroupSort2:
        return FastGroupSort()
    if type(module) is L2Pool2d:
        return FastL2Pool(module.kernel_size)
    if type(module) is GlobalL2Pool:
        return FastGlobalL2Pool()
    if type(module) is nn.GroupNorm and not module.affine:
        return FastGroupNorm(module.num_groups, module.num_channels, module.eps, affine=False)
    if type(module) is nn.MaxPool2d and FastMaxPool.takes(module):
        return FastMaxPool(module.kernel_size, module.stride)
    if isinstance(module, nn.Conv2d) and FastConvolution.takes(module):
        return convolutions.setdefault(module, FastConvolution.of(module))
    return replace_parts(
        module, {name: part and _replaced(part, convolutions) for name, part in module._modules.items()}
    )


def pool_first(module: nn.Module, *, chain: bool = True) -> nn.Module:
    """Return a network or an objective with activation and max-pooling exchanged in its chains.

    Modules with other children are copied. Layers, their parameters and their buffers are shared.
    """
    if getattr(module, "inplace", False):
        module = copy.copy(module)
        module.inplace = False  # type: ignore[assignment]
    chain = chain and (type(module) is nn.Sequential or isinstance(module, Objective))
    # Not named_children(), which leaves out a module that is there before.
    parts = [(name, part and pool_first(part, chain=chain)) for name, part in module._modules.items()]
    if chain and type(module) is nn.Sequential:
        for i in range(len(parts) - 1):
            if is_monotone(parts[i][1]) and type(parts[i + 1][1]) is nn.MaxPool2d:
                parts[i], parts[i + 1] = parts[i + 1], parts[i]
    return replace_parts(module, dict(parts))


def replace_parts(module: nn.Module, parts: dict[str, nn.Module | None]) -> nn.Module:
    """Return a module with other children, in their order. It is a copy if a child differs, and shares the rest."""
    before = module._modules.items()
    if all(one is other for pair in zip(parts.items(), before, strict=True) for one, other in zip(*pair, strict=True)):
        return module
    copied = copy.copy(module)
    copied._modules = parts
    return copied

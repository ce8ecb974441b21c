"""A network in the same function and the same gradients, in less time, and how many examples it gets at a time.

Layers that have a kernel get it, and max-pooling comes before the activation instead of after it, on fewer elements.
phi(max x) = max phi(x) for every non-decreasing phi, and the gradient reaches the same input: where phi is strictly
increasing, the largest x is the largest phi(x), and of equal x both orders choose the first. Where phi is flat (ReLU
below zero, tanh rounded to one) its derivative is zero, wherever it goes. Two inputs that differ and round to the
same phi(x) are told apart in this order only, as they are in exact arithmetic.

Only in chains: the objective's network, where it is an `nn.Sequential`, and every `nn.Sequential` directly in one.
What any other module does with its parts is not known. Activations that work in place are made not to, everywhere: the
engine needs the layers' outputs as they were.
"""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from runner.config import defined_in
from runner.networks.activations import is_monotone
from runner.networks.geometry import Geometry, pair
from runner.networks.objective import Objective, hooked
from runner.speed.compiled import FastGroupNorm, FastMaxPool, FastTanh
from runner.speed.convolution import fast_convolution


def faster(module: nn.Module) -> nn.Module:
    """Return a network or objective with its fastest layers, and with pooling before activations.

    Layers, parameters, buffers and forward hooks are shared, also later ones.
    """
    return _replaced(pool_first(module), {})


def _replaced(module: nn.Module, fast: dict[nn.Module, nn.Module]) -> nn.Module:
    """Replace layers. `fast` maps each to its fast one, so that one which is called twice stays one layer."""
    kind = _fast_kind(module)
    if kind is None:
        parts = {name: part if part is None else _replaced(part, fast) for name, part in module._modules.items()}
        return replace_parts(module, parts)
    if module not in fast:
        fast[module] = kind.__new__(kind)
        fast[module].__dict__.update(module.__dict__)
    return fast[module]


def _fast_kind(module: nn.Module) -> type[nn.Module] | None:
    if type(module) is nn.Tanh:
        return FastTanh
    if type(module) is nn.GroupNorm and not module.affine:
        return FastGroupNorm
    if type(module) is nn.MaxPool2d:
        plain = pair(module.padding) == (0, 0) and pair(module.dilation) == (1, 1)
        return FastMaxPool if plain and not (module.ceil_mode or module.return_indices) else None
    if isinstance(module, nn.Conv2d):
        return fast_convolution(module)
    if defined_in(type(module), "runner.networks.lipschitz"):  # few networks have such layers
        from runner.speed.lipschitz import FAST

        return FAST.get(type(module))
    return None


def pool_first(module: nn.Module, *, chain: bool = True) -> nn.Module:
    """Return a network or an objective with activation and max-pooling exchanged in its chains.

    Modules with other children are copied. Layers, their parameters and their buffers are shared.
    """
    if getattr(module, "inplace", False):
        module = copy.copy(module)
        module.inplace = False  # type: ignore[assignment]
    chain = chain and (type(module) is nn.Sequential or isinstance(module, Objective))
    # Not named_children(), which leaves out a module that is there before.
    parts = [(name, part if part is None else pool_first(part, chain=chain)) for name, part in module._modules.items()]
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


_LARGEST = {"cpu": 8 << 20, "cuda": 1 << 30}  # bytes of the largest output of a slice
_FORMED = {"cpu": 192 << 20, "cuda": 4 << 30}  # bytes of all gradients formed for a slice


def examples_per_slice(shapes: Sequence[Geometry], batch: int, inputs: Tensor) -> int:
    """Return the number of examples that pass through the network at a time, in slices as equal as can be.

    Contributions are sums over examples, so a batch may be cut anywhere. In a small slice, a layer's output and the
    gradients stay in the processor's cache. Then elementwise layers and weighted sums do not wait for memory, and the
    peak memory does not grow with the batch. The cost is one set of calls per slice. Below 3 MiB of a layer's output it
    counts (9 to 22% more time at 1.5 MiB, with AVX2 as with AVX-512). With a cache of 32 MiB, 8 MiB take 8% less time
    than 3 MiB, 2% less than 6 MiB, and 2 to 5% more than 16 MiB.
    """
    if not shapes:
        return batch
    size, device = inputs.element_size(), inputs.device.type
    output = size * max(shape.positions * shape.channels_out for shape in shapes)
    formed = size * sum(shape.weights for shape in shapes if shape.positions > 1)
    most = max(1, min(_LARGEST.get(device, 1 << 30) // output, _FORMED.get(device, 1 << 30) // max(1, formed)))
    return math.ceil(batch / math.ceil(batch / most))


def examples_in_cache(network: nn.Module, shape: Sequence[int]) -> int:
    """Examples in a slice of an ordinary forward and backward pass: `network` is tried on one of this shape."""
    weights = next(network.parameters())
    example = torch.zeros(1, *shape, dtype=weights.dtype, device=weights.device)
    largest = [example.numel()]

    def note(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            largest.append(output.numel())

    cuda = [example.device] if example.device.type == "cuda" else []
    with hooked(dict(network.named_modules()), note), torch.random.fork_rng(devices=cuda), torch.no_grad():
        network(example)
    return max(1, _LARGEST.get(example.device.type, 1 << 30) // (example.element_size() * max(largest)))

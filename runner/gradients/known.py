"""Objectives that the engines on whole batches accept: they consist of known modules only.

The one-pass engine and graphs run the forward pass of a whole batch, so they depend on its modules. They accept modules
of exactly the types listed here, which are known to keep the examples of a batch apart. All others go to the isolated
engine (`runner.gradients.isolated`), which gives a module only one example.

A module is known if all of this holds:

- Its type is exactly one of `KNOWN`, or a class that this package defines in `runner.networks` or `runner.mechanism`.
  (A subclass may compute anything, and so may a class that PyTorch makes of a parametrised one.)
- It has no hook, and neither have its parameters.
- No attribute of the instance hides a method of its class, and names and attributes are plain values.
- Its parameters and buffers are plain tensors without attributes: a subclass of `Tensor` could read every operation.

So a known module contains no user's code, and copying it calls none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from runner.config.origin import defined_in, is_one_of
from runner.networks.objective import Objective

KNOWN: frozenset[type[nn.Module]] = frozenset(
    {
        # Containers, layers with parameters, and modules that only change the shape.
        nn.Sequential, nn.Linear, nn.Conv2d, nn.Flatten, nn.Identity,
        # Elementwise.
        nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid,
        nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink, nn.Hardtanh,
        nn.Hardsigmoid, nn.Hardswish, nn.Threshold, nn.Dropout,
        # Over the pixels or the channels of one image.
        nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.GroupNorm,
        # One loss per example.
        nn.CrossEntropyLoss,
    }
)  # fmt: skip
_PACKAGES = ("runner.networks", "runner.mechanism")
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)
_OF_EVERY_MODULE = vars(nn.Module())
_BY_NAME = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
_OF_OBJECTIVES = frozenset({"inputs", "constraint", "epoch"})  # not read by forward passes


def unknown(objective: Objective) -> str | None:
    """Return the reason why an objective does not consist of known modules, or None if it does."""
    return _unknown_within(objective, "", set())


def _unknown_within(module: nn.Module, name: str, seen: set[int]) -> str | None:
    """Look into a module only once it is known: the methods of another one, `named_modules` too, may be the user's."""
    if id(module) in seen:
        return None
    seen.add(id(module))
    if reason := _unknown(module):
        return f"{name or 'the objective'}: {reason}"
    children = ((f"{name}.{key}".lstrip("."), each) for key, each in module._modules.items() if each is not None)
    return next(filter(None, (_unknown_within(each, key, seen) for key, each in children)), None)


def is_known(module: nn.Module) -> bool:
    """Return True if one module, without the modules inside it, is known."""
    return _unknown(module) is None


def _unknown(module: nn.Module) -> str | None:
    kind = type(module)
    if not is_one_of(kind, *KNOWN) and not defined_in(kind, *_PACKAGES):
        return f"{kind.__qualname__} is not a module that is known to keep examples apart"
    if isinstance(module, nn.Flatten) and module.start_dim < 1:
        return "this Flatten joins the examples"
    for name, value in vars(module).items():
        if type(name) is not str:
            return f"the name of an attribute is a {type(name).__qualname__}"
        if name in _OF_EVERY_MODULE:
            if reason := _not_plain(name, value):
                return reason
            continue
        if kind is Objective and name in _OF_OBJECTIVES:
            continue
        if not _is_plain(value):
            return f"its attribute {name!r} is a {type(value).__qualname__}"
    for held, plain in ((module._parameters, nn.Parameter), (module._buffers, Tensor)):
        for name, tensor in held.items():
            if tensor is None:
                continue
            if type(tensor) is not plain:
                return f"its {name} is a {type(tensor).__qualname__}"
            if vars(tensor) or tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
                return f"a hook or an attribute is on its {name}"
    return None


def _not_plain(name: str, value: Any) -> str | None:
    """Return the reason why an attribute that every module has is not plain, or None if it is."""
    if not is_one_of(type(value), type(_OF_EVERY_MODULE[name]), bool):
        return f"its {name} is a {type(value).__qualname__}"
    if name in _BY_NAME:
        return f"a name in its {name} is no plain text" if any(type(key) is not str for key in value) else None
    return f"its {name} has an entry" if value and type(value) is not bool else None


def _is_plain(value: object) -> bool:
    """Return True if reading a value runs no code: numbers, texts, and tuples and lists of them."""
    kind = type(value)
    if is_one_of(kind, tuple, list):
        return all(map(_is_plain, value))  # type: ignore[call-overload]
    return is_one_of(kind, *_PLAIN)

"""Objectives that the engines on whole batches accept: they consist of known modules only.

The one-pass engine and graphs run the forward pass of a whole batch, so they depend on its modules. They accept modules
of exactly the types listed here, which are known to keep the examples of a batch apart. All others are a user's, and
`runner.trust` gives them one example at a time.

A module is known if its type is one of `KNOWN`, or a class that this package defines in `runner.networks` or
`runner.mechanism`. (A subclass may compute anything, and so may a class that PyTorch makes of a parametrised one.) It
has no method of its own in place of its class's, and no hook, and neither have its parameters.
"""

from __future__ import annotations

from torch import nn

from runner.config.origin import defined_in
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
_HOOKS = tuple(name for name in vars(nn.Module()) if name.endswith("_hooks"))


def unknown(objective: Objective) -> str | None:
    """Return the reason why an objective does not consist of known modules, or None if it does."""
    named = ((name or "the objective", _unknown(module)) for name, module in objective.named_modules())
    return next((f"{name}: {reason}" for name, reason in named if reason), None)


def is_known(module: nn.Module) -> bool:
    """Return True if one module, without the modules inside it, is known."""
    return _unknown(module) is None


def _unknown(module: nn.Module) -> str | None:
    kind = type(module)
    if kind not in KNOWN and not defined_in(kind, *_PACKAGES):
        return f"{kind.__qualname__} is not a module that is known to keep examples apart"
    if isinstance(module, nn.Flatten) and module.start_dim < 1:
        return "this Flatten joins the examples"
    if "forward" in vars(module):
        return "it has a forward of its own"
    if any(getattr(module, name) for name in _HOOKS):
        return "a hook is on it"
    parameters = module.named_parameters(recurse=False)
    hooked = (name for name, p in parameters if p._backward_hooks or p._post_accumulate_grad_hooks)
    return next((f"a hook is on its {name}" for name in hooked), None)

"""The updates of SGD and Adam as pure functions, for steps call by call and for graphs.

The equations and the order of their operations equal torch.optim's, so on a CPU every digit is the same. A graph reads
the learning rate from the device, because it changes. Any other optimizer, and any other setting, stays torch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

Number: TypeAlias = float | Tensor  # a Python number, or one without dimensions on the device


@dataclass(frozen=True)
class Sgd:
    """v <- momentum v + gradient; w <- w - lr v."""

    momentum: float

    settings: ClassVar[tuple[str, ...]] = ("momentum",)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its buffers in the state of torch's optimizer."""
        return ("momentum_buffer",) if self.momentum else ()

    def begun(self, weights: Tensor, steps: Number = 0.0) -> list[Any]:
        """Return the buffers before the first step."""
        return [torch.zeros_like(weights) for _ in self.names]

    def __call__(
        self, weights: Tensor, gradient: Tensor, buffers: Sequence[Any], lr: Number
    ) -> tuple[Tensor, list[Any]]:
        """Return the next weights and buffers."""
        velocity = self.momentum * buffers[0] + gradient if buffers else gradient
        if isinstance(lr, Tensor):
            weights = torch.addcmul(weights, velocity, lr.to(weights.dtype), value=-1)
        else:
            weights = torch.add(weights, velocity, alpha=-lr)
        return weights, [velocity for _ in buffers]


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba (2015), algorithm 1, without weight decay. Bias corrections are computed in float64."""

    betas: tuple[float, float]
    eps: float

    settings: ClassVar[tuple[str, ...]] = ("betas", "eps")
    names: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq", "step")

    def begun(self, weights: Tensor, steps: Number = 0.0) -> list[Any]:
        """Return the buffers before the first step: two moments, and the number of `steps`, which is zero."""
        return [torch.zeros_like(weights), torch.zeros_like(weights), steps]

    def __call__(
        self, weights: Tensor, gradient: Tensor, buffers: Sequence[Any], lr: Number
    ) -> tuple[Tensor, list[Any]]:
        """Return the next weights and buffers."""
        (beta1, beta2), (first, second, steps) = self.betas, buffers
        # torch.optim makes a tensor of a number that it loads.
        steps = (steps if isinstance(lr, Tensor) else float(steps)) + 1
        first = torch.lerp(first, gradient, 1 - beta1)
        second = torch.addcmul(second * beta2, gradient, gradient, value=1 - beta2)
        size, root = lr / (1 - beta1**steps), (1 - beta2**steps) ** 0.5
        if isinstance(size, Tensor):
            kind = weights.dtype
            weights = torch.addcdiv(weights, first * -size.to(kind), second.sqrt() / root.to(kind) + self.eps)
        else:
            weights = torch.addcdiv(weights, first, second.sqrt() / root + self.eps, value=-size)
        return weights, [first, second, steps]


Update: TypeAlias = Sgd | Adam
_UPDATES: dict[type, type[Sgd] | type[Adam]] = {torch.optim.SGD: Sgd, torch.optim.Adam: Adam}
_RATES = ("params", "lr", "initial_lr")


def unsupported(optimizer: torch.optim.Optimizer) -> str | None:
    """Return the reason why an optimizer's update is only its own, or None if `update_of` has it."""
    kind = type(optimizer)
    if kind not in _UPDATES:
        return f"the optimizer {kind.__name__} is not supported"
    if len(optimizer.param_groups) > 1:
        return "the optimizer has several groups of parameters"
    usual = kind([torch.zeros(1)]).param_groups[0]  # type: ignore[call-arg]
    for name, value in optimizer.param_groups[0].items():
        if name not in (*_RATES, *_UPDATES[kind].settings) and value != usual.get(name):
            return f"the optimizer's setting {name} is not supported"
    return None


def update_of(optimizer: torch.optim.Optimizer) -> Update:
    """Return the update of an optimizer that is supported, with its settings."""
    kind, group = _UPDATES[type(optimizer)], optimizer.param_groups[0]
    return kind(*(group[name] for name in kind.settings))


@torch.no_grad()
def take_step(optimizer: torch.optim.Optimizer, update: Update) -> None:
    """Do what `optimizer.step()` does, with the optimizer's weights, gradients, learning rate and state."""
    (group,) = optimizer.param_groups
    for parameter in group["params"]:
        state = optimizer.state[parameter]
        buffers = [state[name] for name in update.names] if state else update.begun(parameter)
        weights, buffers = update(parameter, parameter.grad, buffers, group["lr"])
        parameter.copy_(weights)
        state.update(zip(update.names, buffers, strict=True))

"""The updates of PyTorch's SGD and Adam on stacked weights [R, numbers], every run with its settings.

The equations and their order equal torch.optim's. All numbers stay on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from runner.training.stacked.layers import NotStackableError


class Update:
    """A pure function from weights, gradients and buffers to new weights and buffers; `state` has the first buffers.

    The learning rates [R, 1] have a fixed address, so that a captured graph reads them.
    """

    state: list[Tensor]
    _lr: Tensor

    def rates(self, optimizers: Sequence[torch.optim.Optimizer]) -> Tensor:
        """Return the present learning rates of the optimizers."""
        return _column([optimizer.param_groups[0] for optimizer in optimizers], "lr", self._lr)

    def take_rates(self, rates: Tensor) -> None:
        """Use these learning rates from now on."""
        self._lr.copy_(rates)

    def __call__(self, values: Tensor, gradients: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        raise NotImplementedError


class Sgd(Update):
    """v <- momentum v + gradient; value <- value - lr v."""

    def __init__(self, settings: Sequence[dict[str, Any]], like: Tensor) -> None:
        self._lr, self._momentum = (_column(settings, name, like).to(like.dtype) for name in ("lr", "momentum"))
        self.state = [torch.zeros_like(like)]

    def __call__(self, values: Tensor, gradients: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        velocity = self._momentum * state[0] + gradients
        return values - self._lr * velocity, [velocity]


class Adam(Update):
    """Kingma and Ba (2015), algorithm 1, without weight decay. Bias corrections are computed in float64."""

    def __init__(self, settings: Sequence[dict[str, Any]], like: Tensor) -> None:
        betas = [{"beta1": s["betas"][0], "beta2": s["betas"][1]} for s in settings]
        self._lr = _column(settings, "lr", like)
        self._eps = _column(settings, "eps", like).to(like.dtype)
        self._beta1, self._beta2 = (_column(betas, name, like) for name in ("beta1", "beta2"))
        self.state = [torch.zeros_like(like), torch.zeros_like(like), torch.zeros_like(self._lr)]

    def __call__(self, values: Tensor, gradients: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        kind, (first, second, step) = values.dtype, state
        step = step + 1
        first = self._beta1.to(kind) * first + (1 - self._beta1).to(kind) * gradients
        second = self._beta2.to(kind) * second + (1 - self._beta2).to(kind) * gradients.square()
        size = (self._lr / (1 - self._beta1**step)).to(kind)
        root = (1 - self._beta2**step).sqrt().to(kind)
        return values - size * first / (second.sqrt() / root + self._eps), [first, second, step]


_KNOWN: dict[type, tuple[type[Sgd] | type[Adam], tuple[str, ...]]] = {
    torch.optim.SGD: (Sgd, ("lr", "momentum")),
    torch.optim.Adam: (Adam, ("lr", "betas", "eps")),
}


def update(optimizers: Sequence[torch.optim.Optimizer], like: Tensor) -> Update:
    """Return the update of these optimizers, one per run, for weights of the shape [R, numbers] of `like`.

    Raises:
        NotStackableError: an optimizer, or one of its settings, is not supported.
    """
    kind = type(optimizers[0])
    if any(type(optimizer) is not kind for optimizer in optimizers):
        raise NotStackableError("they have different optimizers")
    if kind not in _KNOWN:
        raise NotStackableError(f"the optimizer {kind.__name__} is not supported")
    made, names = _KNOWN[kind]
    settings = []
    for optimizer in optimizers:
        (group,) = optimizer.param_groups
        usual = kind([torch.zeros(1)]).param_groups[0]  # type: ignore[call-arg]
        for name, value in group.items():
            if name not in ("params", "initial_lr", *names) and value != usual[name]:
                raise NotStackableError(f"the optimizer's setting {name} is not supported")
        settings.append({name: group[name] for name in names})
    return made(settings, like)


def _column(settings: Sequence[dict[str, Any]], name: str, like: Tensor) -> Tensor:
    """Return a setting of every run: [R, 1], float64."""
    return torch.tensor([[float(each[name])] for each in settings], dtype=torch.float64, device=like.device)

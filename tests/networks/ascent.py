"""The largest ratio of a gradient's norm to its bound that gradient ascent finds, on weights, input and label."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from runner.networks.lipschitz.layers import GlobalL2Pool, L2Pool2d
from runner.networks.objective import Objective


class _SmoothPool(nn.Module):
    """An L2 pooling as autograd differentiates it, as often as one likes."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        if self.size is None:
            return x.square().sum((2, 3)).sqrt()
        return (nn.functional.avg_pool2d(x.square(), self.size) * self.size**2).sqrt()


def with_smooth_pools(module: nn.Module) -> nn.Module:
    """The module with its poolings exchanged."""
    if isinstance(module, L2Pool2d):
        return _SmoothPool(module.kernel_size)
    if isinstance(module, GlobalL2Pool):
        return _SmoothPool(None)
    for name, child in module.named_children():
        setattr(module, name, with_smooth_pools(child))
    return module


def largest_ratios(objective: Objective, bounds: Mapping[str, float], steps: int) -> dict[str, float]:
    """By parameter, the largest norm of its gradient over its bound that Adam finds in `steps` steps, in float64.

    What is ascended is free; what is tried is within the constraint: weights over their spectral norm where that is
    above 1, biases and the input likewise.
    """
    with_smooth_pools(objective.network)
    assert objective.inputs is not None
    assert objective.inputs.norm is not None
    names = list(bounds)
    found = dict.fromkeys(names, 0.0)
    for name in names:
        free = {key: p.detach().clone().requires_grad_() for key, p in objective.named_parameters()}
        example = torch.randn(1, *objective.inputs.shape, dtype=torch.float64, requires_grad=True)
        label = torch.randint(2, (1,))
        ascent = torch.optim.Adam([*free.values(), example], lr=0.1, maximize=True)
        for _ in range(steps):
            weights = {key: _within(p, objective.constraint.bias_radius) for key, p in free.items()}  # type: ignore[union-attr]
            inputs = example / example.norm() * objective.inputs.norm
            loss = functional_call(objective, weights, (inputs, label))
            gradients = torch.autograd.grad(loss.sum(), list(weights.values()), create_graph=True)
            for key, gradient in zip(weights, gradients, strict=True):
                found[key] = max(found[key], gradient.norm().item() / bounds[key])
            ascended = dict(zip(weights, gradients, strict=True))[name].norm()
            if not ascended.requires_grad:  # the gradient of the last bias depends on the loss alone
                break
            ascent.zero_grad()
            ascended.backward()
            ascent.step()
    return found


def _within(values: Tensor, radius: float) -> Tensor:
    if values.dim() == 1:
        return values * (radius / values.norm().clamp_min(1e-9)).clamp(max=1.0)
    return values / torch.linalg.matrix_norm(values.flatten(1), 2).clamp_min(1.0)

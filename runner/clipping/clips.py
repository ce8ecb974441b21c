"""Scaling of rows to bounded norms and its gradient, as backpropagation clipping does in every layer.

A row whose norm is not finite becomes zero, as a NaN in the sum would reveal it despite the noise. (A float32 norm
beyond 1e19 is not finite either.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from runner.gradients.terms import squared_norms


def clip_rows(x: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Return x_i min(1, bound / ||x_i||_2) for each example i, and the factors [batch].

    x: [batch, features] or [batch, channels, height, width].
    """
    x, norms = _without_broken(x, example_norms(x))
    factors = bound / norms.clamp(min=bound)
    return x * _by_example(factors, x), factors


def clip_rows_backward(y: Tensor, factors: Tensor, gradient: Tensor, bound: float) -> Tensor:
    """Return the gradient with respect to x of the rows y that `clip_rows` returned, from the gradient for y.

    If y = x bound / ||x||, it is (g - y <y, g> / bound^2) bound / ||x||. This takes fewer passes over the data than
    autograd.
    """
    along = (y * gradient).sum(dim=tuple(range(1, y.dim()))) * (factors / -(bound**2))
    along.masked_fill_(factors == 1, 0)  # was not clipped
    return (gradient * _by_example(factors, y)).addcmul_(y, _by_example(along, y))


def clip_upstream(gradient: Tensor, bound: float, l1_over_space: bool) -> Tensor:
    """Return u_i min(1, bound / |||u_i|||) for each example i; see `example_norms`."""
    gradient, norms = _without_broken(gradient, example_norms(gradient, l1_over_space))
    return gradient * _by_example(bound / norms.clamp(min=bound), gradient)


def example_norms(x: Tensor, l1_over_space: bool = False) -> Tensor:
    """Return the norm of each example, [batch], of [batch, features] or [batch, channels, height, width].

    The norm is l2 over everything, or l1 over space and l2 over channels.
    """
    if l1_over_space:
        # abs().sum() is the l1 norm; vector_norm(ord=1) takes ten times as long on a CPU.
        norms: Tensor = torch.linalg.vector_norm(x.abs().sum(dim=(2, 3)), dim=1)
        return norms
    rows = x.permute(0, 2, 3, 1).flatten(1) if x.dim() == 4 else x  # in memory order, channels last
    return squared_norms(rows).sqrt()


def _by_example(factors: Tensor, x: Tensor) -> Tensor:
    return factors.view(-1, *[1] * (x.dim() - 1))


def _without_broken(x: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """Return zeros for the examples whose norm is not finite, and for their norms."""
    mapped = torch._C._functorch.is_functorch_wrapped_tensor(norms)  # by vmap, which knows no `item`
    if not mapped and (x.is_meta or math.isfinite(norms.sum().item())):
        return x, norms
    broken = ~torch.isfinite(norms)
    return x.masked_fill(_by_example(broken, x), 0), norms.masked_fill(broken, 0)

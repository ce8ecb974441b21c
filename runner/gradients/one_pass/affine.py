"""Gain and bias of every channel, as group normalisation has them: y = gain * x + bias over the T positions.

    gain: sum_t g_t x_t,    bias: sum_t g_t

Cost: T C multiplications per example. Both gradients are formed.
"""

from __future__ import annotations

from torch import Tensor

from runner.gradients.terms import Terms, squared_norms, weighted_sum


def affine(x: Tensor, g: Tensor, views: int) -> Terms:
    """Return terms of normalised inputs x and output gradients g, both [batch * views, channels, ...]."""
    positions = [1, *range(3, g.dim() + 1)]
    gains, biases = (each.unflatten(0, (-1, views)).sum(positions) for each in (g * x, g))
    return Terms(squared_norms(gains), lambda factors, silent: weighted_sum(gains, factors, silent), biases)

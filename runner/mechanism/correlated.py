"""Noise that is correlated over steps: C^-1 z, for a lower-triangular banded Toeplitz matrix C, step by step.

Row t of C y = z is sum_{k < b} c_k y_{t-k} = z_t, with the coefficients c_0, ..., c_{b-1} of C's columns. So

    y_t = (z_t - sum_{k=1}^{b-1} c_k y_{t-k}) / c_0,

which needs the last b - 1 vectors y and no more. Before the first step they are zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def correlated(coefficients: Sequence[float], fresh: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """Return y_t [*shape], and the past of the next step, as a pure function without uploads or waits.

    Args:
        coefficients: c_0, ..., c_{b-1}, with c_0 > 0.
        fresh: z_t [*shape].
        past: y_{t-1}, ..., y_{t-b+1}: [b - 1, *shape].
    """
    first, *others = coefficients
    total = fresh
    for coefficient, earlier in zip(others, past, strict=True):
        total = total - coefficient * earlier
    noise = total / first
    return noise, torch.cat([noise[None], past])[: len(others)]


class PastNoise:
    """The noise of a run's last b - 1 steps, by parameter, for steps that are taken call by call."""

    def __init__(self, coefficients: Sequence[float]) -> None:
        self._coefficients, self._past = coefficients, dict[str, Tensor]()

    def next(self, fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the noise of the next step from standard normal numbers of its own, by parameter."""
        noise = {}
        for name, z in fresh.items():
            past = self._past.get(name)
            if past is None:
                past = z.new_zeros(len(self._coefficients) - 1, *z.shape)
            noise[name], self._past[name] = correlated(self._coefficients, z, past.to(z.device))
        return noise

    def state_dict(self) -> dict[str, Tensor]:
        """Return the past vectors by parameter, each [b - 1, *shape]."""
        return dict(self._past)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue after the steps of a state."""
        self._past = dict(state)

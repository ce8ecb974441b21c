"""Adam whose second moment is free of the noise that was added for privacy."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


class AdamBC(torch.optim.Optimizer):
    """DP-AdamBC (Tang, Shpilevskiy and Lecuyer, AAAI 2024, algorithm 1).

    A coordinate's gradient is g_t + z_t, with noise z_t ~ N(0, Phi). The noise is independent of g_t and of the past,
    so E[(g_t + z_t)^2] = E[g_t^2] + Phi. Adam's second moment is a mean of these squares with weights that add up to 1
    after its bias correction. So it is too large by Phi in expectation, and noise hides which coordinates have small
    gradients. Here

        w <- w - lr * m_t / sqrt(max(v_t - Phi, floor)),

    with Adam's m_t and v_t. Phi is public, because it follows from the noise multiplier, the sensitivity and the
    expected batch size. So this is post-processing of the noisy gradients.

    Args:
        parameters: the parameters.
        lr: the learning rate.
        betas: the decay rates of the two moments, each in [0, 1).
        floor: the least second moment, > 0: noise can make v_t - Phi negative.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        floor: float = 1e-8,
    ) -> None:
        first, second = betas
        if not (0 <= lr < math.inf and 0 <= first < 1 and 0 <= second < 1 and 0 < floor < math.inf):
            raise ValueError(f"Expected lr >= 0, betas in [0, 1) and floor > 0, got {lr}, {[*betas]} and {floor}.")
        super().__init__(parameters, {"lr": lr, "betas": (first, second), "floor": floor})
        self._variance: dict[Tensor, float] = {}

    def take_noise(self, std: Mapping[Tensor, float]) -> None:
        """Take the standard deviation of the noise in the gradient of each parameter, per coordinate."""
        self._variance = {parameter: deviation**2 for parameter, deviation in std.items()}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state: dict[str, Any] = self.state[parameter]
                if not state:
                    state |= {
                        "step": torch.tensor(0.0),
                        "mean": torch.zeros_like(parameter),
                        "square": torch.zeros_like(parameter),
                    }
                state["step"] += 1
                state["mean"].lerp_(parameter.grad, 1 - first)
                state["square"].lerp_(parameter.grad.square(), 1 - second)
                steps = state["step"].item()
                mean, square = state["mean"] / (1 - first**steps), state["square"] / (1 - second**steps)
                scale = (square - self._variance.get(parameter, 0.0)).clamp_(min=group["floor"]).sqrt_()
                parameter.addcdiv_(mean, scale, value=-group["lr"])

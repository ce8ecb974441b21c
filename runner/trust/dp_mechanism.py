"""The clipping of a `DPMechanism`, the class that agents write for the DP-SGD task of MLS-Bench, as a clipping here.

A subclass of `FromDPMechanism` names it: `mechanism = DPMechanism`. Its `clip_and_noise` gets one example and a noise
multiplier of 0. The result is cut to `norm`, and this package draws and charges the noise. What the class learns from
one batch for the next is forgotten.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from runner.clipping import NoiseGroup

_LAST = 10**6  # a step and an epoch that are late in any run


@dataclass(frozen=True)
class FromDPMechanism:
    """Clipping by `mechanism(...).clip_and_noise`, cut to the norm `norm`, which is its `max_grad_norm`, too."""

    norm: float
    mechanism: ClassVar[Any]

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """Return one group of all parameters.

        Raises:
            ValueError: the class adds noise of its own, or its clipping depends on the step.
        """
        names = [name for name, _ in model.named_parameters()]
        ones = {name: torch.ones_like(parameter) for name, parameter in model.named_parameters()}
        unit = self.norm / sum(parameter.numel() for parameter in ones.values()) ** 0.5
        for length in (0.1, 1.0, 10.0):  # in norms, as a threshold may change where only some gradients feel it
            gradients = {name: length * unit * parameter for name, parameter in ones.items()}
            first, again, late = (self.contribution(gradients, step) for step in (0, 0, _LAST))
            for other, reason in ((again, "adds noise of its own"), (late, "clips differently in a later step")):
                if not all(torch.equal(first[name], other[name]) for name in names):
                    raise ValueError(f"{self.mechanism.__qualname__} {reason}, so its clipping cannot be taken alone.")
        return (NoiseGroup(tuple(names), self.norm),)

    def contribution(self, gradients: dict[str, Tensor], step: int = 0) -> dict[str, Tensor]:
        """Return the contribution of one example, by parameter name, from its gradient."""
        batch = [gradient[None] for gradient in gradients.values()]
        clipped = self._built(0.0, batch).clip_and_noise(batch, step, step)
        return dict(zip(gradients, clipped, strict=True))

    def stated_noise(self) -> tuple[float, float]:
        """Return the noise that the class states for the first and for a late step, as multiples of what is charged."""
        stated = self._built(1.0, [])
        return stated.get_effective_sigma(0, 0), stated.get_effective_sigma(_LAST, _LAST)

    def _built(self, noise_multiplier: float, batch: list[Tensor]) -> Any:
        return self.mechanism(
            max_grad_norm=self.norm, noise_multiplier=noise_multiplier, n_params=sum(map(Tensor.numel, batch)),
            dataset_size=1, batch_size=1, epochs=1, target_epsilon=1.0, target_delta=1e-5,
        )  # fmt: skip

"""No bound at all: ordinary, non-private training."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from runner.clipping.interface import NoiseGroup
from runner.gradients import Engine, GradientSum


@dataclass(frozen=True)
class NoClipping:
    """The plain sum of gradients, by one ordinary backward pass. Its sensitivity is infinite."""

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return (NoiseGroup(tuple(name for name, _ in model.named_parameters()), math.inf),)

    def sum_contributions(self, engine: Engine, inputs: Tensor, targets: Tensor) -> GradientSum:
        names, parameters = zip(*engine.objective.named_parameters(), strict=True)
        losses = engine.objective(inputs, targets)
        gradients = torch.autograd.grad(losses.sum(), parameters)
        return GradientSum(dict(zip(names, gradients, strict=True)), losses.detach(), None)

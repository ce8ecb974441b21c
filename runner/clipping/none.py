"""No bound: ordinary, non-private training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from runner.clipping.interface import NoiseGroup
from runner.gradients import Engine, GradientSum


@dataclass(frozen=True)
class NoClipping:
    """The plain sum of gradients, by one ordinary backward pass. Its sensitivity is infinite."""

    needs_engine = False
    sums_by_engine = True

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return (NoiseGroup(tuple(name for name, _ in model.named_parameters()), math.inf),)

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        return engine.plain_sum(inputs, targets)

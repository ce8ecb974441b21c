"""Per-example gradients by Opacus' `GradSampleModule`: hooks on every layer Opacus knows.

This is a second, independent implementation. `PrivacyEngine` is not used, because it replaces the batch size by its
own.

Opacus 1.6 assumes that a convolution's input lies in memory as [batch, channels, height, width]. With channels-last
inputs or weights it silently returns wrong gradients, so both are laid out anew here.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from opacus import GradSampleModule
from torch import Tensor

from runner.gradients.interface import GradientSum, OrdinaryPass, weigh_and_sum
from runner.gradients.terms import Factors
from runner.networks.objective import Objective


class OpacusEngine(OrdinaryPass):
    """An engine that forms every per-example gradient with Opacus, then weighs and sums as `IsolatedEngine` does."""

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective)
        for parameter in objective.parameters():
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
        self._hooked = GradSampleModule(objective, loss_reduction="sum")
        self._hooked.disable_hooks()  # on only inside clipped_sum: other passes must leave nothing behind

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """See `Engine.clipped_sum`."""
        self._hooked.enable_hooks()
        losses = self._hooked(inputs.clone(memory_format=torch.contiguous_format), targets)
        losses.sum().backward()
        self._hooked.disable_hooks()
        per_example = {name: cast(Any, p).grad_sample for name, p in self.objective.named_parameters()}
        for p in self.objective.parameters():
            cast(Any, p).grad_sample, p.grad = None, None
        return weigh_and_sum(per_example, losses.detach(), groups, factors)

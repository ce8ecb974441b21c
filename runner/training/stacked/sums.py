"""Sums of the bounded contributions of R batches, by one pass, without asking the device for a value.

Examples from the padding, or with a gradient that is not finite, are set to zero. This step runs even if there is no
such example. So the calls depend on no data and can be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.gradients import GradientSum, Objective
from runner.gradients.interface import NO_OTHERS
from runner.gradients.terms import Factors, factors_of, group_norms, silenced, weighted_sums
from runner.networks.lipschitz.course import COUNT
from runner.training.stacked.layers import NotStackableError
from runner.training.stacked.network import StackedObjectives


@dataclass(frozen=True)
class StackedEngine:
    """`Engine` for R runs at a time. Batches are [R P, ...], norms and factors [R, P, groups], sums [R, *shape].

    Attributes:
        values: [R, numbers], the weights.
        mask: [R, P], true if an example belongs to its run's batch.
    """

    stacked: StackedObjectives
    values: Tensor
    mask: Tensor

    @property
    def objective(self) -> Objective:
        """Return one of the runs' objectives, for the names of its parameters."""
        return self.stacked.objectives[0]

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """See `Engine.clipped_sum`; examples outside the mask contribute zero."""
        losses, gradients = self._pass(inputs, targets)
        with torch.no_grad():
            terms = {name: self.stacked.layers[name].terms(g) for name, g in gradients.items()}
            norms = group_norms(terms, groups, torch.zeros_like(losses)).view(*self.mask.shape, -1)
            silent = ~(torch.isfinite(norms).all(dim=2) & self.mask)
            found = dict(weighted_sums(terms, groups, factors_of(norms, silent, factors)))
        return GradientSum(found, losses.detach(), torch.linalg.vector_norm(norms, dim=2))

    def plain_sum(self, inputs: Tensor, targets: Tensor, others: Mapping[str, Tensor] = NO_OTHERS) -> GradientSum:
        """Return the sum of unscaled gradients; a gradient that is not finite makes the sum so.

        `others` may only have the counter of a loss. Examples outside the mask do not count.
        """
        if others.keys() - {COUNT}:
            raise NotStackableError("a step releases more than gradients")
        found: dict[str, Tensor] = {}
        if others:
            counters = torch.zeros_like(self.mask.flatten(), dtype=inputs.dtype).requires_grad_()
            with self.stacked.counting(counters):
                losses, gradients = self._pass(inputs, targets, {COUNT: counters})
            found[COUNT] = gradients.pop(COUNT).view(self.mask.shape).masked_fill(~self.mask, 0).sum(1)
        else:
            losses, gradients = self._pass(inputs, targets)
        with torch.no_grad():
            outside = ~self.mask.flatten().repeat_interleave(self.stacked.views)
            for name, g in gradients.items():
                layer, g = self.stacked.layers[name], silenced(g, outside)
                found[f"{name}.weight"] = layer.total(g)
                if layer.bias is not None:
                    found[f"{name}.bias"] = layer.rows_of(g).unflatten(0, (len(self.mask), -1)).sum((1, 3))
        return GradientSum(found, losses.detach(), None)

    def _pass(
        self, inputs: Tensor, targets: Tensor, others: Mapping[str, Tensor] = NO_OTHERS
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return losses [R P], and the gradients of the layers' outputs [R P, ...] and of the others."""
        with torch.enable_grad():
            losses = self.stacked(self.values, inputs, targets)
            layers = self.stacked.layers.items()
            of = {name: layer.output for name, layer in layers if layer.output is not None} | dict(others)
            rows = len(losses) * self.stacked.views
            if any(len(of[name]) != rows for name, _ in layers if name in of):
                raise NotStackableError("a layer is not called on one row an example")
            if not losses.requires_grad:
                raise NotStackableError("the losses do not depend on any layer")
            gradients = torch.autograd.grad(losses, list(of.values()), torch.ones_like(losses), allow_unused=True)
        return losses, {name: g for name, g in zip(of, gradients, strict=True) if g is not None}

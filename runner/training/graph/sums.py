"""Sums of the bounded contributions of a batch, by one pass, without asking the device for a value.

Examples from the padding, or with a gradient that is not finite, are set to zero. This step runs even if there is no
such example. So the calls depend on no data and can be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.gradients import GradientSum, Objective
from runner.gradients.interface import NO_OTHERS
from runner.gradients.terms import Factors, factors_of, group_norms, weighted_sums
from runner.networks.lipschitz.course import COUNT, counting_course
from runner.training.graph.layers import NotCapturableError
from runner.training.graph.network import RecordedObjective


@dataclass(frozen=True)
class MaskedEngine:
    """An `Engine` for padded batches [P, ...], in which examples outside the mask contribute zero.

    Attributes:
        values: [numbers], the weights.
        mask: [P], true if an example belongs to the batch.
    """

    recorded: RecordedObjective
    values: Tensor
    mask: Tensor

    @property
    def objective(self) -> Objective:
        """Return the objective, for the names of its parameters."""
        return self.recorded.objective

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """See `Engine.clipped_sum`."""
        layers = self.recorded.layers
        with torch.enable_grad():
            losses = self.recorded.losses(self.recorded.weights(self.values), inputs, targets)
            outputs = {name: layer.output for name, layer in layers.items() if layer.output is not None}
            if any(len(output) != len(losses) * self.recorded.views for output in outputs.values()):
                raise NotCapturableError("a layer is not called on one row an example")
            if not losses.requires_grad:
                raise NotCapturableError("the losses do not depend on any layer")
            slopes = torch.autograd.grad(losses, list(outputs.values()), torch.ones_like(losses), allow_unused=True)
        with torch.no_grad():
            terms = {name: layers[name].terms(g) for name, g in zip(outputs, slopes, strict=True) if g is not None}
            norms = group_norms(terms, groups, torch.zeros_like(losses))
            silent = ~(torch.isfinite(norms).all(dim=1) & self.mask)
            sums = dict(weighted_sums(terms, groups, factors_of(norms, silent, factors), silent))
        return GradientSum(sums, losses.detach(), torch.linalg.vector_norm(norms, dim=1))

    def plain_sum(self, inputs: Tensor, targets: Tensor, others: Mapping[str, Tensor] = NO_OTHERS) -> GradientSum:
        """See `Engine.plain_sum`; `others` may only have the counter of a loss."""
        if others.keys() - {COUNT}:
            raise NotCapturableError("a step releases more than gradients")
        course, members = counting_course(self.objective.loss), self.mask.to(inputs.dtype)
        counters = torch.zeros_like(members).requires_grad_()  # one for each example, to leave the padding out
        with torch.enable_grad(), nullcontext() if course is None else course.counting(counters):
            weights = {n: w.detach().requires_grad_() for n, w in self.recorded.weights(self.values).items()}
            losses = self.recorded.losses(weights, inputs, targets)
            asked = weights | ({COUNT: counters} if others else {})
            slopes = torch.autograd.grad(losses, list(asked.values()), members)
        sums = dict(zip(asked, slopes, strict=True))
        if others:
            sums[COUNT] = sums[COUNT].masked_fill(~self.mask, 0).sum()
        return GradientSum(sums, losses.detach(), None)

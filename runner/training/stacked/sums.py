"""Sums of the bounded contributions of R batches, by one pass, without asking the device for a value.

For rows a_t and output gradients g_t of a layer (t = 1..T), one example's gradient of the weight is sum_t g_t a_t^T.
With one position (T = 1) its norm is |g| |a| and it is never formed. Else a batched product forms it, and the sum adds
the same numbers whose norm was taken. So only terms cancel that cancel in the gradient itself.

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
from runner.gradients.terms import (
    Factors,
    Terms,
    by_run,
    factors_of,
    group_norms,
    norms_by_rows,
    silenced,
    weighted_sum,
    weighted_sums,
)  # fmt: skip
from runner.networks.lipschitz.course import COUNT
from runner.training.stacked.layers import Layer, NotStackableError
from runner.training.stacked.network import StackedObjectives


@dataclass(frozen=True)
class StackedEngine:
    """`Engine` for R runs at a time. Batches are [R P, ...], norms and factors [R, P, groups], sums [R, *shape].

    Attributes:
        mask: [R, P], true if an example belongs to its run's batch.
    """

    stacked: StackedObjectives
    mask: Tensor

    @property
    def objective(self) -> Objective:
        """Return one of the runs' objectives, for the names of its parameters."""
        return self.stacked.objectives[0]

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """See `Engine.clipped_sum`; examples outside the mask contribute zero."""
        losses, gradients = _one_pass(self.stacked, inputs, targets)
        with torch.no_grad():
            terms = {name: _terms(self.stacked.layers[name], g) for name, g in gradients.items()}
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
            counters = torch.zeros_like(self.mask.flatten(), dtype=inputs.dtype, requires_grad=True)
            with self.stacked.counting(counters):
                losses, gradients = _one_pass(self.stacked, inputs, targets, {COUNT: counters})
            found[COUNT] = gradients.pop(COUNT).view(self.mask.shape).masked_fill(~self.mask, 0).sum(1)
        else:
            losses, gradients = _one_pass(self.stacked, inputs, targets)
        with torch.no_grad():
            outside = ~self.mask.flatten()
            for name, g in gradients.items():
                layer, runs = self.stacked.layers[name], len(self.mask)
                assert layer.rows is not None
                g = silenced(g, outside).reshape(runs, -1, g.shape[-1])
                found[f"{name}.weight"] = torch.bmm(g.transpose(1, 2), layer.rows.reshape(runs, g.shape[1], -1))
                if layer.bias is not None:
                    found[f"{name}.bias"] = g.sum(1)
        return GradientSum(found, losses.detach(), None)


def _terms(layer: Layer, g: Tensor) -> Terms:
    """Return a layer's per-example gradients [R P, ...], formed or as the two factors of an outer product."""
    assert layer.rows is not None
    rows, outputs = layer.rows, g[:, 0]
    biases = g.sum(1) if layer.bias is not None else None
    if rows.shape[1] > 1:
        formed = torch.bmm(g.transpose(1, 2), rows)
        return Terms(norms_by_rows(formed).square(), lambda factors: weighted_sum(formed, factors), biases)

    def weight_sum(factors: Tensor) -> Tensor:
        return torch.bmm((by_run(outputs, factors) * factors[..., None]).transpose(1, 2), by_run(rows[:, 0], factors))

    return Terms(norms_by_rows(g).square() * norms_by_rows(rows).square(), weight_sum, biases)


def _one_pass(
    stacked: StackedObjectives, inputs: Tensor, targets: Tensor, others: Mapping[str, Tensor] = NO_OTHERS
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return losses [R P], and the gradients of the layers' outputs [R P, T, O] and of the others."""
    with torch.enable_grad():
        losses = stacked(inputs, targets)
        outputs = {name: layer.output for name, layer in stacked.layers.items() if layer.output is not None}
        if any(len(output) != len(losses) for output in outputs.values()):
            raise NotStackableError("a layer is not called on one row an example")
        if not losses.requires_grad:
            raise NotStackableError("the losses do not depend on any layer")
        of = {**outputs, **others}
        gradients = torch.autograd.grad(losses, list(of.values()), torch.ones_like(losses), allow_unused=True)
    return losses, {name: g for name, g in zip(of, gradients, strict=True) if g is not None}

"""What a gradient engine does, and what every clipping strategy returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from runner.networks.objective import Objective


class RowsError(NotImplementedError):
    """A layer sees several rows an example, and the engine would take each of them for one."""


Factors = Callable[[Tensor], Tensor]  # norms [batch, groups] -> factors [batch, groups]


@dataclass(frozen=True)
class GradientSum:
    """The sum over a batch of every example's (bounded) contribution.

    Attributes:
        gradients: by parameter name, the shape of the parameter.
        losses: [batch], before the update.
        norms: [batch], L2 norm of each example's whole gradient before clipping; None where it was not computed.
    """

    gradients: dict[str, Tensor]
    losses: Tensor
    norms: Tensor | None

    def __add__(self, other: GradientSum) -> GradientSum:
        norms = None
        if self.norms is not None and other.norms is not None:
            norms = torch.cat([self.norms, other.norms])
        gradients = {name: self.gradients[name] + other.gradients[name] for name in self.gradients}
        return GradientSum(gradients, torch.cat([self.losses, other.losses]), norms)


class Engine(Protocol):
    """Computes sums of rescaled per-example gradients of one objective."""

    objective: Objective

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, groups: Sequence[Sequence[str]], factors: Factors
    ) -> GradientSum:
        """sum_i factor_ig * grad_g loss_i for each group g of parameter names, over a batch of at least one example.

        `factors` sees the L2 norms [batch, groups] of the per-example gradients, exact up to float rounding. An example
        whose gradient is not finite contributes zero: a NaN in the sum would reveal it, whatever the noise.
        """
        ...


def _norms(gradient: Tensor) -> Tensor:
    """L2 norms [batch] of [batch, *shape], row by row and then over the rows.

    One long float32 sum can lose its small terms (a part in 4,000 of a norm over 300,000 entries); sums of a row each
    keep the relative error below 1e-5.
    """
    rows = torch.linalg.vector_norm(gradient.flatten(2), dim=2) if gradient.dim() > 2 else gradient.flatten(1)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms


def weigh_and_sum(
    per_example: dict[str, Tensor], losses: Tensor, groups: Sequence[Sequence[str]], factors: Factors
) -> GradientSum:
    """The sum of `Engine.clipped_sum` from gradients that were formed, by name, each [batch, *shape].

    Cost: one pass over the gradients for the norms and one matrix-vector product a parameter for the sum.

    Raises:
        RowsError: where a parameter has another number of gradients than there are examples.
    """
    for name, gradient in per_example.items():
        if len(gradient) != len(losses):
            raise RowsError(f"{name} has {len(gradient)} gradients for {len(losses)} examples")
    squares = {name: _norms(gradient).square() for name, gradient in per_example.items()}
    norms = torch.stack([torch.stack([squares[name] for name in group]).sum(0) for group in groups], dim=1).sqrt()
    broken = ~torch.isfinite(norms).all(dim=1)
    if broken.any():
        per_example = {
            name: gradient.masked_fill(broken.view(-1, *[1] * (gradient.dim() - 1)), 0)
            for name, gradient in per_example.items()
        }
    weights = factors(norms.masked_fill(broken[:, None], 0))
    gradients = {
        name: (weights[:, g] @ per_example[name].flatten(1)).view(per_example[name].shape[1:])
        for g, group in enumerate(groups)
        for name in group
    }
    return GradientSum(gradients, losses, torch.linalg.vector_norm(norms, dim=1))

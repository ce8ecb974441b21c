"""What a clipping strategy does: the bounded sum, and its sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from runner.gradients import Engine, GradientSum


@dataclass(frozen=True)
class NoiseGroup:
    """Parameters that get noise of one scale.

    `sensitivity` is the largest L2 norm of one example's contribution to their sum: the L2 sensitivity of the sum
    under add-or-remove-one neighbours. (Replacing one example can move the sum by twice as much.)
    """

    parameters: tuple[str, ...]
    sensitivity: float


class Clipping(Protocol):
    """Turns a batch into the sum of its examples' contributions, each bounded as `noise_groups` states."""

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """A partition of the trainable parameters of `model`, with the sensitivity of each part."""
        ...

    def sum_contributions(self, engine: Engine, inputs: Tensor, targets: Tensor) -> GradientSum:
        """The sum over one physical batch of at least one example: inputs [batch, ...], targets [batch]."""
        ...


def gradient_sum(
    clipping: Clipping, engine: Engine, inputs: Tensor, targets: Tensor, physical_batch: int
) -> GradientSum:
    """The sum over a logical batch of any size, in pieces of at most `physical_batch` examples.

    Contributions are sums over examples, so the pieces add up to the same sum. The empty batch, which Poisson
    sampling draws with probability (1 - q)^N, has the sum zero.

    Raises:
        ValueError: where there is not one loss and, if norms were computed, one norm an example.
    """
    if len(targets) == 0:
        zeros = {name: p.detach().new_zeros(p.shape) for name, p in engine.objective.named_parameters()}
        empty = inputs.new_zeros(0)
        return GradientSum(zeros, empty, empty)
    count = math.ceil(len(targets) / physical_batch)  # of pieces, as equal as can be
    pieces = zip(inputs.chunk(count), targets.chunk(count), strict=True)
    total: GradientSum | None = None
    for piece_inputs, piece_targets in pieces:
        piece = clipping.sum_contributions(engine, piece_inputs, piece_targets)
        total = piece if total is None else total + piece
    assert total is not None
    for name, numbers in (("loss", total.losses), ("norm", total.norms)):
        if numbers is not None and numbers.shape != targets.shape[:1]:
            raise ValueError(
                f"expected one {name} for each of {len(targets)} examples, got {tuple(numbers.shape)}: "
                f"what is not counted by examples is not clipped by examples"
            )
    return total

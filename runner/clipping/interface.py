"""Interface of clipping strategies: the bounded sum, and its sensitivity. `NoClipping` has no bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol

from torch import Tensor, nn

from runner.gradients import Engine, GradientSum


@dataclass(frozen=True)
class NoiseGroup:
    """Parameters that get noise of one scale.

    `sensitivity` is the largest L2 norm of one example's contribution to their sum. It is the L2 sensitivity of the sum
    under add-or-remove-one neighbours. (Replacing one example can move the sum by twice as much.) `share` is the
    group's part of the step's privacy. The shares of all groups add up to 1. If `share` is None, all are equal.
    """

    parameters: tuple[str, ...]
    sensitivity: float
    share: float | None = field(default=None, repr=False)  # the audit names its random streams by the repr


class Clipping(Protocol):
    """Conversion of a batch to the sum of its examples' contributions, each bounded as `noise_groups` states.

    Attributes:
        needs_engine: True if the clipping asks the engine for per-example norms, else it takes one ordinary pass.
        sums_by_engine: True if an engine sums all contributions, with factors by their norms or none, as a graph needs.
    """

    needs_engine: bool
    sums_by_engine: bool

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """Return a partition of the trainable parameters of `model`, with the sensitivity of each part."""
        ...

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        """Return the sum over one physical batch of at least one example: inputs [batch, ...], targets [batch].

        `groups` are the groups that the noise is drawn for. Contributions that no module bounds are cut to their
        sensitivities.
        """
        ...


def gradient_sum(
    clipping: Clipping,
    engine: Engine,
    inputs: Tensor,
    targets: Tensor,
    physical_batch: int,
    groups: Sequence[NoiseGroup] = (),
) -> GradientSum:
    """Return the sum over a logical batch of any size, in pieces of at most `physical_batch` examples.

    Contributions are sums over examples, so the pieces add up to the same sum. Poisson sampling draws the empty batch
    with probability (1 - q)^N. Its sum is zero for all parameters, and for every other name in `groups`.
    """
    if len(targets) == 0:
        empty, zero = inputs.new_zeros(0), next(engine.objective.parameters()).detach().new_zeros(())
        zeros = {name: zero for group in groups for name in sorted(group.parameters)}
        zeros |= {name: p.detach().new_zeros(p.shape) for name, p in engine.objective.named_parameters()}
        return GradientSum(zeros, empty, empty)
    count = math.ceil(len(targets) / physical_batch)  # of pieces, as equal as can be
    pieces = zip(inputs.chunk(count), targets.chunk(count), strict=True)
    return reduce(GradientSum.__add__, (clipping.sum_contributions(engine, *piece, groups) for piece in pieces))


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

"""Interface of clipping strategies: the bounded sum, and its sensitivity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol, TypeAlias, TypeGuard

from torch import Tensor, nn

from runner.gradients import Engine, GradientSum, Objective, undisturbed

Numbers: TypeAlias = Mapping[str, float | Tensor]


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
    """Conversion of a batch to the sum of its examples' contributions, each bounded as `noise_groups` states."""

    @property
    def needs_engine(self) -> bool:
        """Return True if the clipping asks the engine for per-example norms, else it takes one ordinary pass."""
        ...

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


class OfNorms(Protocol):
    """A clipping that rescales by functions of single norms and of numbers by name, or does not rescale.

    The numbers are arguments so that R runs can be clipped at once. Norms are then [R, P, groups], and a number in
    which the runs differ is [R, 1, 1].
    """

    def sum_with(self, engine: Engine, inputs: Tensor, targets: Tensor, numbers: Numbers) -> GradientSum:
        """Return the sum over one physical batch as `Clipping.sum_contributions` does, but with these numbers."""
        ...


def is_of_norms(clipping: object) -> TypeGuard[OfNorms]:
    """Return True if a clipping depends on norms only.

    The class that defines `sum_contributions` then defines `sum_with` too, and no subclass redefines the first alone.
    """
    for kind in type(clipping).__mro__:
        if "sum_contributions" in vars(kind):
            return "sum_with" in vars(kind)
    return False


@undisturbed()
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
        empty = inputs.new_zeros(0)
        return GradientSum(_sum_of_none(groups, engine.objective), empty, empty)
    count = math.ceil(len(targets) / physical_batch)  # of pieces, as equal as can be
    pieces = zip(inputs.chunk(count), targets.chunk(count), strict=True)
    return reduce(GradientSum.__add__, (clipping.sum_contributions(engine, *piece, groups) for piece in pieces))


def _sum_of_none(groups: Sequence[NoiseGroup], objective: Objective) -> dict[str, Tensor]:
    """Return the sums over no examples: zeros for all parameters and for the other numbers in the noise groups."""
    zeros = {name: p.detach().new_zeros(p.shape) for name, p in objective.named_parameters()}
    like = next(iter(zeros.values()))
    named = {name for group in groups for name in group.parameters}
    return zeros | {name: like.new_zeros(()) for name in sorted(named - zeros.keys())}

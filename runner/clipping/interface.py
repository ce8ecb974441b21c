"""What a clipping strategy does: the bounded sum, and its sensitivity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeGuard

from torch import Tensor, nn

from runner.gradients import Engine, GradientSum, Objective, undisturbed

Numbers: TypeAlias = Mapping[str, float | Tensor]


@dataclass(frozen=True)
class NoiseGroup:
    """Parameters that get noise of one scale.

    `sensitivity` is the largest L2 norm of one example's contribution to their sum: the L2 sensitivity of the sum
    under add-or-remove-one neighbours. (Replacing one example can move the sum by twice as much.) `share` is the
    group's part of the step's privacy: those of all groups add up to 1; None: all have the same.
    """

    parameters: tuple[str, ...]
    sensitivity: float
    share: float | None = field(default=None, repr=False)  # the audit's random streams are named by what is shown


class Clipping(Protocol):
    """Turns a batch into the sum of its examples' contributions, each bounded as `noise_groups` states."""

    @property
    def needs_engine(self) -> bool:
        """Whether the clipping asks the engine for per-example norms; else it takes one ordinary pass."""
        ...

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        """A partition of the trainable parameters of `model`, with the sensitivity of each part."""
        ...

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        """The sum over one physical batch of at least one example: inputs [batch, ...], targets [batch].

        `groups` are those that the noise is for. What no module bounds is cut to their sensitivities.
        """
        ...


class OfNorms(Protocol):
    """A clipping that rescales by functions of single norms and of its own numbers, by name, or not at all.

    Numbers are arguments so that R runs can be clipped at once: norms are [R, P, groups] then, and a number in which
    the runs differ is [R, 1, 1].
    """

    def sum_with(self, engine: Engine, inputs: Tensor, targets: Tensor, numbers: Numbers) -> GradientSum:
        """The sum over one physical batch, as `Clipping.sum_contributions` gives it, with these numbers for its own."""
        ...


def is_of_norms(clipping: object) -> TypeGuard[OfNorms]:
    """Whether a clipping is one of norms: the class that defines `sum_contributions` defines `sum_with`, too, and no
    subclass has redefined the first alone.
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
    """The sum over a logical batch of any size, in pieces of at most `physical_batch` examples.

    Contributions are sums over examples, so the pieces add up to the same sum. The empty batch, which Poisson
    sampling draws with probability (1 - q)^N, has the sum zero: of all parameters, and of what else `groups` name.
    """
    if len(targets) == 0:
        empty = inputs.new_zeros(0)
        return GradientSum(sum_of_none(groups, engine.objective), empty, empty)
    count = math.ceil(len(targets) / physical_batch)  # of pieces, as equal as can be
    pieces = zip(inputs.chunk(count), targets.chunk(count), strict=True)
    total: GradientSum | None = None
    for piece_inputs, piece_targets in pieces:
        piece = clipping.sum_contributions(engine, piece_inputs, piece_targets, groups)
        total = piece if total is None else total + piece
    assert total is not None
    return total


def sum_of_none(groups: Sequence[NoiseGroup], objective: Objective) -> dict[str, Tensor]:
    """The sums over no example: of gradients by parameter name, and of single numbers that noise groups name beside."""
    zeros = {name: p.detach().new_zeros(p.shape) for name, p in objective.named_parameters()}
    like = next(iter(zeros.values()))
    named = {name for group in groups for name in group.parameters}
    return zeros | {name: like.new_zeros(()) for name in sorted(named - zeros.keys())}

"""Clipping strategies: each bounds the contribution of one example to the sum, and states that bound.

Here are the interface, no clipping, and those that rescale each example's gradient by a factor of its norm. The others
are in files of their own, which are imported when they are asked for.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from runner.config.fields import expect
from runner.gradients import Engine, GradientSum

LEAST_NORM = 1e-12  # far above the norms that float32 cannot distinguish from 0
MOST_NORM = 1e12  # a sum of very many such contributions stays in the range of float32
RANGE = f"from {LEAST_NORM:g} to {MOST_NORM:g}"


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


def clip_factors(norms: Tensor, bound: float | Tensor) -> Tensor:
    """Return min(1, bound / norm), elementwise, and 1 if the norm is 0."""
    return (bound / norms).clamp(max=1.0)  # bound / 0 = inf, clamped to 1


def cut_to(groups: Sequence[NoiseGroup]) -> Callable[[Tensor], Tensor]:
    """Return a function that cuts gradients of norms [..., groups] to the sensitivities of these groups."""
    bounds = [group.sensitivity for group in groups]
    return lambda norms: clip_factors(norms, torch.tensor(bounds, dtype=norms.dtype, device=norms.device))


@dataclass(frozen=True)
class _PerExample:
    """Rescaling of each example's gradient, in D groups of parameters, each to at most C / sqrt(D).

    The whole contribution has norm at most sqrt(D * C^2 / D) = C = `norm`. `runner.mechanism.dp_sgd` explains how
    groups share one noise multiplier.

    Raises:
        ValueError: `norm` is below 1e-12 or above 1e12. Squares of less than 1e-22 are zero in float32, and so is the
            norm of a gradient of such numbers. It would be released unclipped, so it has to be negligible next to the
            bound. Near 1e38 a sum overflows, which can show whether one example is in it.
    """

    norm: float
    needs_engine = True
    sums_by_engine = True

    def __post_init__(self) -> None:
        expect(LEAST_NORM <= self.norm <= MOST_NORM, f"clipping.norm {RANGE}", self.norm)

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        groups = self._groups(model)
        return tuple(NoiseGroup(group, self.norm / math.sqrt(len(groups))) for group in groups)

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        return engine.clipped_sum(inputs, targets, self._groups(engine.objective), self.factors)

    def factors(self, norms: Tensor) -> Tensor:
        """Return factors of norms [..., D] that bound each group, each a function of its norm: here min(1, ...)."""
        return clip_factors(norms, self.norm / math.sqrt(norms.shape[-1]))

    def _groups(self, model: nn.Module) -> list[tuple[str, ...]]:
        return [tuple(name for name, _ in model.named_parameters())]


@dataclass(frozen=True)
class Flat(_PerExample):
    """g_i * min(1, C / ||g_i||_2) over the whole gradient (Abadi et al., 2016, algorithm 1).

    Every contribution has norm at most C = `norm`, so adding or removing one example moves the sum by at most C.
    """


@dataclass(frozen=True)
class Automatic(_PerExample):
    """AUTO-S (Bu et al., 2023): C * g_i / (||g_i||_2 + stability).

    The contribution's norm is C ||g|| / (||g|| + stability) < C = `norm`. A zero gradient contributes zero. Norms below
    1e-15 lose digits in float32, and below 1e-19 may become zero. Both are negligible next to `stability`.

    Raises:
        ValueError: `stability` is below 1e-12, or above 1e12.
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(LEAST_NORM <= self.stability <= MOST_NORM, f"clipping.stability {RANGE}", self.stability)

    def factors(self, norms: Tensor) -> Tensor:
        return self.norm / (norms + self.stability)


@dataclass(frozen=True)
class PSAC(Automatic):
    """DP-PSAC (Xia et al., 2023): C * g_i / (||g_i||_2 + r / (||g_i||_2 + r)), with r = `stability`.

    The contribution's norm is C ||g|| / (||g|| + r / (||g|| + r)) < C = `norm`, as r / (||g|| + r) > 0. The factor is
    C for a zero gradient, and at most C / (2 sqrt(r) - r) if r < 1: with s = ||g|| + r the divisor is s + r / s - r.
    """

    def factors(self, norms: Tensor) -> Tensor:
        return self.norm / (norms + self.stability / (norms + self.stability))


@dataclass(frozen=True)
class PerLayer(_PerExample):
    """Clipping of each of the L layers with parameters separately, to C / sqrt(L) (McMahan et al., 2018)."""

    def _groups(self, model: nn.Module) -> list[tuple[str, ...]]:
        layers: dict[str, list[str]] = {}  # a layer's weight and bias belong together
        for name, _ in model.named_parameters():
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        return [tuple(layer) for layer in layers.values()]


_FILES = {"Backprop": "backprop", "BackpropOfMeanLoss": "backprop", "Lipschitz": "lipschitz"}


if not TYPE_CHECKING:  # code of this package names the file

    def __getattr__(name: str) -> Any:
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)

    def __dir__() -> list[str]:
        return [*globals(), *_FILES]

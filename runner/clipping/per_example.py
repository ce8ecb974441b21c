"""Strategies that rescale each example's gradient by a factor of its norm."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor, nn

from runner.clipping.interface import NoiseGroup
from runner.gradients import Engine, GradientSum


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"Expected {name} > 0 and finite, got {value}.")


def clip_factors(norms: Tensor, bound: float) -> Tensor:
    """min(1, bound / norm), elementwise; 1 where the norm is 0."""
    return (bound / norms).clamp(max=1.0)  # bound / 0 = inf, clamped to 1


@dataclass(frozen=True)
class Flat:
    """g_i * min(1, C / ||g_i||_2) over the whole gradient (Abadi et al., 2016, algorithm 1).

    Every contribution has norm at most C = `norm`, so adding or removing one example moves the sum by at most C.
    """

    norm: float

    def __post_init__(self) -> None:
        _positive("clipping.norm", self.norm)

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return (NoiseGroup(_names(model), self.norm),)

    def sum_contributions(self, engine: Engine, inputs: Tensor, targets: Tensor) -> GradientSum:
        groups = (_names(engine.objective),)
        return engine.clipped_sum(inputs, targets, groups, lambda norms: clip_factors(norms, self.norm))


@dataclass(frozen=True)
class Automatic:
    """AUTO-S (Bu et al., 2023): C * g_i / (||g_i||_2 + stability).

    The contribution's norm is C ||g|| / (||g|| + stability) < C = `norm`; a zero gradient contributes zero.
    """

    norm: float
    stability: float = 0.01

    def __post_init__(self) -> None:
        _positive("clipping.norm", self.norm)
        _positive("clipping.stability", self.stability)

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return (NoiseGroup(_names(model), self.norm),)

    def sum_contributions(self, engine: Engine, inputs: Tensor, targets: Tensor) -> GradientSum:
        groups = (_names(engine.objective),)
        return engine.clipped_sum(inputs, targets, groups, lambda norms: self.norm / (norms + self.stability))


@dataclass(frozen=True)
class PerLayer:
    """Each of the L layers with parameters is clipped on its own, to C / sqrt(L) (McMahan et al., 2018).

    The whole contribution has norm at most sqrt(L * C^2 / L) = C = `norm`. Each layer is a noise group of
    sensitivity C / sqrt(L); how groups share one noise multiplier is said in `runner.mechanism.dp_sgd`.
    """

    norm: float

    def __post_init__(self) -> None:
        _positive("clipping.norm", self.norm)

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        layers = _layers(_names(model))
        return tuple(NoiseGroup(layer, self.norm / math.sqrt(len(layers))) for layer in layers)

    def sum_contributions(self, engine: Engine, inputs: Tensor, targets: Tensor) -> GradientSum:
        layers = _layers(_names(engine.objective))
        bound = self.norm / math.sqrt(len(layers))
        return engine.clipped_sum(inputs, targets, layers, lambda norms: clip_factors(norms, bound))


def _names(model: nn.Module) -> tuple[str, ...]:
    return tuple(name for name, _ in model.named_parameters())


@lru_cache
def _layers(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Parameter names grouped by the module that owns them: a layer's weight and bias belong together."""
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(tuple(layer) for layer in layers.values())

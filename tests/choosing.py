"""Mechanisms and normalisations of a user's own: some that only choose, and some that draw or charge themselves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from dp_accounting import LaplaceDpEvent
from torch import Generator, Tensor, nn

from runner.accounting import Ledger
from runner.clipping import NoiseGroup
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.statistics import GroupNormalization


@dataclass(frozen=True)
class OwnName(Mechanism):
    """DP-SGD under another name."""


@dataclass(frozen=True)
class TwoLevels(Mechanism):
    """Less noise from the epoch `after` on, counted from 0."""

    after: int = 1
    later: float = 0.5

    def noise_factor(self, step: int) -> float:
        return 1.0 if step < self.after * self.steps_per_epoch else self.later


@dataclass(frozen=True)
class Alternating(Mechanism):
    """Every second step has half the noise."""

    def noise_factor(self, step: int) -> float:
        return 1.0 if step % 2 == 0 else 0.5


@dataclass(frozen=True)
class FirstMost(Mechanism):
    """The first noise group has nine tenths of a step's privacy."""

    def shares(self, noise_groups: Sequence[NoiseGroup]) -> Sequence[float]:
        others = len(noise_groups) - 1
        return [0.9, *[0.1 / others] * others]


@dataclass(frozen=True)
class Chooses(Mechanism):
    """Chooses the factor and the shares that a test sets."""

    factor: Any = 1.0
    share: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share == "raise":
            raise LookupError(self.share)

    def noise_factor(self, step: int) -> float:
        if self.factor == "raise":
            raise KeyError(step)
        return {"nan": math.nan, "tensor": torch.ones(()), "by step": 1 + step / 1000}.get(self.factor, self.factor)

    def shares(self, noise_groups: Sequence[NoiseGroup]) -> Any:
        return self.share


@dataclass(frozen=True)
class NoNoise(Mechanism):
    """Draws no noise."""

    def draw_noise(self, like: Mapping[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        return {name: torch.zeros_like(tensor) for name, tensor in like.items()}


class Wraps:
    """No subclass: it hands everything on to DP-SGD."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.inner = Mechanism(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


class Bare:
    """No mechanism at all."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass


@dataclass(frozen=True)
class Telescopes(Mechanism):
    """Noise z_t - z_(t-1): a sum of steps has no more noise than one step."""

    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        last = self.__dict__.setdefault("last", {})
        noisy = {}
        for group in self.noise_groups:
            for name in group.parameters:
                z = torch.randn(sums[name].shape, generator=generator)
                noisy[name] = (sums[name] + self.noise_std(group) * (z - last.get(name, 0))) / self.denominator
                last[name] = z
        return noisy


@dataclass(frozen=True)
class ChargesLaplace(Mechanism):
    """An event that no accountant here knows."""

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        ledger.release(LaplaceDpEvent(1.0), LaplaceDpEvent(1.0))


@dataclass(frozen=True)
class HalfTheNoise(Mechanism):
    def noise_std(self, group: NoiseGroup) -> float:
        return super().noise_std(group) / 2


@dataclass(frozen=True)
class ChoosesAndDraws(NoNoise):
    """A choice, in a class that does not leave the noise to the package."""

    def noise_factor(self, step: int) -> float:
        return 2.0


@dataclass(frozen=True)
class OwnNormalization(GroupNormalization):
    """Sees the private features when it is set up."""

    def fit(self, layer: nn.Module, features: Tensor, generator: Generator, ledger: Ledger) -> None:
        pass


class AnyArgument(nn.Tanh):
    """An activation with an argument of no type, which changes nothing."""

    def __init__(self, x: Any) -> None:
        super().__init__()

"""Clippings and features of a user's own: some that do less for privacy than they say, and some that only look so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from runner.clipping import Flat, NoiseGroup, Numbers, PerLayer
from runner.gradients import Engine, GradientSum


@dataclass(frozen=True)
class OwnFlat(Flat):
    """What it is called."""


@dataclass(frozen=True)
class StatesATenth(Flat):
    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return tuple(replace(group, sensitivity=group.sensitivity / 10) for group in super().noise_groups(model))


@dataclass(frozen=True)
class DropsOneLayer(PerLayer):
    """Leaves the third layer's gradients as they are."""

    def factors(self, norms: Tensor, numbers: Numbers) -> Tensor:
        factors = super().factors(norms, numbers).clone()
        factors[..., 2] = 1
        return factors


@dataclass(frozen=True)
class ByTheMeanNorm(Flat):
    """Clips the mean norm of a batch: one example by itself is clipped, and among others it is not."""

    def factors(self, norms: Tensor, numbers: Numbers) -> Tensor:
        return super().factors(norms.mean(-2, keepdim=True).expand_as(norms), numbers)


@dataclass(frozen=True)
class ClipsInOneWayOnly(Flat):
    """Clips call by call, and not where the step is a fixed sequence of calls."""

    def sum_contributions(self, engine: Engine, inputs: Tensor, targets: Tensor) -> GradientSum:
        return super().sum_with(engine, inputs, targets, vars(self))

    def sum_with(self, engine: Engine, inputs: Tensor, targets: Tensor, numbers: Numbers) -> GradientSum:
        return engine.plain_sum(inputs, targets)


@dataclass(frozen=True)
class Doubled:
    """Features of an image by itself."""

    def shape(self, image_shape: Sequence[int]) -> list[int]:
        return list(image_shape)

    def __call__(self, images: Tensor) -> Tensor:
        return 2 * images


@dataclass(frozen=True)
class LessTheMean(Doubled):
    """Takes away the mean of all the images that it is given, and divides by their deviation."""

    def __call__(self, images: Tensor) -> Tensor:
        return (images - images.mean(0)) / (images.std(0) + 1e-3)


@dataclass(frozen=True)
class OfSeveral(Doubled):
    """Fails on a single image."""

    def __call__(self, images: Tensor) -> Tensor:
        return images - images[1]

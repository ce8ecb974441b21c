"""Clippings and mechanisms of a user's own: some that do less for privacy than they say, and some that only look so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent
from torch import Generator, Tensor, nn

from runner.accounting import Ledger
from runner.clipping import Clipping, Flat, NoiseGroup, Numbers, PerLayer
from runner.gradients import Engine, GradientSum
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.sampling import poisson_batches, shuffled_batches


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
class OwnMechanism(Mechanism):
    """What it is called."""


@dataclass(frozen=True)
class DrawsATenth(Mechanism):
    """Draws a tenth of the examples that its batch size says, and charges for them."""

    def batches(self, generator: Generator) -> Iterator[Tensor]:
        return poisson_batches(self.examples, self.sampling_rate / 10, self.steps_per_epoch, generator)

    def _step_event(self) -> DpEvent:
        return PoissonSampledDpEvent(self.sampling_rate / 10, GaussianDpEvent(self.noise_multiplier))


@dataclass(frozen=True)
class ClipsToAQuarter(Mechanism):
    """Clips to a quarter of what the clipping states, and adds a quarter of the noise."""

    def applied(self, clipping: Clipping, batch: int) -> Clipping:
        assert isinstance(clipping, Flat)
        return replace(clipping, norm=clipping.norm / 4)

    def noise_std(self, group: NoiseGroup) -> float:
        return super().noise_std(group) / 4

    def most_moved(self, group: NoiseGroup) -> float:
        return super().most_moved(group) / 4


@dataclass(frozen=True)
class TwiceTheNoise(Mechanism):
    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        noise = super().release({name: torch.zeros_like(total) for name, total in sums.items()}, generator)
        return {name: sums[name] / self.denominator + 2 * noise[name] for name in sums}


@dataclass(frozen=True)
class HalfTheNoise(Mechanism):
    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        noise = super().release({name: torch.zeros_like(total) for name, total in sums.items()}, generator)
        return {name: sums[name] / self.denominator + noise[name] / 2 for name in sums}


@dataclass(frozen=True)
class HalfTheNoiseOfGraphs(Mechanism):
    def draw_noise(self, views: Mapping[str, Tensor], generator: Generator) -> None:
        super().draw_noise(views, generator)
        for view in views.values():
            view.mul_(0.5)


@dataclass(frozen=True)
class StatesHalfTheNoise(Mechanism):
    def noise_std(self, group: NoiseGroup) -> float:
        return super().noise_std(group) / 2


@dataclass(frozen=True)
class NoNoiseOnABias(Mechanism):
    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        last = list(sums)[-1]
        return super().release(sums, generator) | {last: sums[last] / self.denominator}


@dataclass(frozen=True)
class OneNumberAParameter(Mechanism):
    """The same noise on each coordinate of a parameter."""

    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        std = {name: self.noise_std(group) for group in self.noise_groups for name in group.parameters}
        return {
            name: (total + std[name] * torch.randn(1, generator=generator)) / self.denominator
            for name, total in sums.items()
        }


@dataclass(frozen=True)
class TheSameEveryStep(Mechanism):
    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        return super().release(sums, generator.manual_seed(0))


@dataclass(frozen=True)
class TheSameOnEachParameter(Mechanism):
    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        state, (group,) = generator.get_state(), self.noise_groups
        noisy = {}
        for name, total in sums.items():
            generator.set_state(state)
            noise = self.noise_std(group) * torch.randn(total.numel() + 64, generator=generator)[: total.numel()]
            noisy[name] = (total + noise.view(total.shape)) / self.denominator
        return noisy


@dataclass(frozen=True)
class TwiceTheSum(Mechanism):
    def release(self, sums: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        return super().release({name: 2 * total for name, total in sums.items()}, generator)


@dataclass(frozen=True)
class ChargesHalfTheRate(Mechanism):
    def _step_event(self) -> DpEvent:
        return PoissonSampledDpEvent(self.sampling_rate / 2, GaussianDpEvent(self.noise_multiplier))


@dataclass(frozen=True)
class DrawsTwiceTheRate(Mechanism):
    def batches(self, generator: Generator) -> Iterator[Tensor]:
        return poisson_batches(self.examples, 2 * self.sampling_rate, self.steps_per_epoch, generator)


@dataclass(frozen=True)
class ShufflesAndChargesSampling(Mechanism):
    def batches(self, generator: Generator) -> Iterator[Tensor]:
        return shuffled_batches(self.examples, self.batch_size, self.steps_per_epoch, generator)


@dataclass(frozen=True)
class RotatesAndChargesSampling(Mechanism):
    """Batches of random sizes that share no example."""

    def batches(self, generator: Generator) -> Iterator[Tensor]:
        first = 0
        for batch in super().batches(generator):
            yield (first + torch.arange(len(batch))) % self.examples
            first += len(batch)


@dataclass(frozen=True)
class ChargesDisjointBatches(Mechanism):
    """One Gaussian an epoch, of batches that are not disjoint."""

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        if step_in_epoch == 0:
            ledger.release(actual=GaussianDpEvent(self.noise_multiplier), claimed=None)


@dataclass(frozen=True)
class TakesBackForNothing(Mechanism):
    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        if kept:
            super().charge_step(ledger, step_in_epoch)


@dataclass(frozen=True)
class ChargesTwoReleases(Mechanism):
    """More than is known how to try."""

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        super().charge_step(ledger, step_in_epoch, kept=kept)
        ledger.release(actual=GaussianDpEvent(100.0), claimed=GaussianDpEvent(100.0))


@dataclass(frozen=True)
class StatesItMovesLess(Mechanism):
    """Half the noise, and half of what one example is said to move."""

    def noise_std(self, group: NoiseGroup) -> float:
        return super().noise_std(group) / 2

    def most_moved(self, group: NoiseGroup) -> float:
        return group.sensitivity / 2


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

"""Deliberate faults: mistakes that papers and libraries have made, planted in the code under attack.

Each replaces one part of a target by a faulty one. The audit has to accuse the faulty target, and not the original. The
mistake of charging kept updates alone needs no planting: it is the claim in `attacks.Screened`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from checks.audit.targets import BANDED, Lowered, Setting, Target
from runner.accounting import Ledger, gaussian
from runner.clipping import Clipping, Flat, NoiseGroup, PerLayer
from runner.clipping.backprop import Backprop
from runner.config import Sampling
from runner.gradients import Engine, GradientSum
from runner.mechanism.banded import Banded
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.layerwise import Joint, OriginalBug
from runner.mechanism.normal import PastNoise


class NoiseHalved(Mechanism):
    """A mechanism that draws noise of half the charged standard deviation."""

    def noise_std(self, group: NoiseGroup) -> float:
        return super().noise_std(group) / 2


class NoiseReused(Mechanism):
    """A mechanism that draws from a copy of the generator: all steps get the same noise."""

    def release(
        self, sums: dict[str, Tensor], generator: Generator, past: PastNoise | None = None
    ) -> dict[str, Tensor]:
        return super().release(sums, torch.Generator().set_state(generator.get_state()), past)


class ActualBatchSize(Mechanism):
    """A mechanism that divides by the actual number of examples, with the noise for the expected number."""

    def applied(self, clipping: Clipping, batch: int) -> Clipping:
        times: Clipping = remade(clipping, _Times, times=self.batch_size / max(1, batch))
        return times


class AmplifiedFirst(Joint):
    """A mechanism that charges every layer as its own sample, then composes, although layers share one batch."""

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        layers = len(self.noise_groups)
        event = gaussian(self.noise_multiplier * layers**0.5, self.sampling_rate)
        ledger.release(event, event, layers)


class ShufflingAmplified(Mechanism):
    """A mechanism that charges shuffled batches as Poisson samples."""

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        event = gaussian(self.noise_multiplier, self.sampling_rate)
        ledger.release(actual=event, claimed=event)


class SampledFromAll(Banded):
    """A mechanism that samples from parts, and charges for samples from all examples."""

    def charge_step(self, ledger: Ledger, step_in_epoch: int, *, kept: bool = True) -> None:
        event = gaussian(self.noise_multiplier, self.batch_size / self.examples)
        if step_in_epoch % self.bands == 0:
            ledger.release(event, event)


class LongColumns(Banded):
    """A mechanism whose strategy has columns of norm two."""

    @property
    def coefficients(self) -> tuple[float, ...]:
        return tuple(2 * coefficient for coefficient in super().coefficients)


class BugBelieved(OriginalBug):
    """Backpropagation Clipping's own code, charged as its authors did."""

    def _true_multiplier(self) -> float:
        return self.noise_multiplier


@dataclass(frozen=True)
class _Times(Flat):
    """Flat clipping whose sums are multiplied by a number."""

    times: float = 1.0

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        total = super().sum_contributions(engine, inputs, targets, groups)
        return replace(total, gradients={name: self.times * g for name, g in total.gradients.items()})


class LastLayerUnclipped(PerLayer):
    """A clipping that leaves the last layer's gradients as they are."""

    def factors(self, norms: Tensor) -> Tensor:
        factors = super().factors(norms)
        return torch.cat([factors[..., :-1], torch.ones_like(factors[..., -1:])], dim=-1)


class NormsOfExactPasses(Flat):
    """A clipping of gradients in fewer bits by the norms of the gradients in 32 bits."""

    def sum_contributions(
        self, engine: Engine, inputs: Tensor, targets: Tensor, groups: Sequence[NoiseGroup] = ()
    ) -> GradientSum:
        assert isinstance(engine, Lowered)
        precision = engine.recorded.precision
        engine.recorded.compute_in(None)
        norms = super().sum_contributions(engine, inputs, targets).norms
        engine.recorded.compute_in(precision)
        assert norms is not None
        factors = self.factors(norms[:, None])
        return engine.clipped_sum(inputs, targets, self._groups(engine.objective), lambda _: factors)


class KernelForgotten(Backprop):
    """A clipping that states a b for a convolution under plain l2 norms, without its kernel's factor sqrt(kh kw)."""

    def sensitivity(self, layer: nn.Linear | nn.Conv2d) -> float:
        return self.input_bound * self.upstream_bound


class MapForgotten(Backprop):
    """A clipping that states (a^2 + 1)^(1/2) b for a convolution with a bias under l2 norms.

    A bias on a map of P positions has sqrt(P) b.
    """

    def sensitivity(self, layer: nn.Linear | nn.Conv2d) -> float:
        return float((self.input_bound**2 + 1) ** 0.5 * self.upstream_bound)


def remade(part: Any, kind: Any, **changes: Any) -> Any:
    """Make a part of another class, with the arguments of a part and some changes."""
    return kind(**{field.name: getattr(part, field.name) for field in fields(part)} | changes)


def _mechanism(kind: type[Mechanism]) -> Callable[[Target], Target]:
    return lambda target: replace(target, mechanism=remade(target.mechanism, kind))


def _clipping(kind: Any, **changes: Any) -> Callable[[Target], Target]:
    def plant(target: Target) -> Target:
        clipping = remade(target.clipping, kind, **changes)
        groups = clipping.noise_groups(target.network.objective)
        return replace(target, clipping=clipping, mechanism=replace(target.mechanism, noise_groups=groups))

    return plant


@dataclass(frozen=True)
class Fault:
    """A mistake, and the setting that it is planted in.

    `gaussian`: True if the releases still have the charge's shape, so that a bound of that shape holds.
    """

    name: str
    setting: Setting
    noise_multiplier: float
    plant: Callable[[Target], Target]
    gaussian: bool = True


_ALL, _SMOOTH = Setting("flat"), Setting("backprop", "joint", network="smooth")
_TURNS = Setting("flat", BANDED, steps=4, more={"bands": 2}).sampled(5)
_SHUFFLED = Setting("flat", sampling=Sampling.shuffled, steps=10).sampled()
_DEEP = Setting("backprop", "joint", network="deep").sampled()
_IN_BF16 = Setting("flat", network="cancelling", beside=("precision", "bf16"))
_BUG = Setting("backprop", "original_bug", Sampling.shuffled, more={"asked_for": "original_bug"})
_KERNEL, _MAP = (_clipping(kind, convolution_norm="l2") for kind in (KernelForgotten, MapForgotten))

FAULTS = (
    Fault("noise halved", _ALL, 2.0, _mechanism(NoiseHalved)),
    Fault("the same noise at two steps", replace(_ALL, steps=2).sampled(5), 2.0, _mechanism(NoiseReused), False),
    Fault("sum divided by the actual batch size", _ALL, 2.0, _mechanism(ActualBatchSize)),
    Fault("clip dropped in one layer", Setting("per_layer", network="convolution"), 2.0, _clipping(LastLayerUnclipped)),
    Fault("Lipschitz factor of a kernel forgotten", _SMOOTH, 1.0, _KERNEL),
    Fault("Lipschitz factor of a bias on a map forgotten", replace(_SMOOTH, network="smooth, bias"), 2.0, _MAP),
    Fault("layers amplified first, then composed", _DEEP, 0.35, _mechanism(AmplifiedFirst), False),
    Fault("shuffled batches charged as Poisson samples", _SHUFFLED, 0.14, _mechanism(ShufflingAmplified), False),
    Fault("samples from parts charged as from all examples", _TURNS, 1.5, _mechanism(SampledFromAll), False),
    Fault("columns of the strategy with norm two", _TURNS, 2.5, _mechanism(LongColumns)),
    Fault("norms of other numbers than those that are summed, in bf16", _IN_BF16, 2.0, _clipping(NormsOfExactPasses)),
    Fault("noise too small by the batch size (the original bug)", _BUG, 2.5, _mechanism(BugBelieved)),
)

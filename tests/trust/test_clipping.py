"""A clipping of a user's own: applied to one example, and cut to what it states, whatever it does."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from runner.clipping import Flat, NoiseGroup, PerLayer, gradient_sum
from runner.config import ConfigError
from runner.gradients import ENGINES, MappedEngine, Objective
from runner.trust.dp_mechanism import FromDPMechanism
from runner.trust.own_parts import OwnClipping
from tests.references import distance

NORM = 0.1


@dataclass(frozen=True)
class Huber(Flat):
    """C g / sqrt(C^2 + ||g||^2)."""

    def factors(self, norms: Tensor) -> Tensor:
        return self.norm / (norms.square() + self.norm**2).sqrt()


@dataclass(frozen=True)
class StatesATenth(Flat):
    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return tuple(replace(group, sensitivity=group.sensitivity / 10) for group in super().noise_groups(model))


@dataclass(frozen=True)
class LeavesTheLast(PerLayer):
    def factors(self, norms: Tensor) -> Tensor:
        return torch.cat([super().factors(norms)[:-1], torch.ones(1)])


def by(rule: Callable[[Tensor], Tensor]) -> Flat:
    """Make a clipping with factors by a rule."""

    class Own(Flat):
        def factors(self, norms: Tensor) -> Tensor:
            return rule(norms)

    return Own(NORM)


@dataclass(frozen=True)
class Signs:
    """The signs of one example's gradient, cut to the norm."""

    norm: float

    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return (NoiseGroup(tuple(name for name, _ in model.named_parameters()), self.norm),)

    def contribution(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: gradient.sign() for name, gradient in gradients.items()}


@dataclass(frozen=True)
class Constant(Signs):
    """Contributes more where the gradient is zero, and infinity where it is long."""

    def contribution(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: 1 / gradient.abs() for name, gradient in gradients.items()}


OWN: dict[str, Any] = {
    "pseudo-Huber": Huber(NORM),
    "a tenth stated": StatesATenth(NORM),
    "the last group left": LeavesTheLast(NORM),
    "a wrong exponent": by(lambda norms: 1 / norms.square()),  # makes short gradients long
    "negative": by(lambda norms: -100 * torch.ones_like(norms)),
    "not a number": by(lambda norms: torch.full_like(norms, math.nan)),
    "signs": Signs(NORM),
    "constant": Constant(NORM),
}


def objective() -> Objective:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    return Objective(network, nn.CrossEntropyLoss(reduction="none"))


def examples(scale: float) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return scale * torch.randn(6, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2])


def moved(clipping: Any, model: Objective, inputs: Tensor, targets: Tensor, out: int) -> list[float]:
    """By how much taking one example out moves the sum of each group, in parts of its stated sensitivity."""
    engine = MappedEngine(model) if clipping.needs_gradients else ENGINES["one_pass"](model)
    others = torch.arange(len(targets)) != out
    total = gradient_sum(clipping, engine, inputs, targets, 8).gradients
    fewer = gradient_sum(clipping, engine, inputs[others], targets[others], 8).gradients
    return [distance(total, fewer, group.parameters) / group.sensitivity for group in clipping.groups]


@pytest.mark.parametrize("scale", [0.0, 1e-25, 1.0, 1e30])
@pytest.mark.parametrize("name", OWN)
def test_one_example_moves_the_sum_by_at_most_what_is_stated(name: str, scale: float) -> None:
    model = objective()
    clipping = OwnClipping(OWN[name], model)
    for out in (0, 5):
        parts = moved(clipping, model, *examples(scale), out)
        assert max(parts) <= 1 + 1e-4
        assert all(map(math.isfinite, parts))


def test_a_norm_that_is_zero_in_float32_bounds_the_factor() -> None:
    """The gradient may still be as long as 1e-12, so the factor is at most the sensitivity over that."""
    clipping = OwnClipping(by(lambda norms: torch.full_like(norms, 1e30)), objective())
    (factor,) = clipping._bounded_factors(torch.zeros(1, 1)).flatten().tolist()
    assert factor == pytest.approx(NORM / 1e-12)


def test_a_bound_that_holds_is_left_alone() -> None:
    """Huber factors, and a stated tenth of the bound used in full."""
    model, (inputs, targets) = objective(), examples(1.0)
    engine = ENGINES["one_pass"](model)
    names = [name for name, _ in model.named_parameters()]
    expected = engine.clipped_sum(inputs, targets, [names], lambda norms: NORM / (norms.square() + NORM**2).sqrt())
    computed = gradient_sum(OwnClipping(Huber(NORM), model), engine, inputs, targets, 8)
    torch.testing.assert_close(computed.gradients, expected.gradients)
    assert moved(OwnClipping(StatesATenth(NORM), model), model, inputs, targets, 0) == pytest.approx([1.0], rel=1e-4)


@dataclass(frozen=True)
class SeesTheBatch(Flat):
    def sum_contributions(self, engine: Any, inputs: Tensor, targets: Tensor) -> Any:
        return engine.plain_sum(inputs, targets)


class Nothing:
    def noise_groups(self, model: nn.Module) -> Sequence[NoiseGroup]:
        return ()


@dataclass(frozen=True)
class NamesOne(Flat):
    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return (NoiseGroup(("network.1.weight",), 1.0),)


@dataclass(frozen=True)
class ReadsNumbers(Flat):
    """As files were written for an older version."""

    def factors(self, norms: Tensor, numbers: Any) -> Tensor:  # type: ignore[override]
        return float(numbers["norm"]) / norms


@dataclass(frozen=True)
class Unbounded(Flat):
    def noise_groups(self, model: nn.Module) -> tuple[NoiseGroup, ...]:
        return tuple(replace(group, sensitivity=math.inf) for group in super().noise_groups(model))


@pytest.mark.parametrize(
    ("clipping", "message"),
    [
        (SeesTheBatch(NORM), "would see a whole batch: write `factors"),
        (Nothing(), "has no method that clips one example"),
        (ReadsNumbers(NORM), r"ReadsNumbers\.factors has to take one argument: .* Its own numbers are attributes"),
        (NamesOne(NORM), "does not name every parameter once"),
        (Unbounded(NORM), r"states a sensitivity of inf: it has to be from 1e-12 to 1e\+12"),
    ],
)
def test_what_cannot_be_bounded_is_refused(clipping: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OwnClipping(clipping, objective())


def test_factors_of_several_examples_fail_on_one() -> None:
    by_the_mean = by(lambda norms: NORM / norms.mean(-2, keepdim=True).expand_as(norms))
    with pytest.raises(ConfigError, match="Dimension out of range"):
        OwnClipping(by_the_mean, objective()).mapped(objective())


@pytest.mark.parametrize(
    ("clipping", "message"),
    [
        (Huber(NORM), ""),
        (StatesATenth(NORM), "StatesATenth.factors turns a gradient of norm 0.1 into one of 0.1. It is cut to the"),
        (by(lambda norms: -100 * torch.ones_like(norms)), "turns a gradient of norm 0.01 into one of 1."),
        (Signs(NORM), "Signs.contribution turns a gradient of norm 0.001 into one of 3.46."),
    ],
)
def test_a_contribution_above_its_bound_is_named_before_training(clipping: Any, message: str) -> None:
    model = nn.Linear(3, 3)  # 12 numbers, and the signs of them have the norm sqrt(12)
    assert message in "".join(OwnClipping(clipping, model).longer(model))
    assert bool(message) == bool(OwnClipping(clipping, model).longer(model))


@dataclass(frozen=True)
class Normalised(Signs):
    """Divides by zero where a number is small."""

    def contribution(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: gradient / (gradient.abs() > 1).float() for name, gradient in gradients.items()}


@pytest.mark.parametrize("clipping", [by(lambda norms: (norms > 0.5).float().log()), Normalised(NORM)])
def test_a_non_finite_contribution_is_refused_before_training(clipping: Any) -> None:
    model = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="is not finite for a gradient of norm"):
        OwnClipping(clipping, model).longer(model)


class _Normalised:
    """g / (|g| + 0.5) of each example of a batch, with noise of its multiplier, as an agent would write it."""

    noise = 0.0  # of its own
    most, least = float("inf"), float("inf")  # the threshold at first and later

    def __init__(self, max_grad_norm: float, noise_multiplier: float, **sizes: Any) -> None:
        self.noise_multiplier, self.sizes = noise_multiplier, sizes

    def clip_and_noise(self, per_sample_grads: list[torch.Tensor], step: int, epoch: int) -> list[torch.Tensor]:
        batch = len(per_sample_grads[0])
        norms = torch.cat([g.reshape(batch, -1) for g in per_sample_grads], dim=1).norm(2, dim=1)
        factors = torch.clamp((self.least if step else self.most) / norms, max=1) / (norms + 0.5)
        means = [(g * factors.reshape(-1, *[1] * (g.dim() - 1))).mean(dim=0) for g in per_sample_grads]
        return [m + torch.randn_like(m) * (self.noise_multiplier + self.noise) / batch for m in means]

    def get_effective_sigma(self, step: int, epoch: int) -> float:
        return self.noise_multiplier * (0.5 if step else 1.0)


class _Clipping(FromDPMechanism):
    mechanism = _Normalised


class _Rescaled(Flat):
    """The same contributions, cut to the norm C: g / (|g| + 0.5) min(1, C (|g| + 0.5) / |g|)."""

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        return torch.minimum(1 / (norms + 0.5), self.norm / norms)


class _OwnNoise(FromDPMechanism):
    mechanism = type("_Noisy", (_Normalised,), {"noise": 0.1})


class _Rising(FromDPMechanism):  # felt only by gradients above five times the norm
    mechanism = type("_Raising", (_Normalised,), {"most": 5.0, "least": 8.0})


@pytest.mark.parametrize("norm", [1.0, 0.01])
def test_its_contributions_are_summed_and_cut(norm: float) -> None:
    model, inputs, targets = objective(), torch.randn(7, 1, 4, 4), torch.randint(0, 3, (7,))
    engine = MappedEngine(model)
    sums = gradient_sum(OwnClipping(_Clipping(norm), model), engine, inputs, targets, 8).gradients
    expected = gradient_sum(OwnClipping(_Rescaled(norm), model), engine, inputs, targets, 8).gradients
    torch.testing.assert_close(sums, expected)
    assert _Clipping(norm).stated_noise() == (1.0, 0.5)


@pytest.mark.parametrize(("kind", "reason"), [(_OwnNoise, "adds noise of its own"), (_Rising, "in a later step")])
def test_noise_of_its_own_is_refused(kind: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        OwnClipping(kind(1.0), nn.Linear(5, 3))

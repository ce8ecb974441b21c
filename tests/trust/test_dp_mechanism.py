"""The clipping of a benchmark's `DPMechanism` is taken alone, and its noise is this package's."""

from typing import Any

import pytest
import torch
from torch import nn

from runner.clipping import Flat, gradient_sum
from runner.gradients import MappedEngine
from runner.trust.dp_mechanism import FromDPMechanism
from runner.trust.parts import own_clipping
from tests.trust.test_clipping import objective


class _Normalised:
    """g / (|g| + 0.5) of each example of a batch, with noise of its multiplier, as an agent would write it."""

    noise = 0.0  # of its own
    late = 1.0  # factor of contributions after the first step
    most, least = float("inf"), float("inf")  # the threshold at first and later

    def __init__(self, max_grad_norm: float, noise_multiplier: float, **sizes: Any) -> None:
        self.noise_multiplier, self.sizes = noise_multiplier, sizes

    def clip_and_noise(self, per_sample_grads: list[torch.Tensor], step: int, epoch: int) -> list[torch.Tensor]:
        batch = len(per_sample_grads[0])
        norms = torch.cat([g.reshape(batch, -1) for g in per_sample_grads], dim=1).norm(2, dim=1)
        factors = (
            (self.late if step else 1.0)
            / (norms + 0.5)
            * torch.clamp((self.least if step else self.most) / norms, max=1)
        )
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


class _Later(FromDPMechanism):
    mechanism = type("_Growing", (_Normalised,), {"late": 2.0})


class _Falling(FromDPMechanism):  # felt only by gradients above half of the norm
    mechanism = type("_Lowering", (_Normalised,), {"most": 5.0, "least": 0.5})


class _Rising(FromDPMechanism):  # felt only by gradients above five times the norm
    mechanism = type("_Raising", (_Normalised,), {"most": 5.0, "least": 8.0})


REFUSED = [(_OwnNoise, "adds noise of its own"), *((kind, "in a later step") for kind in (_Later, _Falling, _Rising))]


@pytest.mark.parametrize("norm", [1.0, 0.01])
def test_its_contributions_are_summed_and_cut(norm: float) -> None:
    model, inputs, targets = objective(), torch.randn(7, 1, 4, 4), torch.randint(0, 3, (7,))
    engine = MappedEngine(model)
    sums = gradient_sum(own_clipping(_Clipping(norm), model), engine, inputs, targets, 8).gradients
    expected = gradient_sum(own_clipping(_Rescaled(norm), model), engine, inputs, targets, 8).gradients
    for name, total in expected.items():
        torch.testing.assert_close(sums[name], total)


@pytest.mark.parametrize(("kind", "reason"), REFUSED)
def test_noise_of_its_own_is_refused(kind: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        own_clipping(kind(1.0), nn.Linear(5, 3))


def test_it_tells_the_noise_that_the_class_states() -> None:
    assert _Clipping(1.0).stated_noise() == (1.0, 0.5)

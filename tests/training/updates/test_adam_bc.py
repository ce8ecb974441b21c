"""Adam with a second moment less the noise: by hand, against PyTorch's Adam, and with the noise that a run draws."""

from __future__ import annotations

import math

import pytest
import torch

from runner.build.prepare import prepare
from runner.mechanism.normal import generator
from runner.training.updates.adam_bc import AdamBC

BC = "optimizer=adam_bc"


def test_two_steps_by_hand() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = AdamBC([weight], lr=0.1, betas=(0.5, 0.75), floor=1e-2)
    optimizer.take_noise({weight: 2.0})
    weight.grad = torch.tensor([3.0], dtype=torch.float64)
    optimizer.step()  # m = 3, v = 9 and Phi = 4
    assert weight.item() == pytest.approx(1 - 0.1 * 3 / math.sqrt(5), rel=1e-12)
    before = weight.item()
    weight.grad = torch.tensor([1.0], dtype=torch.float64)
    optimizer.step()  # m = (0.25 * 3 + 0.5 * 1) / 0.75, v = (0.1875 * 9 + 0.25 * 1) / 0.4375
    assert weight.item() == pytest.approx(before - 0.1 * (1.25 / 0.75) / math.sqrt(1.9375 / 0.4375 - 4), rel=1e-12)
    for _ in range(20):  # v - Phi is negative: the floor holds
        before, weight.grad = weight.item(), torch.zeros(1, dtype=torch.float64)
        optimizer.step()
    mean = optimizer.state[weight]["mean"].item() / (1 - 0.5**22)
    assert weight.item() == pytest.approx(before - 0.1 * mean / math.sqrt(1e-2), rel=1e-12)


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_the_variance_is_that_of_the_noise_that_is_drawn(smoke, clipping: str) -> None:
    """10% off, as for a forgotten sqrt(D) or batch size, is far outside the error of 10,000 numbers."""
    run = prepare(smoke(BC, f"clipping={clipping}", "noise_multiplier=1.3", "target_epsilon=null"))
    objective = run.new_objective()
    zeros = {name: torch.zeros_like(parameter) for name, parameter in objective.named_parameters()}
    noise = run.mechanism.release(zeros, generator(0, "noise", torch.device("cpu")))
    variance = run.optimizer(objective)._variance
    for name, parameter in objective.named_parameters():
        count = parameter.numel()
        assert noise[name].square().mean().item() == pytest.approx(variance[parameter], rel=5 * math.sqrt(2 / count))
    assert max(parameter.numel() for parameter in objective.parameters()) > 5_000

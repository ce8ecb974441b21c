"""The number of examples that pass through a network at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from checks.benchmarks.problems import problem
from runner.clipping import NoClipping, gradient_sum
from runner.gradients import ENGINES, GradientSum
from runner.speed.slices import examples_in_cache


@pytest.mark.parametrize(("network", "numbers"), [("M", 16 * 14 * 14), ("C", 32 * 32 * 32)])
def test_an_ordinary_pass_keeps_the_largest_output_in_the_cache(network: str, numbers: int) -> None:
    case = problem(network, 1)
    assert examples_in_cache(case.network, case.inputs.shape[1:]) == 8 * 2**20 // (4 * numbers)


def test_trying_the_network_leaves_no_trace() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 2))
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert examples_in_cache(network, [2, 2]) == 8 * 2**20 // 16
    assert torch.equal(torch.rand(3), expected)
    assert not any(module._forward_hooks for module in network.modules())


def test_pieces_are_as_equal_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    case, sizes = problem("M", 10), []
    plain = NoClipping.sum_contributions

    def noted(self: NoClipping, engine: object, inputs: torch.Tensor, *further: Any) -> GradientSum:
        sizes.append(len(inputs))
        return plain(self, engine, inputs, *further)

    monkeypatch.setattr(NoClipping, "sum_contributions", noted)
    engine = ENGINES["isolated"](case.objective)
    gradient_sum(NoClipping(), engine, case.inputs, case.targets, physical_batch=8)
    assert sizes == [5, 5]

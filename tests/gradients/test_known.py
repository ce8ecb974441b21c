"""Objectives that the engines of a whole batch accept: every known type, and no disguise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from runner.clipping import Flat, gradient_sum
from runner.gradients import ENGINES, MappedEngine, Objective, OnePassEngine, unknown
from runner.gradients.interface import KNOWN
from runner.networks.lipschitz import layers
from runner.networks.wide_resnet import Branches
from tests.references import distance

PLAIN = nn.CrossEntropyLoss(reduction="none")
OF_IMAGES: dict[type[nn.Module], Callable[[], nn.Module]] = {
    nn.MaxPool2d: lambda: nn.MaxPool2d(2, 1),
    nn.AvgPool2d: lambda: nn.AvgPool2d(2),
    nn.AdaptiveAvgPool2d: lambda: nn.AdaptiveAvgPool2d(2),
    nn.GroupNorm: lambda: nn.GroupNorm(2, 4),
    nn.Conv2d: lambda: nn.Conv2d(4, 4, 3, padding=1),
    nn.Linear: lambda: nn.Linear(6, 6),
    nn.Threshold: lambda: nn.Threshold(0.1, 0.0),
    nn.Sequential: lambda: nn.Sequential(nn.Tanh()),
    nn.Flatten: lambda: nn.Sequential(nn.Flatten(2), nn.Tanh()),
    nn.Dropout: lambda: nn.Dropout(0.0),  # random numbers would not be the same in two batches
}


def objective_with(module: nn.Module) -> Objective:
    """Images of 1 x 8 x 8 to three logits, with a module in the middle."""
    torch.manual_seed(0)
    before = nn.Sequential(nn.Conv2d(1, 4, 3), module)
    numbers = before(torch.zeros(1, 1, 8, 8)).numel()
    return Objective(nn.Sequential(before, nn.Flatten(), nn.Linear(numbers, 3)), PLAIN)


@pytest.mark.parametrize("kind", sorted(KNOWN - {nn.CrossEntropyLoss}, key=lambda kind: kind.__name__))
def test_every_known_type_keeps_examples_apart(kind: type[nn.Module]) -> None:
    """The sums of a batch are as the isolated engine's, and removing an example moves them by C."""
    objective = objective_with(OF_IMAGES.get(kind, kind)())
    assert unknown(objective) is None
    engine = ENGINES["one_pass"](objective)
    assert isinstance(engine, OnePassEngine)
    inputs, targets = 3 * torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    total_of_all = gradient_sum(Flat(0.01), engine, inputs, targets, 8).gradients
    isolated = gradient_sum(Flat(0.01), MappedEngine(objective), inputs, targets, 8).gradients
    for name, total in total_of_all.items():
        torch.testing.assert_close(total, isolated[name], rtol=1e-3, atol=1e-7)
    without_first = gradient_sum(Flat(0.01), engine, inputs[1:], targets[1:], 8).gradients
    assert distance(total_of_all, without_first) == pytest.approx(0.01, rel=1e-3)


class OwnTanh(nn.Tanh):
    pass


def changed(module: nn.Module, name: str, value: object) -> nn.Module:
    """Return the module with an attribute set."""
    setattr(module, name, value)
    return module


def hooked(kind: str) -> nn.Module:
    module = nn.Conv2d(4, 4, 1)
    if kind == "weight":
        module.weight.register_hook(lambda g: g)
    else:
        getattr(module, f"register_{kind}_hook")(lambda *args: None)
    return module


def centred(x: Tensor) -> Tensor:
    return x - x.mean(0)


UNKNOWN: dict[str, Callable[[], nn.Module]] = {
    "a subclass": OwnTanh,
    "its own forward": lambda: changed(nn.Tanh(), "forward", centred),
    "a forward hook": lambda: hooked("forward"),
    "a forward pre-hook": lambda: hooked("forward_pre"),
    "a backward hook": lambda: hooked("full_backward"),
    "a hook on a weight": lambda: hooked("weight"),
    "a parametrisation": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1)),
    "batch normalisation": lambda: nn.BatchNorm2d(4),
    "examples joined": lambda: nn.Sequential(nn.Flatten(0), nn.Identity()),
    "a graph": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Tanh())),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_exactly_known_is_mapped(case: str) -> None:
    objective = Objective(nn.Sequential(nn.Conv2d(1, 4, 3), UNKNOWN[case](), nn.Flatten(), nn.LazyLinear(3)), PLAIN)
    assert unknown(objective)
    if "joined" not in case:
        objective(torch.zeros(2, 1, 8, 8), torch.zeros(2).long())  # gives the last layer its shape
    assert isinstance(ENGINES["one_pass"](objective), MappedEngine)


def test_a_module_inside_itself_is_looked_at_once() -> None:
    objective = objective_with(nn.Tanh())
    objective.network.itself = objective.network
    assert unknown(objective) is None


@pytest.mark.parametrize("mixing", [layers.Residual(nn.Flatten()), Branches(nn.Flatten(), nn.Identity())])
def test_branches_of_different_shapes_are_refused(mixing: nn.Module) -> None:
    """[batch, 1, n] + [batch, n] would be [batch, batch, n], in which examples are mixed."""
    with pytest.raises(ValueError, match="shapes have to"):
        mixing(torch.zeros(2, 1, 64))

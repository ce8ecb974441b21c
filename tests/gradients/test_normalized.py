"""Group normalisation and standardised weights: engines of whole batches against single examples, and the bound."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from runner.gradients import GradientSum, Objective, OnePassEngine
from runner.gradients.terms import Factors
from runner.networks.standardized import StandardizedConv2d, standardized
from runner.networks.wide_resnet import wide_resnet
from runner.training.graph.network import MaskedEngine, RecordedObjective
from tests import references

EXAMPLES = 5
ENGINES = ("one_pass", "graph")
PLAIN = nn.CrossEntropyLoss(reduction="none")
NETWORKS = {
    "wide residual": lambda: wide_resnet([2, 6, 6], 3, nn.Tanh, depth=10, width=1, groups=4),
    "one position": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        StandardizedConv2d(4, 6, 3),
        nn.Flatten(),
        nn.GroupNorm(2, 6),  # of vectors
        nn.Linear(6, 3),
    ),
}


def made(network: str, views: int = 1) -> Objective:
    """An objective in float64, with every parameter moved from its start."""
    torch.manual_seed(1)
    objective = Objective(NETWORKS[network](), PLAIN).double()
    for p in objective.parameters():
        p.data += 0.3 * torch.randn_like(p)
    objective.views = views
    return objective


def data(views: int = 1) -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    inputs = torch.randn(EXAMPLES, views, 2, 6, 6, dtype=torch.float64)
    inputs *= torch.logspace(-1, 1, EXAMPLES)[:, None, None, None, None]
    return inputs if views > 1 else inputs[:, 0], torch.arange(EXAMPLES) % 3


@cache
def per_example(network: str, views: int) -> dict[str, Tensor]:
    """Gradients of single examples [batch, *shape]."""
    computed = references.per_example(made(network, views), *data(views))
    return {name: torch.stack([gradient[name] for gradient in computed]) for name in computed[0]}


def summed(engine: str, objective: Objective, inputs: Tensor, targets: Tensor, factors: Factors | None) -> GradientSum:
    """The sum over the examples, each parameter a group, or without clipping."""
    groups = [[name] for name, _ in objective.named_parameters()]
    if engine == "one_pass":
        summing = OnePassEngine(objective)
    else:
        views, objective.views = objective.views, 1
        recorded = RecordedObjective(objective, views)
        summing = MaskedEngine(recorded, recorded.values.clone(), torch.ones(EXAMPLES, dtype=torch.bool))
        recorded.values.zero_()  # a pass depends on the values that it is given
    total = (
        summing.plain_sum(inputs, targets) if factors is None else summing.clipped_sum(inputs, targets, groups, factors)
    )
    assert getattr(summing, "_fallback", None) is None
    gradients = {name: total.gradients[name].view_as(p) for name, p in objective.named_parameters()}
    return GradientSum(gradients, total.losses, total.norms)


def falling(norms: Tensor) -> Tensor:
    return (1 + norms).reciprocal()


def assert_weighted(computed: GradientSum, gradients: dict[str, Tensor], tolerance: float) -> None:
    """The sum has for each parameter of each example a factor by its norm, and the norms are exact."""
    norms = {name: g.flatten(1).norm(dim=1) for name, g in gradients.items()}
    assert all(norm.max() > 1e-3 for norm in norms.values()), "a parameter without a gradient shows nothing"
    assert computed.norms is not None
    torch.testing.assert_close(
        computed.norms.double(), torch.stack(list(norms.values())).norm(dim=0), rtol=tolerance, atol=0
    )
    for name, g in gradients.items():
        weighted = torch.tensordot(falling(norms[name]), g, 1)
        assert (computed.gradients[name] - weighted).norm() <= tolerance * weighted.norm(), name


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_norms_and_sums_are_those_of_single_examples(engine: str, network: str, views: int) -> None:
    clipped, plain = (summed(engine, made(network, views), *data(views), factors) for factors in (falling, None))
    gradients = per_example(network, views)
    assert_weighted(clipped, gradients, 1e-10)
    for name, g in gradients.items():
        assert (plain.gradients[name] - g.sum(0)).norm() <= 1e-10 * g.norm(), name


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("network", NETWORKS)
def test_single_precision_is_exact_to_its_rounding(network: str) -> None:
    inputs, targets = data()
    computed = summed("one_pass", made(network).float(), inputs.float(), targets, falling)
    assert_weighted(computed, per_example(network, 1), 1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_example_moves_each_parameter_by_at_most_its_bound(engine: str) -> None:
    """Also if nearly all of the gradient is in the direction that the map removes, and little but rounding is left."""
    bound, targets, moved = 0.1, torch.arange(EXAMPLES) % 4, []

    def added(first: Tensor | None, channel: int) -> dict[str, Tensor]:
        torch.manual_seed(0)
        layer = StandardizedConv2d(3, 4, 3)
        inputs = torch.zeros(EXAMPLES, 3, 3, 3)
        if first is not None:
            direction, _ = standardized(layer.weight.detach())
            inputs[0] = 1e-3 * torch.randn(3, 3, 3) + first * direction[channel]
        objective = Objective(nn.Sequential(layer, nn.Flatten()), PLAIN)
        computed = summed(engine, objective, inputs, targets, lambda norms: (bound / norms).clamp(max=1))
        return computed.gradients

    without = added(None, 0)
    for channel, size in enumerate((1.0, 1e2, 1e4)):
        computed = added(torch.tensor(size), channel)
        moved.append(
            [(computed[f"network.0.{kind}"] - without[f"network.0.{kind}"]).norm() for kind in ("weight", "gain")]
        )
    largest = torch.tensor(moved).amax(0)
    assert (largest <= bound * (1 + 1e-4)).all()
    assert (largest > 0.9 * bound).all(), "the bound must be reached"


def test_standardised_weights_have_zero_mean_and_norm_near_gain() -> None:
    torch.manual_seed(0)
    layer = StandardizedConv2d(3, 5, 3).double()
    layer.weight.data += 7
    layer.gain.data = torch.linspace(-1, 2, 5).double()
    kernels = (layer(torch.eye(27).double().view(27, 3, 3, 3)) - layer.bias.view(-1, 1, 1)).flatten(1).T
    torch.testing.assert_close(kernels.sum(1), torch.zeros(5).double(), atol=1e-12, rtol=0)
    square = layer.weight.flatten(1).var(1, unbiased=False) * 27
    torch.testing.assert_close(kernels.norm(dim=1), layer.gain.abs() * (square / (square + 1e-4)).sqrt())

"""The mean over an example's views, clipped: against a loop in float64, in every engine, and its sensitivity."""

import math

import pytest
import torch
from torch import Tensor, nn

from runner.build.prepare import prepare
from runner.clipping import PSAC, Automatic, Flat, NoClipping, PerLayer, gradient_sum
from runner.config import ConfigError
from runner.gradients import ENGINES, Objective, fresh_copy
from runner.training.graph.network import MaskedEngine, RecordedObjective
from tests.references import clipped_sum, distance, error, norm, per_example

VIEWS, EXAMPLES, NORM = 3, 7, 0.4
EACH = ("one_pass", "isolated", "graph")


class Tokens(nn.Module):
    """[batch, 4, h, w] to [batch, h w, 4]: the next linear layer has several positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)


Tokens.__module__ = "runner.networks.made_up"  # as a known module, so that no engine takes examples one by one
NETWORKS = {
    "strided": lambda: nn.Sequential(
        nn.Conv2d(1, 5, (3, 2), stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(5, 4, 3, padding=2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(6),
        nn.Tanh(),
        nn.Linear(6, 3),
    ),
    "wide": lambda: nn.Sequential(
        nn.Conv2d(1, 40, 3), nn.ReLU(), nn.Conv2d(40, 33, 2), nn.Tanh(), nn.Conv2d(33, 17, 3), nn.Flatten(),
        nn.LazyLinear(3),
    ),
    "positions of a sequence": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), Tokens(), nn.Linear(4, 2), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)
    ),
}  # fmt: skip


def made(network: str, scale: float = 1.0) -> tuple[Objective, Tensor, Tensor]:
    """An objective of several views, with inputs [examples, views, 1, 9, 8] that differ in size, and targets."""
    torch.manual_seed(3)
    objective = Objective(NETWORKS[network](), nn.CrossEntropyLoss(reduction="none"))
    inputs = (
        torch.randn(EXAMPLES, VIEWS, 1, 9, 8) * scale * torch.linspace(0.05, 3, EXAMPLES)[:, None, None, None, None]
    )
    targets = torch.arange(EXAMPLES) % 3
    objective(inputs[:, 0], targets)
    objective.views = VIEWS
    return objective, inputs, targets


def means(objective: Objective, inputs: Tensor, targets: Tensor) -> list[dict[str, Tensor]]:
    """Each example's mean gradient over its views, one view at a time in float64."""
    single = fresh_copy(objective)
    single.views = 1
    computed = []
    for views, target in zip(inputs, targets, strict=True):
        of_views = per_example(single, views, target.expand(VIEWS))
        computed.append({name: torch.stack([mean[name] for mean in of_views]).mean(0) for name in of_views[0]})
    return computed


def summed(engine: str, clipping, objective: Objective, inputs: Tensor, targets: Tensor, pieces: int = 100):
    if engine == "graph":
        plain = fresh_copy(objective)
        plain.views = 1
        recorded = RecordedObjective(plain, VIEWS)
        masked = MaskedEngine(recorded, recorded.values, torch.ones(len(targets), dtype=torch.bool))
        sums = clipping.sum_contributions(masked, inputs, targets).gradients
        return {name: sums[name].view_as(p) for name, p in objective.named_parameters()}
    return gradient_sum(clipping, ENGINES[engine](objective), inputs, targets, pieces).gradients


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("engine", EACH)
@pytest.mark.parametrize("network", NETWORKS)
def test_flat_clipping_of_the_mean_matches_a_loop(network: str, engine: str) -> None:
    objective, inputs, targets = made(network)
    mean = means(objective, inputs, targets)
    bound = sorted(map(norm, mean))[len(mean) // 2]  # some are clipped, and some are not
    for clipping, most in ((Flat(bound), bound), (NoClipping(), math.inf)):
        computed = summed(engine, clipping, objective, inputs, targets, pieces=3)
        assert error(computed, clipped_sum(mean, most)) < 1e-5


@pytest.mark.parametrize("engine", EACH)
@pytest.mark.parametrize(
    "clipping", [Flat(NORM), Automatic(NORM), PSAC(NORM), PerLayer(NORM)], ids=lambda mean: type(mean).__name__
)
def test_an_example_of_any_views_moves_the_sum_within_its_bound(clipping, engine: str) -> None:
    """Views of any size, all alike or opposite, and one that is not a number, which takes the whole example out."""
    objective, inputs, targets = made("strided")
    without_first = summed(engine, clipping, objective, inputs[1:], targets[1:])
    moved = []
    for seed, scale in enumerate((1e-3, 1.0, 30.0, 1e3, 1e3, math.nan)):
        torch.manual_seed(seed)
        first = inputs.clone()
        first[0] = torch.randn(VIEWS, 1, 9, 8) * 30
        first[0, 0] *= scale
        if seed == 4:
            first[0] = first[0, 0]
        computed = summed(engine, clipping, objective, first, targets)
        moved.append(distance(computed, without_first))
    assert max(moved) <= NORM * (1 + 1e-4)
    assert max(moved) > 0.9 * NORM, "the bound must be reached"
    assert moved[-1] < 1e-5


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("features=scatternet", "architecture=scatternet_mnist"), "views of pixels, not of ScatterNet"),
        (("experiment=backprop_clipping/mnist_clipping", "augmentation=views"), "Backprop bounds single images"),
        (("diagnostics=[activation_norms]",), "activation_norms measures batches of images"),
        (("augmentation.padding=28",), "augmentation: "),
        (("augmentation.views=0",), "augmentation.views > 0"),
    ],
    ids=str,
)
def test_parts_without_support_for_views_are_refused(smoke, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(smoke("augmentation=views", *overrides))

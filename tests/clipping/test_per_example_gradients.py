"""Clipped sums against float64 per-example gradients taken one example at a time, and against Opacus."""

import copy
import math
from typing import Any

import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from runner.clipping import PSAC, Automatic, Flat, NoClipping, PerLayer, clip_factors, gradient_sum
from runner.gradients import ENGINES, Objective
from runner.gradients.interface import weigh_and_sum
from runner.networks.architectures import all_convolutional, scatternet_small_cnn, small_cnn, vgg_cnn
from tests.references import clipped_sum, distance, error, norm, per_example

STRATEGIES = [Flat(0.7), PerLayer(0.9), Automatic(0.5), PSAC(0.5)]
NETWORKS = {
    "small_cnn": (lambda: small_cnn([1, 28, 28], 10, nn.Tanh, [4, 5], 6, 3), (1, 28, 28)),
    "all_convolutional": (lambda: all_convolutional([3, 16, 16], 10, nn.ReLU, [3, 4, 5]), (3, 16, 16)),
    "vgg_cnn": (lambda: vgg_cnn([3, 16, 16], 10, nn.ReLU, [3, 4], 6), (3, 16, 16)),
    "scatternet": (lambda: scatternet_small_cnn([81, 7, 7], 10, nn.Tanh, [16, 32], 32, False), (81, 7, 7)),
}


def make(network: str, examples: int = 10, dtype: torch.dtype = torch.float32) -> tuple[Objective, Tensor, Tensor]:
    torch.manual_seed(0)
    build, shape = NETWORKS[network]
    # One class a scale: a zero gradient, and examples on both sides of every clipping norm.
    weights = torch.logspace(-2, 1, 10)
    weights[0] = 0
    objective = Objective(build(), nn.CrossEntropyLoss(weights, reduction="none")).to(dtype)
    return objective, torch.randn(examples, *shape, dtype=dtype), torch.arange(examples) % 10


def reference(strategy: object, objective: Objective, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The sum of clipped gradients in float64, from the papers' formulas."""
    examples = per_example(objective, inputs, targets)
    if isinstance(strategy, Automatic):
        norms = [norm(gradients) for gradients in examples]
        added = [0.01 / (n + 0.01) if isinstance(strategy, PSAC) else 0.01 for n in norms]
        factors = [strategy.norm / (n + a) for n, a in zip(norms, added, strict=True)]
        return {n: sum(f * g[n] for f, g in zip(factors, examples, strict=True)) for n in examples[0]}
    if isinstance(strategy, Flat):
        return clipped_sum(examples, strategy.norm)
    assert isinstance(strategy, PerLayer)
    layers: dict[str, list[str]] = {}
    for name in examples[0]:
        layers.setdefault(name.rsplit(".", 1)[0], []).append(name)
    return clipped_sum(examples, strategy.norm / math.sqrt(len(layers)), list(layers.values()))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("network", "strategy"),
    [
        *(("small_cnn", strategy) for strategy in STRATEGIES),
        *zip(("all_convolutional", "vgg_cnn", "scatternet"), STRATEGIES[:3], strict=True),
    ],
    ids=str,
)
def test_matches_float64_reference(network: str, strategy, engine: str) -> None:
    objective, inputs, targets = make(network)
    expected = reference(strategy, objective, inputs, targets)
    computed = gradient_sum(strategy, ENGINES[engine](objective), inputs, targets, physical_batch=3)
    assert error(computed.gradients, expected) < 1e-5
    norms = torch.tensor([norm(gradients) for gradients in per_example(objective, inputs, targets)])
    torch.testing.assert_close(computed.norms, norms, rtol=1e-4, atol=1e-6)
    assert norms.min() < strategy.norm < norms.max(), "the test must have examples on both sides of the bound"


def test_flat_matches_opacus_optimizer() -> None:
    """Opacus' own clipping, from end to end: GradSampleModule and DPOptimizer.clip_and_accumulate."""
    objective, inputs, targets = make("small_cnn")
    computed = gradient_sum(Flat(0.7), ENGINES["isolated"](objective), inputs, targets, physical_batch=100)
    theirs = GradSampleModule(copy.deepcopy(objective), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=0.7,
        expected_batch_size=10,
        loss_reduction="sum",
    )
    theirs(inputs, targets).sum().backward()
    optimizer.clip_and_accumulate()
    for name, parameter in theirs._module.named_parameters():
        torch.testing.assert_close(computed.gradients[name], parameter.summed_grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_plain_sum_is_the_sum_of_the_gradients(engine: str) -> None:
    """Of all examples, in any pieces (a mean would depend on the size of a piece), in which they have their order."""
    objective, inputs, targets = make("small_cnn", dtype=torch.float64)
    expected = clipped_sum(per_example(objective, inputs, targets), math.inf)
    gradients = ENGINES[engine](objective)
    for physical_batch in (3, 100):
        computed = gradient_sum(NoClipping(), gradients, inputs, targets, physical_batch)
        assert error(computed.gradients, expected) < 1e-12
        torch.testing.assert_close(computed.losses, objective(inputs, targets).detach())


class _Scaled(nn.Module):
    """A loss whose gradients an adversary scales: by 0, by huge numbers, to not-a-number."""

    def __init__(self, scales: Tensor) -> None:
        super().__init__()
        self.scales = scales

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits[:, 0] * self.scales.to(logits)[targets]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("scale", [0.0, 1e18, math.inf, math.nan])
def test_one_example_moves_the_sum_by_at_most_the_sensitivity(strategy, scale: float, engine: str) -> None:
    """Add-or-remove-one neighbours, the added example chosen by an adversary, noise group by noise group."""
    torch.manual_seed(1)
    objective = Objective(NETWORKS["small_cnn"][0](), _Scaled(torch.tensor([1.0, scale])))
    inputs = torch.randn(4, 1, 28, 28)
    targets = torch.tensor([0, 0, 0, 1])
    gradients = ENGINES[engine](objective)
    with_it = gradient_sum(strategy, gradients, inputs, targets, physical_batch=8).gradients
    without = gradient_sum(strategy, gradients, inputs[:3], targets[:3], physical_batch=8).gradients
    for group in strategy.noise_groups(objective):
        moved = distance(with_it, without, group.parameters)
        assert moved <= group.sensitivity * (1 + 1e-5)  # which no infinity or NaN is
        if scale == 1e18:  # and the bound is used: the test would notice a clip to something smaller
            assert moved >= 0.99 * group.sensitivity


def test_norms_of_many_small_entries_are_not_lost() -> None:
    """One large entry with 294,911 small ones: one float32 sum would lose a part in 4,000 of the norm."""
    gradient = torch.full((1, 256, 128, 3, 3), 2.3e-4)
    gradient[0, 0, 0, 0, 0] = 1.0
    exact = gradient.double().norm().item()
    computed = weigh_and_sum({"w": gradient}, torch.zeros(1), [["w"]], lambda norms: clip_factors(norms, 0.5))
    assert computed.norms is not None
    assert computed.norms.item() == pytest.approx(exact, rel=1e-5)
    assert computed.gradients["w"].double().norm().item() <= 0.5 * (1 + 1e-5)


@pytest.mark.parametrize("strategy", [Flat, PerLayer, Automatic, PSAC])
@pytest.mark.parametrize("length", [1e-13, 1e13, 3e37])
def test_a_norm_beyond_the_range_of_float32_is_refused(strategy: Any, length: float) -> None:
    with pytest.raises(ValueError, match=r"Expected clipping\.norm from 1e-12 to 1e\+12"):
        strategy(length)


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("strategy", [Flat(1e-6), Automatic(1e-6)])
def test_huge_inputs_with_tiny_errors_stay_within_the_norm(kind: str, strategy: Any) -> None:
    """Scaled to the norm, the errors next to inputs of 3e37 would lose their digits, and twice the norm was added."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32, bias=False), nn.Linear(32, 10, bias=False))
    nn.init.zeros_(network[1].weight)
    nn.init.zeros_(network[2].weight)
    with torch.no_grad():
        network[2].weight[0] = 1e-20
    engine = ENGINES[kind](Objective(network, nn.CrossEntropyLoss(reduction="none")))
    for part in range(10):
        images = torch.full((1, 1, 8, 8), 3e37 * (1 + part / 20))
        computed = gradient_sum(strategy, engine, images, torch.tensor([1]), 10).gradients
        assert norm(computed) <= 1.0001e-6

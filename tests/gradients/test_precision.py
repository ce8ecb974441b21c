"""Passes in fewer bits: one example moves a sum by what it is charged for, and norms and sums stay in 32 bits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from checks.parity.cases import prepared
from checks.parity.runs import SMALL
from checks.parity.step import made_up
from runner.config import ConfigError, Precision
from runner.data.augmentation import Views
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.gradients.precision import LONGER
from runner.mechanism.dp_sgd import Mechanism
from runner.networks.standardized import StandardizedConv2d
from runner.records.identity import identify
from runner.records.verify import run_of
from runner.report.explain import released_text
from runner.runs.execute import execute
from runner.speed import machine
from runner.training.graph import GraphStep
from runner.training.graph.batches import draw_epoch, draw_views, enough
from runner.training.graph.network import MaskedEngine, RecordedObjective
from tests.conftest import quietly, record_of
from tests.small import LIPSCHITZ, NETWORK

NORM, EXAMPLES = 0.3, 24
LAYERS = 4  # convolution, standardised convolution, normalisation, and a linear layer, whose gradient is not formed


def recorded(precision: Precision | None) -> RecordedObjective:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 5, 3, 2, 1), nn.ReLU(), StandardizedConv2d(5, 6, 3), nn.GroupNorm(2, 6), nn.Tanh(), nn.Flatten(),
        nn.Linear(24, 10),
    )  # fmt: skip
    objective = RecordedObjective(Objective(network, nn.CrossEntropyLoss(reduction="none")))
    objective.compute_in(precision)
    return objective


def extreme() -> tuple[Tensor, Tensor]:
    """Images of all sizes, and half of them of nearly equal pixels, whose differences bf16 rounds away."""
    torch.manual_seed(1)
    images = torch.randn(EXAMPLES, 1, 8, 8) * torch.logspace(-6, 6, EXAMPLES)[:, None, None, None]
    images[::2] = images[::2, :, :1, :1] * (1 + 2**-8 + 2**-12 * torch.randn(EXAMPLES // 2, 1, 8, 8))
    return images, torch.arange(EXAMPLES) % 10


def clipped(objective: RecordedObjective, inputs: Tensor, targets: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the sum of every layer's gradients, each example's clipped to NORM: float64 [numbers]."""
    layers: dict[str, list[str]] = {}
    for name in objective.parts:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    engine = MaskedEngine(objective, objective.values, mask)
    sums = engine.clipped_sum(inputs, targets, list(layers.values()), lambda n: (NORM / n).clamp(max=1)).gradients
    return [torch.cat([sums[name].double().flatten() for name in names]) for names in layers.values()]


@pytest.mark.parametrize("precision", [None, Precision.bf16])
def test_one_example_moves_each_layer_by_its_bound(precision: Precision | None) -> None:
    """Formed or not, and beside others in their places, a contribution has the norm that it is clipped to."""
    objective, (images, targets) = recorded(precision), extreme()
    everyone = torch.ones(EXAMPLES, dtype=torch.bool)
    total, reached = clipped(objective, images, targets, everyone), torch.zeros(LAYERS)
    for example in range(EXAMPLES):
        alone = clipped(objective, images, targets, torch.arange(EXAMPLES) == example)
        without = clipped(objective, images, targets, torch.arange(EXAMPLES) != example)
        norms = torch.stack([numbers.norm() for numbers in alone])
        assert (norms <= NORM * (1 + 2e-6)).all()
        reached = torch.maximum(reached, norms / NORM)
        for all_of_them, rest, own in zip(total, without, alone, strict=True):
            assert (all_of_them - rest - own).norm() <= 1e-6 * EXAMPLES * NORM
    assert (reached >= 1 - 2e-6).all(), "no example of this layer is clipped, so nothing is tested"


def test_bf16_changes_gradients_by_its_rounding() -> None:
    torch.manual_seed(2)
    data = torch.randn(EXAMPLES, 1, 8, 8), torch.arange(EXAMPLES) % 10, torch.ones(EXAMPLES, dtype=torch.bool)
    exact, rounded = (torch.cat(clipped(recorded(precision), *data)) for precision in (None, Precision.bf16))
    assert 1e-3 < (rounded - exact).norm() / exact.norm() < 3e-2


class Flags(TorchDispatchMode):
    """The products that are computed inside, each with TF32 allowed or not."""

    def __init__(self) -> None:
        super().__init__()
        self.products: set[tuple[str, int, bool]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in ("convolution", "convolution_backward", "addmm", "mm", "bmm"):
            allowed = {torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32}
            (both,) = allowed
            self.products.add((name, args[0].shape[-1] if name == "bmm" else 0, both))
        return func(*args, **(kwargs or {}))


def test_tf32_ends_before_norms_and_sums() -> None:
    """Passes and formed gradients are products in TF32; a linear layer's sum and weighted sums of examples are not."""
    machine.set_up(threads=None)
    images, targets = extreme()
    with Flags() as seen:
        clipped(recorded(Precision.tf32), images, targets, torch.ones(EXAMPLES, dtype=torch.bool))
    assert seen.products == {
        ("convolution", 0, True), ("convolution_backward", 0, True),
        ("bmm", 16, True), ("bmm", 4, True), ("bmm", EXAMPLES, False),  # over positions and over examples
        ("addmm", 0, True), ("mm", 0, True), ("mm", 0, False),  # a linear layer forward, backward, and its sum
    }  # fmt: skip
    assert not torch.backends.cuda.matmul.allow_tf32


def mechanism(examples: int = 100, batch: int = 20) -> Mechanism:
    return prepared(*SMALL, f"dataset.train_examples={examples}", f"batch_size={batch}", "delta=1e-4").mechanism


def test_examples_lie_in_uniformly_random_places() -> None:
    """Members and their mask move together, and the first member is equally often in every place."""
    drawn, counts = mechanism(1000), torch.zeros(64)
    for epoch in range(40):
        plain, shuffled = (
            draw_epoch(drawn, torch.Generator().manual_seed(epoch), least=64, shuffled=anywhere)
            for anywhere in (False, True)
        )
        assert shuffled.sizes == plain.sizes
        for members, mask, ours, our_mask in zip(
            plain.indices, plain.mask, shuffled.indices, shuffled.mask, strict=True
        ):
            assert torch.equal(ours[our_mask].sort().values, members[mask].sort().values)
            counts[(our_mask & (ours == members[0])).nonzero()[0]] += 1
    expected = counts.sum() / 64
    assert ((counts - expected).square().sum() / expected).item() < 103  # chi-square of 63, exceeded once in 1,000


def test_views_follow_their_examples_to_their_places() -> None:
    batches = draw_epoch(mechanism(), torch.Generator().manual_seed(1), shuffled=True)
    views = Views(2)
    numbers = draw_views(batches, views, torch.Generator().manual_seed(2)).numbers
    assert numbers is not None
    drawn = torch.cat(
        [views.draw(int(mask.sum()), g) for g in [torch.Generator().manual_seed(2)] for mask in batches.mask]
    )
    assert torch.equal(numbers[batches.mask], drawn)
    assert not numbers[~batches.mask].any()


def test_a_longer_batch_is_a_negligible_event() -> None:
    """In float32 it is only rare, as a longer one makes room."""
    drawn = mechanism(1000, 100)
    chances = torch.distributions.Binomial(1000, torch.tensor(0.1).double()).log_prob(torch.arange(1001)).exp()
    for chance, asked_for in ((1e-3, ()), (1e-12, (LONGER,))):
        for steps in (500, 1_000_000):
            length = enough(drawn, steps, *asked_for)
            assert length % 16 == 0
            assert steps * chances[length + 1 :].sum() <= chance < steps * chances[length - 15 :].sum()
    run = prepared(*SMALL, *NETWORK, "precision=bf16", "dataset.train_examples=1000", "batch_size=100", "delta=1e-4")
    step = GraphStep(run, run.new_objective(), Split(*made_up(run, 2)))
    step.make_room()
    assert step.lengths[-1] == enough(run.mechanism, 20, LONGER) > enough(run.mechanism, 20)


def test_another_precision_is_another_run(smoke: Callable[..., Any]) -> None:
    """Null is float32, as in all older records."""
    ids = [identify(smoke(*more))[0] for more in ((), ("precision=null",), ("precision=bf16",), ("precision=tf32",))]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_a_record_states_its_precision(smoke: Callable[..., Any]) -> None:
    """Its steps have one shape on a CPU, too."""
    config = smoke("precision=bf16", *NETWORK, "epochs=1", "scale.epochs=1", "scale.batch_size=500")
    assert execute(config, quietly) == "finished"
    record = record_of(config)
    assert (record["config"]["precision"], record["provenance"]["step"]) == ("bf16", "graph")
    run = run_of(record["config"])
    assert run.config.precision is Precision.bf16
    assert "passes in bf16, norms and sums in float32, so δ grows by at most 1e-12 (a batch without a place)" in (
        released_text(record, run)
    )
    without_noise = run_of(record["config"] | {"noise_multiplier": 0.0})
    assert not any("δ grows by at most 1e-12" in line for line in released_text(record, without_noise))


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ((*LIPSCHITZ, "clipping=lipschitz", "loss=hinge", "constraint=spectral"), "Lipschitz takes no norm"),
        (("experiment=backprop_clipping/mnist_joint",), "Backprop takes no norm"),
        (("runtime.step=eager",), "one shape"),
        (("runtime.step=compiled",), "norms of the numbers that are summed"),
        (("runtime.engine=isolated",), "runtime.engine"),
        (("clipping._target_=tests.failing.OwnClipping",), "OwnClipping"),
        (("architecture._target_=tests.failing.penalised",), "known to keep examples apart"),
        (("screening=annealing",), "Annealing"),
    ],
)
def test_bf16_is_refused_where_its_proof_does_not_hold(overrides: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        prepared(*SMALL, "precision=bf16", *overrides)


def test_tf32_is_refused_without_cuda(smoke: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="tf32 is for CUDA"):
        execute(smoke("precision=tf32", *NETWORK), quietly)

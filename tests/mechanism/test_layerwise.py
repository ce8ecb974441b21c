"""The four mechanisms of Backpropagation Clipping: noise against an adversary, epsilons against known ones."""

import math

import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from runner.accounting import Ledger
from runner.build.prepare import prepare
from runner.clipping import Backprop, NoiseGroup, gradient_sum
from runner.config import ConfigError, Sampling
from runner.gradients import Objective
from runner.gradients.interface import OrdinaryPass
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.layerwise import Corrected, Joint, OriginalBug, Printed
from tests.references import Upstream

A, B = 2.0, 0.1
LAYERS = tuple(NoiseGroup((f"{i}.weight",), 0.03) for i in range(4))  # the MNIST network: a b = 3 * 0.01


def four(noise_multiplier: float, groups: tuple[NoiseGroup, ...], examples: int = 600, batch: int = 100) -> dict:
    shared = {"examples": examples, "batch_size": batch, "noise_multiplier": noise_multiplier, "noise_groups": groups}
    return {
        "joint": Joint(sampling=Sampling.poisson, **shared),
        "zero_out": Printed(sampling=Sampling.shuffled, **shared),
        "replace_one": Printed(sampling=Sampling.shuffled, neighbours="replace_one", **shared),
        "corrected": Corrected(sampling=Sampling.poisson, **shared),
        "original_bug": OriginalBug(sampling=Sampling.shuffled, asked_for="original_bug", **shared),
    }


def chain() -> Objective:
    """Two identity layers: what is orthogonal to the inputs passes both of them, and the clips, at its length."""
    network = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    for parameter in network.parameters():
        parameter.data.copy_(torch.eye(2))
    return Objective(network, Upstream())


def attack(mechanism: Mechanism, ours: Tensor, theirs: Tensor) -> float:
    """Return the distance of two neighbouring batches in standard deviations of the noise, all layers together.

    `ours`, `theirs`: upstream rows [batch, 2]; all inputs are the same, of norm a.
    """
    objective = chain()
    clipping = Backprop(A, B)
    sums = []
    for rows in (ours, theirs):
        inputs = torch.tensor([[A, 0.0]], dtype=torch.float64).expand(len(rows), 2)
        applied = mechanism.applied(clipping, len(rows))
        sums.append(gradient_sum(applied, OrdinaryPass(objective), inputs, rows, 7).gradients)
    square = 0.0
    for group in mechanism.noise_groups:
        (name,) = group.parameters
        shift = (sums[0][name] - sums[1][name]) / mechanism.denominator
        noise = mechanism.release({n: torch.zeros(300, 300) for n in sums[0]}, torch.Generator().manual_seed(0))[name]
        square += float(shift.norm() / noise.double().std()) ** 2  # the noise as it is drawn, not as it is said to be
    return math.sqrt(square)


def row(length: float, count: int = 1) -> Tensor:
    return torch.tensor([[0.0, length]], dtype=torch.float64).expand(count, 2)


def actual(mechanism: Mechanism, steps: int = 1) -> tuple:
    ledger = Ledger()
    for step in range(steps):
        mechanism.charge_step(ledger, step)
    return ledger.actual


@pytest.mark.parametrize("kind", ["joint", "zero_out", "replace_one", "corrected", "original_bug"])
def test_the_strongest_adversary_sees_the_charged_multiplier(kind: str) -> None:
    """The worst neighbours are 1 / multiplier standard deviations apart: no further, and no less than a percent or two.

    So a dropped clip, halved noise, or a charge for less than was released would fail here.
    """
    objective = chain()
    mechanism = four(1.3, Backprop(A, B).noise_groups(objective))[kind]
    ((event, count),) = actual(mechanism)
    inner = event.event if isinstance(event, PoissonSampledDpEvent) else event
    assert count == 1
    n = 60
    pairs = {
        "joint": (row(5.0, n), torch.cat([row(5.0, n), row(1e6)])),
        "zero_out": (torch.cat([row(5.0, n), row(0.0)]), torch.cat([row(5.0, n), row(1e6)])),
        "replace_one": (torch.cat([row(5.0, n), row(-1e6)]), torch.cat([row(5.0, n), row(1e6)])),
        # rows of the mean at the bound exactly, which one example more pushes below it; and that one against them
        "corrected": (row(n * B, n), torch.cat([row(n * B, n), row(-1e6)])),
        "original_bug": (torch.cat([row(5.0, n), row(0.0)]), torch.cat([row(5.0, n), row(1e9)])),
    }
    distance = attack(mechanism, *pairs[kind])
    assert distance * inner.noise_multiplier == pytest.approx(
        1 if kind != "corrected" else (1 + n / (n + 1)) / 2, rel=0.01
    )


def test_what_each_charges() -> None:
    """Layers of 0.03, noise multiplier 3 of all together: 6 a layer."""
    mechanisms = four(3.0, LAYERS, examples=60_000, batch=256)
    assert {kind: m.noise_std(LAYERS[0]) for kind, m in mechanisms.items()} == pytest.approx(
        {"joint": 0.18, "zero_out": 0.18, "replace_one": 0.36, "corrected": 0.18, "original_bug": 0.18 / 256}
    )
    assert {kind: m.denominator for kind, m in mechanisms.items()} == {
        "joint": 256, "zero_out": 256, "replace_one": 256, "corrected": 1, "original_bug": 1,
    }  # fmt: skip
    assert {kind: m.steps_per_epoch for kind, m in mechanisms.items()}["corrected"] == 235
    assert mechanisms["joint"].steps_per_epoch == 234
    assert mechanisms["corrected"].sampling_rate == 1 / 235
    relations = [mechanisms[kind].neighbouring_relation for kind in mechanisms]
    assert relations == ["add-or-remove-one", "zero-out", "replace-one", "add-or-remove-one", "zero-out"]
    once = ((GaussianDpEvent(3.0), 1),)
    assert actual(mechanisms["zero_out"], 234) == actual(mechanisms["replace_one"], 234) == once
    assert actual(mechanisms["original_bug"], 234) == ((GaussianDpEvent(3.0 / 256), 1),)
    assert actual(mechanisms["joint"], 234) == ((PoissonSampledDpEvent(256 / 60_000, GaussianDpEvent(3.0)), 234),)
    assert actual(mechanisms["corrected"], 235) == ((PoissonSampledDpEvent(1 / 235, GaussianDpEvent(1.5)), 235),)
    claimed = mechanisms["corrected"].charges_of_epochs(1).claimed
    assert claimed == ((PoissonSampledDpEvent(256 / 60_000, GaussianDpEvent(6.0)), 4 * 234),)
    for mechanism in mechanisms.values():
        ledger = Ledger()
        for _ in range(5):
            for step in range(mechanism.steps_per_epoch):
                mechanism.charge_step(ledger, step)
        assert ledger.claimed == mechanism.charges_of_epochs(5).claimed


def ordered(noise_multiplier: float, groups: tuple[NoiseGroup, ...], examples: int, batch: int) -> OriginalBug:
    numbers = (Sampling.shuffled, examples, batch, noise_multiplier, groups)
    return OriginalBug(*numbers, asked_for="original_bug", in_order=True)


def test_batches_in_order_are_the_loaders() -> None:
    """14 batches of 4,096 and one of 2,656, the same in every epoch; an epoch is charged once, as before."""
    mechanism = ordered(3.0, LAYERS, 60_000, 4096)
    generator = torch.Generator()
    batches = list(mechanism.batches(generator))
    assert [len(batch) for batch in batches] == [4096] * 14 + [2656]
    assert torch.equal(torch.cat(batches), torch.arange(60_000))
    assert all(torch.equal(a, b) for a, b in zip(batches, mechanism.batches(generator), strict=True))
    assert mechanism.steps_per_epoch == 15
    assert mechanism.noise_std(LAYERS[0]) == pytest.approx(0.18 / 4096)
    assert actual(mechanism, 15) == ((GaussianDpEvent(3.0 / 4096), 1),)
    shuffled = four(3.0, LAYERS, 60_000, 4096)["original_bug"]
    assert (shuffled.steps_per_epoch, len(list(shuffled.batches(generator)))) == (14, 14)


@pytest.mark.parametrize("batch", [60, 40])
def test_a_row_in_a_smaller_last_batch_moves_as_much_as_charged(batch: int) -> None:
    """100 examples in batches of 60 and 40: a row of norm 5 is 5 / 60 or 5 / 40 of a bound of 0.1, or cut to that."""
    mechanism = ordered(1.3, Backprop(A, B).noise_groups(chain()), 100, 60)
    engine, inputs = OrdinaryPass(chain()), torch.tensor([[A, 0.0]], dtype=torch.float64).expand(batch, 2)
    applied = mechanism.applied(Backprop(A, B), batch)
    computed = gradient_sum(applied, engine, inputs, row(5.0, batch), 7).gradients
    (name,) = mechanism.noise_groups[-1].parameters
    assert float(computed[name].norm()) == pytest.approx(batch * A * min(B, 5.0 / batch))
    rows = row(5.0, batch - 1)
    distance = attack(mechanism, torch.cat([rows, row(0.0)]), torch.cat([rows, row(1e9)]))
    assert distance * (1.3 / 60) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("mechanism=joint sampling=shuffled", "mechanism=joint needs sampling=poisson"),
        ("mechanism=printed sampling=poisson", "mechanism=printed needs sampling=shuffled"),
        ("mechanism=corrected sampling=shuffled", "mechanism=corrected needs sampling=poisson"),
        ("mechanism=printed mechanism.neighbours=twins", "neighbours zero_out or replace_one"),
        ("mechanism=original_bug", r"not private.*mechanism\.asked_for=original_bug"),
        ("mechanism=original_bug mechanism.asked_for=joint", "not private"),
        ("mechanism=corrected clipping=flat", "clipping=backprop"),
        ("mechanism=corrected loss=losing_less", "chain of layers"),
        ("clipping.convolution_norm=l2", "bias"),
    ],
)
def test_what_does_not_go_together_is_refused(composed, overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(composed("clipping=backprop", *overrides.split()))


@pytest.mark.parametrize(("network", "accepted"), [("chain", True), ("residual", False), ("saved", False)])
def test_mean_loss_rows_need_a_chain_and_any_branch_is_refused(composed, network: str, accepted: bool) -> None:
    """A subclass of `Sequential`, or two modules that hand something over past the tree, are branches all the same."""
    config = composed("experiment=backprop_clipping/mnist_corrected_1")
    with open_dict(config):
        config.architecture = OmegaConf.create({"_target_": f"tests.coupling.{network}"})
    if accepted:
        prepare(config)
    else:
        with pytest.raises(ConfigError, match=r"chain of layers only|known modules only"):
            prepare(config)

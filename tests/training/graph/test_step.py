"""The step as one sequence of calls, by itself. tests/cuda/test_options.py compares it with the eager loop."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from runner.build.prepare import prepare
from runner.config import ConfigError, Sampling, StepMode
from runner.data.datasets import Split
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import standard_normal
from runner.training.graph import GraphStep
from runner.training.graph.batches import EpochBatches, draw_epoch, enough, usual
from runner.training.loop import train
from runner.training.run import Run
from tests.small import NETWORK

DRAWN = 20  # the expected batch size


def problem(smoke: Callable, *overrides: str, examples: int = 100, dtype: torch.dtype = torch.float64):
    """A run of two epochs of five steps on made-up data of 12 x 12 pixels, and that data."""
    small = () if "tests.failing" in str(overrides) else ("architecture.filters=[3,4]", "architecture.units=5")
    usual = ("epochs=2", f"batch_size={DRAWN}", "noise_multiplier=0.7", "optimizer.lr=0.5", "clipping.norm=0.3")
    config = smoke(*usual, *small, *overrides)
    config.dataset.train_examples = examples
    config.dataset.shape = [1, 20, 20]
    torch.manual_seed(5)
    return config, Split(torch.randn(examples, 1, 20, 20, dtype=dtype), torch.arange(examples) % 10)


def ready(config, split: Split) -> tuple[GraphStep, EpochBatches]:
    """The step of a run, and the batches of an epoch, which it has room for."""
    run = prepare(config)
    step = GraphStep(run, run.new_objective().double(), split)
    batches = draw_epoch(run.mechanism, generator(1))
    step.make_room(batches.indices.shape[1])
    return step, batches


def moved(step: GraphStep, batches: EpochBatches, *indices: int) -> torch.Tensor:
    """The change of the weights by a step on these examples; they are put back."""
    batches.indices[0].zero_()
    batches.indices[0, : len(indices)] = torch.tensor(indices)
    batches.mask[0] = torch.arange(batches.indices.shape[1]) < len(indices)
    before = step.recorded.values.clone()
    step.take(batches, 0)
    change = before - step.recorded.values
    step.recorded.values.copy_(before)
    return change


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_an_empty_batch_is_a_step_of_pure_noise(smoke) -> None:
    config, split = problem(smoke)
    step, batches = ready(config, split)
    step.generators["noise"] = generator(2)
    change = moved(step, batches) * DRAWN / 0.5  # the learning rate
    expected = standard_normal(len(step.recorded.values), generator(2), torch.device("cpu"))
    torch.testing.assert_close(change, 0.7 * 0.3 * expected, rtol=0, atol=2.0**-12 * 0.7 * 0.3)  # as it is rounded
    assert step.losses == 0


@pytest.mark.parametrize(
    ("clipping", "bad"), [("flat", math.nan), ("flat", 1e200), ("per_layer", math.inf), ("automatic", math.nan)]
)
def test_padding_and_broken_examples_contribute_nothing(smoke, clipping: str, bad: float) -> None:
    """Whatever lies behind an index outside the mask, and wherever a gradient is not finite, the sum is the same."""
    config, split = problem(smoke, f"clipping={clipping}", "activation=relu", "noise_multiplier=0")
    split.images[0], split.images[3] = bad, bad  # 0 is what padding points to
    step, batches = ready(config, split)
    members = [7, 12, 30]
    clean = moved(step, batches, *members)
    assert clean.norm() > 0
    torch.testing.assert_close(moved(step, batches, *members, 3), clean, rtol=1e-12, atol=0)


def test_one_example_moves_the_sum_by_at_most_the_clipping_norm(smoke) -> None:
    """Learning rate 1 and no noise: the weights move by the sum over B. All contributions here are clipped."""
    config, split = problem(smoke, "noise_multiplier=0", "optimizer.lr=1", "clipping.norm=0.01")
    step, batches = ready(config, split)
    for example in range(5):
        assert (moved(step, batches, example) * DRAWN).norm().item() == pytest.approx(0.01, rel=1e-9)


def test_a_longer_batch_makes_room_and_cuts_nothing(smoke) -> None:
    """At two examples a step some batches are empty, and some are twice as long."""
    config, _ = problem(smoke, "batch_size=2")
    mechanism = prepare(config).mechanism
    short = draw_epoch(mechanism, generator(1))
    again = draw_epoch(mechanism, generator(1), least=64)
    assert (short.indices.shape[1], again.indices.shape[1]) == (16, 64)
    assert min(short.sizes) == 0
    assert max(short.sizes) >= 4
    for batches in (short, again):
        drawn_batches = list(mechanism.batches(generator(1)))
        computed = [indices[mask] for indices, mask in zip(batches.indices, batches.mask, strict=True)]
        assert all(torch.equal(a, b) for a, b in zip(computed, drawn_batches, strict=True))
        assert batches.sizes == [*map(len, drawn_batches)]


def test_two_lengths_pad_less_than_a_third_of_one() -> None:
    """By 11 instead of 38 in 100 at 256 of 60,000: 15% of the batches are longer than 272, by the binomial's tail."""
    mechanism = Mechanism(Sampling.poisson, 60_000, 256, 0.0, ())
    assert usual(mechanism, enough(mechanism, 60 * mechanism.steps_per_epoch)) == (272, 352)
    sizes = torch.arange(512)
    chances = torch.distributions.Binomial(60_000, torch.tensor(256 / 60_000).double()).log_prob(sizes).exp()
    mean = (chances * torch.where(sizes <= 272, 272, 352)).sum().item() / 256 - 1
    assert mean == pytest.approx(0.110, abs=1e-3)
    assert mean < (352 / 256 - 1) / 3
    assert usual(replace(mechanism, sampling=Sampling.shuffled), 256) == (256,)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer._target_=torch.optim.RMSprop", "RMSprop"),
        ("+optimizer.weight_decay=0.1", "weight_decay"),
        ("diagnostics=[gradient_norms]", "gradient_norms"),
        ("clipping._target_=tests.failing.OwnClipping", "OwnClipping"),
        ("runtime.engine=isolated", "engine"),
        ("architecture._target_=tests.failing.grouped", "in groups"),
        # what shows only with data
        ("activation._target_=torch.nn.Dropout", "random"),
        ("architecture._target_=tests.failing.penalised", "known"),
    ],
)
def test_steps_without_a_fixed_graph_are_refused_before_training(smoke, override: str, message: str) -> None:
    config, split = problem(smoke, override, "runtime.step=graph", dtype=torch.float32)
    with pytest.raises(ConfigError, match=message):
        train(prepare(config), (split, split), lambda row: None)


def test_a_step_with_other_gradients_than_autograd_is_refused(smoke, monkeypatch) -> None:
    """Here autograd is taken to differ, as no network of this package has such gradients."""
    config, split = problem(smoke, "runtime.step=graph", dtype=torch.float32)
    monkeypatch.setattr("runner.training.graph.is_gradient", lambda *_: False)
    with pytest.raises(ConfigError, match="not those of its layers"):
        train(prepare(config), (split, split), lambda row: None)


def test_auto_is_eager_on_the_cpu_and_falls_back_to_eager(smoke, monkeypatch, capsys) -> None:
    config, split = problem(smoke, "activation._target_=torch.nn.Dropout", dtype=torch.float32)
    assert prepare(config).step.value == "eager"
    monkeypatch.setattr(Run, "step", StepMode.graph)
    trained = train(prepare(config), (split, split), lambda row: None)
    assert trained.step == "eager"
    assert "random" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "its_own"),
    [
        ("Telescopes", "Telescopes overrides `release`"),
        ("TwoLevels", "Scheduled overrides `at`"),
    ],
)
def test_a_mechanism_that_does_a_step_its_own_way_is_refused(smoke, kind: str, its_own: str) -> None:
    """A fixed sequence of calls does it as DP-SGD's own mechanism: it would release more than is charged."""
    users = (f"+mechanism._target_=tests.choosing.{kind}", "+mechanism._partial_=true", *NETWORK)
    with pytest.raises(ConfigError, match=its_own):
        prepare(smoke(*users, "runtime.step=graph"))

"""The training loop as a whole: what it adds to the weights, what it charges, what it writes down."""

from __future__ import annotations

import math

import pytest
import torch

from runner.accounting import sound_epsilon
from runner.build import Run, prepare
from runner.datasets import Split
from runner.seeds import generator
from runner.train import load, train

NOISE, NORM = 1.3, 0.2


def audit(smoke, examples: int, batch_size: int, *overrides: str):
    """One epoch of SGD with learning rate 1 on made-up data. Returns the run, the training and both sets of weights."""
    config = smoke(
        "epochs=1",
        f"batch_size={batch_size}",
        f"scale.batch_size={batch_size}",
        f"noise_multiplier={NOISE}",
        f"clipping.norm={NORM}",
        "optimizer.lr=1",
        *overrides,
    )
    config.dataset.train_examples = examples
    run = prepare(config)
    torch.manual_seed(0)
    split = Split(torch.randn(examples, 1, 28, 28), torch.arange(examples) % 10)
    objective = run.objective
    before = {name: p.detach().clone() for name, p in objective.named_parameters()}
    with pytest.MonkeyPatch.context() as patch:  # hand out one network, so that its weights can be read afterwards
        patch.setattr(Run, "objective", property(lambda self: objective))
        trained = train(run, (split, split), lambda row: None)
    after = {name: p.detach() for name, p in objective.named_parameters()}
    return run, trained, before, after, split


def clipped_sum_float64(run, before, split: Split) -> torch.Tensor:
    """The flat clipped sum over all of `split` at the first weights, one example at a time in float64."""
    objective = run.objective.double()
    objective.load_state_dict(before)
    total = None
    for x, y in zip(split.images.double(), split.targets, strict=True):
        grads = torch.autograd.grad(objective(x[None], y[None]).sum(), list(objective.parameters()))
        flat = torch.cat([g.flatten() for g in grads])
        flat = flat * min(1.0, NORM / flat.norm().item())
        total = flat if total is None else total + flat
    assert total is not None
    return total


def flat(weights: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([w.flatten() for w in weights.values()]).double()


def test_one_step_moves_the_weights_by_the_clipped_sum_plus_charged_noise(smoke) -> None:
    """q = 1, one step: (before - after) * B is the sum of clipped gradients plus noise of std multiplier * norm.

    The test knows the sum in float64, so what is left is the noise itself: 26,010 draws. It fails if the noise is
    scaled, the clip dropped, the learning rate or the divisor changed, or if the ledger charges anything else.
    """
    run, trained, before, after, split = audit(smoke, 40, 40)
    noise = (flat(before) - flat(after)) * 40 - clipped_sum_float64(run, before, split)
    assert noise.std().item() == pytest.approx(NOISE * NORM, rel=0.015)
    assert abs(noise.mean().item()) < 4 * NOISE * NORM / math.sqrt(26_010)
    mu = 1 / NOISE  # the Gaussian mechanism, closed form (Balle and Wang, 2018)
    epsilon = trained.history["epsilon_sound"][0]
    cdf = torch.distributions.Normal(0, 1).cdf
    delta = (
        cdf(torch.tensor(mu / 2 - epsilon / mu, dtype=torch.float64))
        - math.exp(epsilon) * cdf(torch.tensor(-mu / 2 - epsilon / mu, dtype=torch.float64))
    ).item()
    assert delta == pytest.approx(1e-5, rel=0.02)


def test_divides_by_the_expected_batch_size_not_by_the_drawn_one(smoke) -> None:
    """q = 1/2, one step: the drawn batch is rebuilt from its generator, then everything but B is known."""
    run, _, before, after, split = audit(smoke, 100, 60)
    (drawn,) = run.mechanism.batches(generator(run.config.seed, "sampling", run.device))
    assert len(drawn) != 60
    batch = Split(split.images[drawn], split.targets[drawn])
    noise = (flat(before) - flat(after)) * 60 - clipped_sum_float64(run, before, batch)
    assert noise.std().item() == pytest.approx(NOISE * NORM, rel=0.015)
    signal = clipped_sum_float64(run, before, batch)
    assert abs(float(noise @ signal) / float(signal.norm())) < 4 * NOISE * NORM, "no share of the signal is left over"


def test_epochs_charge_every_step(smoke) -> None:
    config = smoke("epochs=2", "noise_multiplier=1.0")
    run = prepare(config)
    trained = train(run, load(run), lambda row: None)
    history = trained.history
    assert history["steps"] == [44, 88]
    assert {len(values) for values in history.values()} == {2}
    for epoch, claimed, sound in zip(history["epoch"], history["epsilon"], history["epsilon_sound"], strict=True):
        releases = run.mechanism.claimed_releases(int(epoch))
        assert claimed == pytest.approx(run.accountant.epsilon(releases, 1e-5))
        assert sound == pytest.approx(sound_epsilon(releases, 1e-5))
        assert sound < claimed


def test_same_config_same_record_other_seed_other_record(smoke) -> None:
    def history(*overrides: str) -> dict:
        run = prepare(smoke("epochs=1", *overrides))
        return train(run, load(run), lambda row: None).history

    first = history()
    torch.rand(3)  # what the global generator does is no part of a run
    assert history() == first
    assert history("seed=1") != first
    assert history("runtime.physical_batch=7")["test_loss"] == pytest.approx(first["test_loss"], rel=1e-4)
    assert history("runtime.engine=opacus")["test_loss"] == pytest.approx(first["test_loss"], rel=1e-4)


def test_learns_without_noise(smoke) -> None:
    config = smoke("epochs=8", "scale.epochs=8", "clipping=none", "noise_multiplier=0", "sampling=shuffled")
    run = prepare(config)
    trained = train(run, load(run), lambda row: None)
    assert trained.history["test_accuracy"][-1] > 90
    assert trained.history["epsilon"] == trained.history["epsilon_sound"] == [math.inf] * 8


def test_a_run_that_blows_up_is_called_diverged(smoke) -> None:
    run = prepare(smoke("epochs=3", "clipping=none", "noise_multiplier=0", "activation=relu", "optimizer.lr=1e20"))
    trained = train(run, load(run), lambda row: None)
    assert trained.status == "diverged"
    assert {len(values) for values in trained.history.values()} == {1}


def test_diagnostics_are_measured_when_asked_for(smoke) -> None:
    asked = "diagnostics=[gradient_norms,activation_norms,per_class_accuracy]"
    run = prepare(smoke("epochs=1", asked, "clipping=none", "noise_multiplier=0", "sampling=shuffled"))
    found = train(run, load(run), lambda row: None).diagnostics
    assert found["gradient_norms"]["step"] == found["activation_norms"]["step"] == [0, 10, 20, 30, 40]
    assert set(found["activation_norms"]) == {"step", "1", "4", "8"}  # the activations' places in the network
    assert all(0 < n <= math.sqrt(32) for n in found["activation_norms"]["8"])  # tanh of 32 units
    assert len(found["per_class_accuracy"]) == 1
    assert len(found["per_class_accuracy"][0]) == 10
    private = prepare(smoke("epochs=1", asked, "noise_multiplier=0"))
    again = train(private, load(private), lambda row: None).diagnostics
    assert again["gradient_norms"]["mean"][0] > 0
    quiet = prepare(smoke("epochs=1"))
    assert train(quiet, load(quiet), lambda row: None).diagnostics == {}


def test_holdout_trains_and_reports_on_training_images_only(smoke) -> None:
    run = prepare(smoke("evaluation=holdout"))
    training, held_out = load(run)
    everything, _ = load(prepare(smoke()))
    assert (len(training), len(held_out)) == (1438 - 119, 119)
    assert torch.equal(torch.cat([training.images, held_out.images]), everything.images)
    assert run.mechanism.examples == len(training)

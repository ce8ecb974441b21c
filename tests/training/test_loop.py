"""The training loop as a whole: the change of the weights, the charges, and the history."""

import math
import random

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from torch import nn

from runner.accounting import sound_epsilon
from runner.build.prepare import prepare
from runner.data.datasets import Split
from runner.mechanism.dp_sgd import Mechanism
from runner.mechanism.normal import derived_seed, generator
from runner.training import diagnostics
from runner.training.loop import Trained, final_metrics, load, train
from tests.accounting.releases import closed_form
from tests.references import clipped_sum, flat, per_example, whole_and_resumed
from tests.small import NETWORK

NOISE, NORM = 1.3, 0.2
FEW_STEPS = (*NETWORK, "batch_size=240", "scale.batch_size=240")  # six an epoch


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
    trained = train(run, (split, split), lambda row: None)
    before, after = (
        {name: p.detach() for name, p in objective.named_parameters()}
        for objective in (run.new_objective(), trained.objective)
    )
    return run, trained, before, after, split


def clipped_sum_float64(run, before, split: Split) -> torch.Tensor:
    """The flat clipped sum over all of `split` at the first weights, one example at a time in float64."""
    objective = run.new_objective()
    objective.load_state_dict(before)
    return flat(clipped_sum(per_example(objective, split.images, split.targets), NORM))


def test_a_step_is_the_clipped_sum_plus_the_charged_noise(smoke) -> None:
    """q = 1, one step: (before - after) * B is the sum of clipped gradients plus noise of std multiplier * norm.

    The test knows the sum in float64, so what is left is the noise itself: 26,010 draws. It fails if the noise is
    scaled, the clip dropped, the learning rate or the divisor changed, or if the ledger charges anything else.
    """
    run, trained, before, after, split = audit(smoke, 40, 40)
    noise = (flat(before) - flat(after)) * 40 - clipped_sum_float64(run, before, split)
    assert noise.std().item() == pytest.approx(NOISE * NORM, rel=0.015)
    assert abs(noise.mean().item()) < 4 * NOISE * NORM / math.sqrt(26_010)
    assert trained.history["epsilon_sound"] == [pytest.approx(closed_form(1 / NOISE, 1e-5), rel=1e-3)]


def test_an_empty_batch_is_a_step_with_all_its_noise(smoke) -> None:
    """q = 1/30: one batch in three is empty, and it is released and charged like any other.

    Over an epoch of T steps the weights move by the drawn gradients, of norm 0.2 each at most, and by noise. Its
    deviation is sqrt(T) multiplier * norm on each of 26,010 coordinates. Without the empty batches it would be a fifth
    less.
    """
    run, trained, before, after, _ = audit(smoke, 30, 1)
    drawn = list(run.mechanism.batches(generator(run.config.seed, "sampling", run.device)))
    assert 6 <= sum(len(indices) == 0 for indices in drawn) < len(drawn) == 30
    moved = flat(before) - flat(after)
    assert moved.std().item() == pytest.approx(math.sqrt(30) * NOISE * NORM, rel=0.015)
    assert trained.history["steps"] == [30]
    assert trained.history["epsilon_sound"] == [sound_epsilon(run.mechanism.charges(30).actual, 1e-5)]


@pytest.mark.usefixtures("coarse")
def test_same_config_same_record_other_seed_other_record(smoke) -> None:
    def history(*overrides: str) -> dict:
        run = prepare(smoke("epochs=1", *FEW_STEPS, *overrides))
        return train(run, load(run), lambda row: None).history

    drawing = ("activation._target_=torch.nn.RReLU", "clipping=none", "noise_multiplier=0")
    for overrides in (drawing, ()):
        first = history(*overrides)
        torch.rand(3)  # what the global generator does is no part of a run
        assert history(*overrides) == first
    assert history("seed=1") != first
    for other in ("runtime.physical_batch=7", "runtime.engine=isolated"):
        assert history(other)["test_loss"] == pytest.approx(first["test_loss"], rel=1e-4)


@pytest.mark.usefixtures("coarse")
def test_a_diverged_private_run_guarantees_the_cost_of_all_steps(smoke) -> None:
    """It ended because of its data. With other data it would have released more."""
    run = prepare(smoke("epochs=3", *FEW_STEPS, "activation=relu", "optimizer.lr=1e38"))
    trained = train(run, load(run), lambda row: None)
    final = final_metrics(run, trained)
    assert (trained.status, final["epoch"], final["max_tries"]) == ("diverged", 1, run.most_steps)
    assert final["epsilon_sound"] == run.epsilon_at_most_steps > 1.2 * final["epsilon_spent"]
    stopped = train(run, load(run), lambda row: False)
    assert final_metrics(run, stopped)["epsilon_sound"] == run.epsilon_at_most_steps


def test_diagnostics_are_measured_when_asked_for(smoke) -> None:
    asked = "diagnostics=[gradient_norms,activation_norms,per_class_accuracy]"
    run = prepare(smoke("epochs=1", asked, "clipping=none", "noise_multiplier=0", "sampling=shuffled"))
    computed = train(run, load(run), lambda row: None).diagnostics
    assert computed["gradient_norms"]["step"] == computed["activation_norms"]["step"] == [0, 10, 20, 30, 40]
    assert set(computed["activation_norms"]) == {"step", "1", "4", "8"}  # the activations' places in the network
    assert all(0 < n <= math.sqrt(32) for n in computed["activation_norms"]["8"])  # tanh of 32 units
    assert len(computed["per_class_accuracy"]) == 1
    assert len(computed["per_class_accuracy"][0]) == 10


def test_holdout_trains_and_reports_on_training_images_only(smoke) -> None:
    run = prepare(smoke("evaluation=holdout"))
    training, held_out = load(run)
    everything, _ = load(prepare(smoke()))
    assert (len(training), len(held_out)) == (1438 - 119, 119)
    assert torch.equal(torch.cat([training.images, held_out.images]), everything.images)
    assert run.mechanism.examples == len(training)


@pytest.mark.parametrize("override", ["evaluation=test", "screening=annealing"])
def test_what_trains_are_the_training_images_and_no_others(smoke, override: str) -> None:
    """In their order, as indices depend on it. Reported images and those that screen are parts of the test images."""
    run = prepare(smoke(override))
    training, *splits = load(run)
    theirs, tests = run.dataset.load(run.config.runtime.data_root)
    assert torch.equal(training.images, theirs.images)
    assert torch.equal(training.targets, theirs.targets)
    whole = {image.numpy().tobytes(): int(label) for image, label in zip(tests.images, tests.targets, strict=True)}
    for split in splits:
        assert {
            image.numpy().tobytes(): int(label) for image, label in zip(split.images, split.targets, strict=True)
        }.items() <= whole.items()
    assert sum(map(len, splits)) == len(tests)


def _releases(smoke, *overrides: str):
    """Train for two epochs; the noise of every step, the drawn batches, and the generators that drew them."""
    few = ("epochs=2", *NETWORK, "noise_multiplier=0.8", "batch_size=600", "scale.batch_size=600")
    run = prepare(smoke(*few, *overrides))
    noises, batches, generators = [], [], {}
    release, draw = Mechanism.release, Mechanism.batches

    def watched_release(self, sums, noise):
        noisy = release(self, sums, noise)
        noises.append(torch.cat([(noisy[name] * self.batch_size - sums[name]).flatten() for name in sums]))
        generators["noise"] = noise.initial_seed()
        return noisy

    def watched_batches(self, sampling):
        generators["sampling"] = sampling.initial_seed()
        for indices in draw(self, sampling):
            batches.append(indices)
            yield indices

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mechanism, "release", watched_release)
        patch.setattr(Mechanism, "batches", watched_batches)
        trained = train(run, load(run), lambda row: None)
    return run, trained, noises, batches, generators


@pytest.mark.usefixtures("coarse")
def test_every_step_and_seed_has_noise_and_a_batch_of_its_own(smoke) -> None:
    """Noise that repeats cancels in a difference of two weights, and the guarantee with it."""
    _, _, noises, batches, generators = _releases(smoke)
    _, _, other_noises, other_batches, other_generators = _releases(smoke, "seed=1")
    assert len(noises) == len(batches) == 4
    draws = torch.stack([*noises, *other_noises])
    correlations = torch.corrcoef(draws) - torch.eye(8)
    assert correlations.abs().max() < 5 / math.sqrt(draws.shape[1])
    sets = [tuple(b.tolist()) for b in (*batches, *other_batches)]
    assert len(set(sets)) == 8
    seeds = [*generators.values(), *other_generators.values()]
    assert len(set(seeds)) == 4, "streams and seeds share no generator"


def test_shuffled_epochs_are_charged_without_amplification(smoke) -> None:
    run, trained, _, batches, _ = _releases(smoke, "sampling=shuffled")
    for epoch in (1, 2):
        claimed = trained.history["epsilon"][epoch - 1]
        assert claimed == pytest.approx(run.accountant.epsilon(run.mechanism.charges_of_epochs(epoch).claimed, 1e-5))
        unamplified = ((GaussianDpEvent(0.8), epoch),)
        assert trained.history["epsilon_sound"][epoch - 1] == pytest.approx(sound_epsilon(unamplified, 1e-5))
    assert len(torch.cat(batches[:2]).unique()) == 1200
    assert final_metrics(run, trained)["neighbouring_relation"] == "zero-out"


@pytest.mark.usefixtures("coarse")
def test_evaluates_on_the_evaluation_split_only(smoke) -> None:
    run = prepare(smoke("epochs=1", *FEW_STEPS))
    training, test = load(run)
    assert len(test) == run.dataset.test_examples
    wrong = Split(test.images, (test.targets + 1) % 10)  # the same images: only their labels tell the splits apart
    right_history = train(run, (training, test), lambda row: None).history
    wrong_history = train(run, (training, wrong), lambda row: None).history
    assert right_history["train_loss"] == wrong_history["train_loss"]
    assert right_history["test_accuracy"][0] + wrong_history["test_accuracy"][0] < 100
    assert right_history["test_loss"] != wrong_history["test_loss"]


@pytest.mark.usefixtures("coarse")
def test_a_resumed_run_draws_as_a_whole_one(smoke) -> None:
    """Layers draw from PyTorch's generator, which is put back. The trial of a new engine leaves it as it is."""
    small = ("architecture.filters=[2,2]", "architecture.units=4", "batch_size=3", "scale.batch_size=3")
    config = smoke("epochs=2", "activation._target_=torch.nn.Dropout", *small)
    config.dataset.train_examples = 6
    split = Split(torch.randn(6, 1, 28, 28), torch.arange(6))
    whole, resumed, _ = whole_and_resumed(prepare(config), (split, split))
    assert resumed.history == whole.history


class Slope(nn.Module):
    """Draws where it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = 0.5 + np.random.rand() + random.random()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.slope * x).tanh()


class Jumping(torch.optim.SGD):
    """Draws in every step."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] = 0.1 * (random.random() + np.random.rand())
        return super().step(closure)


@pytest.mark.usefixtures("coarse")
def test_parts_draw_from_numpy_and_random_by_the_seed(smoke) -> None:
    """The same run in another process, or resumed, has the same numbers, and another seed has others."""
    small = ("architecture=lipschitz_mlp", "architecture.units=[4]", "batch_size=3", "scale.batch_size=3", "epochs=3")
    optimizer = f"optimizer={{_target_:{Jumping.__module__}.Jumping,lr:0.1,_partial_:true}}"
    options = (f"activation._target_={Slope.__module__}.Slope", "~optimizer", f"+{optimizer}")
    split = Split(torch.randn(6, 1, 28, 28), torch.arange(6))
    runs = []
    for before, seed in enumerate((0, 0, 1)):
        config = smoke(*small, *options, f"seed={seed}", "scale.seeds=null")
        config.dataset.train_examples = 6
        random.seed(before)
        np.random.seed(before)
        whole, resumed, _ = whole_and_resumed(prepare(config), (split, split))
        assert random.random() == random.Random(before).random(), "as if nothing had been drawn"
        assert whole.history == resumed.history
        runs.append(whole.history["train_loss"])
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.usefixtures("coarse")
def test_every_stream_of_a_run_has_its_own_seed(smoke, monkeypatch) -> None:
    """Statistics with noise from the stream of the steps, for example, would get the noise of the first step."""
    seeds = []

    class Noted(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            seeds.append(seed)
            return super().manual_seed(seed)

    monkeypatch.setattr(torch, "Generator", Noted)
    monkeypatch.setattr(diagnostics, "FIXED", 32)
    parts = ("normalization=private_statistics", "screening=annealing", "diagnostics=[hessian]", "noise_multiplier=2")
    run = prepare(smoke("epochs=1", *FEW_STEPS, *parts))
    train(run, load(run), lambda row: seeds.append(torch.initial_seed()))  # of the layers that draw
    seeds.append(derived_seed(run.config.seed, "init"))
    assert len(set(seeds)) == len(seeds) == 7


def test_final_metrics_keep_last_and_best_apart(smoke) -> None:
    run = prepare(smoke())
    trained = Trained(history={name: [1.0, 2.0, 3.0] for name in run.columns})
    trained.history["test_accuracy"] = [70.0, 90.0, 80.0]
    final = final_metrics(run, trained)
    assert (final["test_accuracy"], final["epoch"]) == (80.0, 3.0)
    assert (final["best_test_accuracy"], final["best_epoch"]) == (90.0, 2.0)

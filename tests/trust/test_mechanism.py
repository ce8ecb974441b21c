"""Mechanisms of a user: the package draws and charges their choices. Others have no sound ε."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from omegaconf import DictConfig

from runner.accounting import sound_epsilon
from runner.build.prepare import prepare
from runner.clipping import NoiseGroup
from runner.config import ConfigError, Sampling
from runner.mechanism.dp_sgd import Mechanism, Scheduled
from runner.mechanism.layerwise import OfMeanLoss, _DisjointBatches
from runner.training.loop import Trained, load, train
from runner.training.run import Run
from runner.trust.mechanism import CHOICES, mechanism_for, own_noise
from tests import choosing
from tests.accounting.releases import closed_form
from tests.references import whole_and_resumed

OfKind = Callable[..., DictConfig]
DELTA = 1e-5
THREE = (NoiseGroup(("a",), 0.5), NoiseGroup(("b",), 2.0), NoiseGroup(("c",), 0.1))


@pytest.fixture
def make_kind(smoke) -> OfKind:
    """`make_kind("TwoLevels")`: a small config with that mechanism of tests/choosing.py, or of a dotted path."""

    def make(name: str, *overrides: str) -> DictConfig:
        target = name if "." in name else f"tests.choosing.{name}"
        small = ("architecture.units=4", "architecture.filters=[2,2]", "noise_multiplier=1.5")
        return smoke(
            "experiment=tempered_sigmoid/mnist_tanh", f"+mechanism._target_={target}", "+mechanism._partial_=true",
            *small, *overrides,
        )  # fmt: skip

    return make


def chosen(kind: Any, sampling: Sampling = Sampling.poisson, epochs: int = 4, multiplier: float = 2.0) -> Any:
    """The mechanism that is made of a class: 10 steps of 100 of 1000 examples an epoch."""
    return mechanism_for(kind, sampling, 1000, 100, THREE, (), epochs, None)(multiplier)


def add_arguments(name: str, **arguments: Any) -> Any:
    """Return a class with arguments, as Hydra makes it of the lines in a config."""
    return partial(getattr(choosing, name), **arguments)


@pytest.mark.usefixtures("coarse")
def test_two_levels_cost_what_dp_accounting_says() -> None:
    """3 epochs at 2, then one at 1, by another composition of the same."""
    mechanism = chosen(add_arguments("TwoLevels", after=3))
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), 30)
    accountant.compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)), 10)
    spent = sound_epsilon(mechanism.charges_of_epochs(4).actual, DELTA)
    assert spent == pytest.approx(accountant.get_epsilon(DELTA), rel=2e-3)
    assert mechanism.charges(31).actual == mechanism.charges(31).claimed
    assert dict(mechanism.charges(31).actual) == {
        PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)): 30,
        PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)): 1,
    }


def test_an_epoch_of_shuffled_batches_costs_its_least_noise() -> None:
    """Every second step has half of it: each epoch is one Gaussian of multiplier 1, even if it has just begun."""
    mechanism = chosen(choosing.Alternating, Sampling.shuffled)
    for charges in (mechanism.charges_of_epochs(4), mechanism.charges(31)):
        assert sound_epsilon(charges.actual, DELTA) == pytest.approx(closed_form(2.0, DELTA), abs=1e-3)
    falling = chosen(add_arguments("TwoLevels", after=3), Sampling.shuffled).charges_of_epochs(4)
    assert sound_epsilon(falling.actual, DELTA) == pytest.approx(closed_form((3 / 4 + 1) ** 0.5, DELTA), abs=1e-3)


@pytest.mark.usefixtures("coarse")
def test_what_is_trained_has_the_noise_that_is_charged(make_kind: OfKind, monkeypatch) -> None:
    """Step by step, over epochs: what each release multiplies the normal numbers by, and what the history says."""
    run = prepare(make_kind("TwoLevels", "epochs=2", "scale.batch_size=240"))
    assert type(run.mechanism) is Scheduled
    steps, q = run.mechanism.steps_per_epoch, run.mechanism.sampling_rate
    released = []
    release = Mechanism.release

    def watched(self: Mechanism, sums: dict, generator: torch.Generator) -> dict:
        with monkeypatch.context() as patch:
            patch.setattr(
                Mechanism, "draw_noise", lambda self, like, _: {n: y.double() * 0 + 1 for n, y in like.items()}
            )
            moved = release(self, sums, generator)
        name = next(iter(sums))
        released.append(float((moved[name] * self.denominator - sums[name]).double().mean()))
        return release(self, sums, generator)

    monkeypatch.setattr(Mechanism, "release", watched)
    history = trained(run).history
    assert released == pytest.approx([1.5] * steps + [0.75] * steps, rel=1e-3)
    first, second = ((PoissonSampledDpEvent(q, GaussianDpEvent(noise)), steps) for noise in (1.5, 0.75))
    assert history["epsilon_sound"] == [sound_epsilon((first,), DELTA), sound_epsilon((first, second), DELTA)]


def trained(run: Run) -> Trained:
    return train(run, load(run), lambda row: None)


@pytest.mark.usefixtures("coarse")
def test_a_schedule_goes_on_where_it_was_stopped(make_kind: OfKind) -> None:
    run = prepare(make_kind("TwoLevels", "epochs=2", "scale.batch_size=240"))
    whole, resumed, _ = whole_and_resumed(run, load(run))
    assert resumed.history == whole.history


def test_shares_are_of_a_steps_privacy() -> None:
    mechanism = chosen(choosing.FirstMost)
    assert type(mechanism) is Mechanism
    stds = [mechanism.noise_std(group) for group in mechanism.noise_groups]
    assert stds == pytest.approx([2 * 0.5 / 0.9**0.5, 2 * 2.0 / 0.05**0.5, 2 * 0.1 / 0.05**0.5])
    joint = sum((group.sensitivity / std) ** 2 for group, std in zip(THREE, stds, strict=True)) ** -0.5
    assert joint == pytest.approx(2.0)
    zeros = {group.parameters[0]: torch.zeros(50_000) for group in THREE}
    noisy = mechanism.release(zeros, torch.Generator().manual_seed(0))
    assert [noisy[name].double().std().item() * 100 for name in "abc"] == pytest.approx(stds, rel=0.015)


@pytest.mark.parametrize("kind", [Mechanism, choosing.OwnName])
def test_nothing_but_choices_is_taken_of_a_class(kind: type) -> None:
    mechanism = chosen(kind)
    assert type(mechanism) is Mechanism
    assert mechanism == Mechanism(Sampling.poisson, 1000, 100, 2.0, THREE)
    assert [group.sensitivity for group in mechanism.noise_groups] == [0.5, 2.0, 0.1]
    assert mechanism.charges(3).actual == ((PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), 3),)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        *((add_arguments("Chooses", factor=factor), "noise factors > 0") for factor in (0.0, -1.0, math.inf, "nan")),
        *((add_arguments("Chooses", factor=factor), "expected a float") for factor in ("tensor", True)),
        (add_arguments("Chooses", factor="by step"), "Chooses has 200 different noise factors"),
        (add_arguments("Chooses", share=[0.5, 0.5]), "Chooses gives 2 shares of 3 noise groups"),
        (add_arguments("Chooses", share=[0.5, 0.5, 0.1]), "at most 1 in all"),
        *((add_arguments("Chooses", share=[0.5, 0.4, share]), "a share above 0") for share in (0.0, math.nan)),
        (add_arguments("Chooses", share=["0.5", 0.4, 0.1]), "expected a float"),
        (closed_form, "A mechanism is a class"),
        (choosing.Bare, "Bare has no applied, which a mechanism needs"),
        (choosing.ChoosesAndDraws, "ChoosesAndDraws overrides noise_factor, .*: it overrides draw_noise, too"),
        *((kind, f"{kind.__name__} is the base of other mechanisms") for kind in (OfMeanLoss, _DisjointBatches)),
    ],
)
def test_only_choices_are_accepted(kind: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chosen(kind, epochs=20)


OTHERS = sorted(name for name in vars(Mechanism) if not name.startswith("__") and name not in CHOICES)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        *((type("Own", (Mechanism,), {name: vars(Mechanism)[name]}), f"overrides {name}") for name in OTHERS),
        (choosing.NoNoise, "overrides draw_noise"),
        (choosing.Wraps, "is no subclass of Mechanism"),
    ],
)
def test_one_that_does_more_than_choose_has_no_sound_epsilon(kind: type, names: str) -> None:
    mechanism = chosen(kind)
    assert type(mechanism) is kind, "it may run as it is"
    assert f"{kind.__name__} {names}, so its noise " in own_noise(mechanism)


@pytest.mark.parametrize(
    ("name", "overrides", "reason"),
    [
        ("HalfTheNoise", (), "HalfTheNoise overrides noise_std, so its noise or charges are not known."),
        (
            "OwnName",
            ("+normalization={_target_: tests.choosing.OwnNormalization, groups: 1}", "features=pixels"),
            "OwnNormalization is a user's normalization, so its releases of the examples are not known.",
        ),
    ],
)
def test_a_run_with_releases_of_a_user_has_no_sound_epsilon(
    make_kind: OfKind, name: str, overrides: tuple[str, ...], reason: str
) -> None:
    run = prepare(make_kind(name, "epochs=1", "scale.batch_size=500", *overrides))
    assert run.unsound == reason
    assert run.epsilon_at_most_steps is None
    assert trained(run).history["epsilon_sound"] == [None]


def test_the_package_knows_its_own(make_kind: OfKind) -> None:
    for sampling in ("poisson", "shuffled"):
        assert prepare(make_kind("TwoLevels", f"sampling={sampling}")).unsound is None
    assert prepare(make_kind("runner.mechanism.layerwise.Joint")).unsound is None
    assert prepare(make_kind("runner.mechanism.dp_sgd.Scheduled", "+mechanism.factors=[1,0.5]")).unsound is None


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("Chooses", "+mechanism.factor=raise", "^Chooses cannot choose: KeyError 0"),
        ("Chooses", "+mechanism.share=raise", "^Chooses cannot be made: LookupError raise"),
        ("runner.mechanism.dp_sgd.Scheduled", "+mechanism.factors=[[1.0]]", "mechanism.factors has to be a list of"),
        ("ChargesLaplace", "", r"^accountant: .*LaplaceDpEvent"),
        ("TwoLevels", "screening=annealing", "the noise has to be the same at all steps"),
    ],
)
def test_other_mechanisms_are_refused_in_a_sentence(make_kind: OfKind, name: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(make_kind(name, *override.split()))

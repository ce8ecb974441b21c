"""Clipping by the network itself: the sums, the noise groups, and what one example moves of them."""

import math
from collections.abc import Callable

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from runner.build.parts import check_constraint
from runner.build.prepare import prepare
from runner.clipping import Lipschitz, gradient_sum
from runner.clipping.library_noise import LibraryNoise, library_bounds
from runner.config import ConfigError, Sampling
from runner.gradients import ENGINES, Objective
from runner.mechanism.dp_sgd import Mechanism
from runner.networks.lipschitz import Spectral, gradient_bounds
from runner.networks.lipschitz.architectures import lipschitz_cnn, lipschitz_mixer
from runner.networks.lipschitz.bounds import ROUNDING
from runner.networks.lipschitz.layers import GroupSort2
from runner.networks.lipschitz.losses import SharpCrossEntropy
from runner.networks.objective import InputBound
from runner.records.jobs import composed
from tests.references import distance, per_example

HERE = "tests.clipping.test_lipschitz"
LIPSCHITZ = ("experiment=lipschitz/mnist_mlp", "target_epsilon=null", "noise_multiplier=1.0")


def made(build: Callable[..., nn.Module], *arguments: object) -> Objective:
    torch.manual_seed(0)
    network = build([1, 8, 8], 3, GroupSort2, *arguments)
    objective = Objective(network, SharpCrossEntropy(50.0, gradient_bound=0.5), InputBound((1, 8, 8), 2.0), Spectral())
    objective.project()
    return objective


def cnn() -> Objective:
    return made(lipschitz_cnn, [2, 4], 6, 1, True, True, False)


def mixer() -> Objective:
    return made(lipschitz_mixer, 4, 6, 4, 4, 1, True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("build", [cnn, mixer])
def test_the_sum_is_that_of_gradients_taken_one_by_one(build, engine):
    """In physical batches of any size, in float64; no contribution passes its group's sensitivity."""
    objective = build().double()
    inputs = (torch.randn(9, 1, 8, 8).double() * torch.logspace(-2, 2, 9)[:, None, None, None]).renorm(2, 0, 2.0)
    targets = torch.arange(9) % 3
    clipping = Lipschitz()
    groups = clipping.noise_groups(objective)
    alone = per_example(objective, inputs, targets)
    computes = ENGINES[engine](objective)
    computed = gradient_sum(clipping, computes, inputs, targets, 4, groups)
    for group in groups:
        (name,) = group.parameters
        expected = torch.stack([gradient[name] for gradient in alone])
        assert torch.allclose(computed.gradients[name], expected.sum(0), rtol=1e-9, atol=1e-12)
        assert expected.flatten(1).norm(dim=1).max() <= group.sensitivity


def test_local_noise_follows_bounds_and_global_their_norm():
    """D groups of deviation nm sqrt(D) K_d, or one of nm (sum K^2)^(1/2): the same multiplier of the whole step."""
    objective = cnn()
    bounds = gradient_bounds(objective)
    local, total = (
        Mechanism(Sampling.poisson, 100, 10, 1.5, Lipschitz(noise).noise_groups(objective))
        for noise in ("local", "global")
    )
    count = len(bounds)
    assert count == 8
    assert [local.noise_std(g) for g in local.noise_groups] == pytest.approx(
        [1.5 * math.sqrt(count) * bound for bound in bounds.values()]
    )
    (group,) = total.noise_groups
    assert total.noise_std(group) == pytest.approx(1.5 * math.sqrt(sum(b**2 for b in bounds.values())))
    shift = sum((bound / local.noise_std(g)) ** 2 for bound, g in zip(bounds.values(), local.noise_groups, strict=True))
    assert 1 / math.sqrt(shift) == pytest.approx(1.5)


def test_a_constraint_is_for_layers_it_knows():
    network = nn.Sequential(nn.Flatten(), nn.LayerNorm(4), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match=r"it is for linear layers and convolutions, but network\.1 is a LayerNorm"):
        check_constraint(Objective(network, nn.CrossEntropyLoss(reduction="none"), None, Spectral()))


class Doubles(nn.Module):
    """Twice its input, said to be 1-Lipschitz."""

    lipschitz = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class Halves(nn.Module):
    """Half its input, and said to be."""

    lipschitz = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


class Steep(nn.Module):
    """A loss of slope sqrt(2), said to have 0.1."""

    def lipschitz(self, classes: int) -> float:
        return 0.1

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(100 * logits, targets, reduction="none") / 100


@pytest.mark.parametrize("override", [f"activation._target_={HERE}.Doubles", f"loss._target_={HERE}.Steep"])
def test_parts_that_state_less_than_they_do_are_cut_to_it(smoke, override):
    """Without the cut one example would move a sum by twice and by fourteen times as much as is stated."""
    extra = ["~loss.inverse_temperature", "~loss.gradient_bound"] if "loss" in override else []
    run = prepare(smoke(*LIPSCHITZ, override, *extra))
    assert len(run.rests_on) == 1  # that the part reads no data by itself
    objective = run.new_objective()
    engine = run.engine(objective)
    torch.manual_seed(0)
    inputs, targets = torch.rand(6, 1, 28, 28).renorm(2, 0, 1.0), torch.arange(6)
    contributions, _ = engine.gradients(inputs, targets)  # as they are
    ratios = [
        contributions[name].flatten(1).norm(dim=1).max().item() / group.sensitivity
        for group in run.mechanism.noise_groups
        for name in group.parameters
    ]
    assert max(ratios) > 1.5
    groups = run.mechanism.noise_groups
    total = run.clipping.sum_contributions(engine, inputs, targets, groups).gradients
    without_first = run.clipping.sum_contributions(engine, inputs[1:], targets[1:], groups).gradients
    for group in run.mechanism.noise_groups:
        assert distance(total, without_first, group.parameters) <= group.sensitivity * (1 + 1e-4)


def test_a_part_that_states_what_it_does_is_bounded_by_that(smoke):
    run = prepare(smoke(*LIPSCHITZ, f"activation._target_={HERE}.Halves"))
    first, last = (group.sensitivity for group in run.mechanism.noise_groups)
    assert first == pytest.approx(0.5 * 0.1, rel=1e-3)  # what is behind the layer is halved
    assert last == pytest.approx(0.5 * 0.1, rel=1e-3)  # and so is its input


SOUND, LIBRARY = (f"experiment=lipschitz/mnist_convnet_script{name}" for name in ("", "_library"))


def test_library_bounds_by_hand():
    """L = 1/2, images of norm 2 on 8 x 8, kernels 3 x 3, whose factor 1/3 follows the bias of norm 1."""
    bounds = list(library_bounds(cnn()).values())
    first, second, third = 2 + 1 / 3, 2 + 2 / 3, 2 + 2 / 3 + 1  # norms before each later layer with weights
    by_hand = [2 / 3, 1 / 3, first / 3, 1 / 3, second, 1, third, 1]
    assert bounds == pytest.approx([0.5 * bound for bound in by_hand], rel=20 * (ROUNDING - 1))


@pytest.fixture(scope="module")
def arms():
    return [prepare(composed([name])) for name in (SOUND, LIBRARY)]


def test_arms_of_the_script_differ_in_their_bounds_alone(arms):
    sound, library = (OmegaConf.to_container(run.config) for run in arms)
    differing = {name for name in sound if sound[name] != library[name]}
    assert differing == {"title", "target_epsilon", "noise_multiplier", "clipping"}
    assert library["clipping"].pop("_target_").endswith("LibraryNoise")
    assert sound["clipping"].pop("_target_").endswith("Lipschitz")
    assert sound["clipping"] == library["clipping"]
    bounds = library_bounds(arms[0].new_objective())
    for before, after in zip(*(run.mechanism.noise_groups for run in arms), strict=True):
        (name,) = before.parameters
        assert after.sensitivity == before.sensitivity
        ratio = arms[1].mechanism.noise_std(after) / arms[0].mechanism.noise_std(before)
        assert ratio == pytest.approx(bounds[name] / before.sensitivity, rel=1e-9), name


def test_the_charge_is_of_the_noise_that_is_added(arms):
    """28 and 14 positions a side, and kernels of three by three: 0.0962 where the library counts 1.3817."""
    mechanism = arms[1].mechanism
    shift = math.sqrt(sum((group.sensitivity / mechanism.noise_std(group)) ** 2 for group in mechanism.noise_groups))
    assert 1 / shift == pytest.approx(mechanism.noise_multiplier, rel=1e-9)
    assert mechanism.noise_multiplier == pytest.approx(0.0962, abs=1e-4)
    assert arms[0].mechanism.noise_multiplier == pytest.approx(1.3817, abs=1e-4)


def test_global_noise_is_refused():
    with pytest.raises(ValueError, match="noise is local"):
        LibraryNoise("global").noise_groups(cnn())
    with pytest.raises(ConfigError, match="noise is local"):
        prepare(composed([LIBRARY, "loss=sharp_cross_entropy_quantile"]))

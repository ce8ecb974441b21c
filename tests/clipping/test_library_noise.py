"""The noise of the authors' library: its bounds by hand, the same setting in both arms, and the true charge."""

from __future__ import annotations

import math

import pytest
from omegaconf import OmegaConf

from runner.build.prepare import prepare
from runner.clipping.library_noise import LibraryNoise, library_bounds
from runner.config import ConfigError
from runner.networks.lipschitz.bounds import ROUNDING
from runner.records.jobs import composed
from tests.clipping.test_lipschitz import cnn

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

"""A run with a part of a user."""

from collections.abc import Callable

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

Compose = Callable[..., DictConfig]


@pytest.fixture
def part_config(smoke: Compose) -> Compose:
    """`part_config("architecture", "tests.coupling.Plain")`: a small private run with that class in a group."""

    def make(group: str, target: str, *overrides: str, **arguments: object) -> DictConfig:
        config = smoke("experiment=tempered_sigmoid/mnist_tanh", "clipping.norm=0.1", "epochs=1", *overrides)
        config.tracking.mode = "disabled"
        with open_dict(config):
            config[group] = OmegaConf.create({"_target_": target, **arguments})
        return config

    return make

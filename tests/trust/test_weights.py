"""Files of pre-trained weights: part of the run's identity, and features by them are computed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, open_dict
from torch import Tensor, nn

from runner.build.prepare import prepare
from runner.config import ConfigError
from runner.records.identity import identify, resolved
from runner.trust.parts import OwnFeatures
from runner.trust.sources import check_sources, weight_files

Make = Callable[..., DictConfig]
NETWORK = "tests.trust.test_weights.pretrained"


def pretrained(input_shape: list[int], classes: int, activation: Callable[[], nn.Module], weights: str) -> nn.Module:
    first = nn.Linear(784, 8)
    first.load_state_dict(torch.load(weights))
    return nn.Sequential(nn.Flatten(), first.requires_grad_(False), activation(), nn.Linear(8, classes))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save(nn.Linear(784, 8).state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


def test_other_weights_are_another_run(weights: Path, part_config: Make) -> None:
    config = part_config("architecture", NETWORK, weights=str(weights))
    first = resolved(config)
    torch.save(nn.Linear(784, 8).state_dict(), weights)
    assert identify(resolved(config))[0] != identify(first)[0]
    with pytest.raises(ConfigError, match=r"The source of architecture\.weights is not what it was"):
        check_sources(first)


def test_frozen_weights_are_stated_beside_epsilon(weights: Path, part_config: Make) -> None:
    run = prepare(resolved(part_config("architecture", NETWORK, weights=str(weights))))
    assert run.rests_on[0] == "6,280 frozen parameters: taken as public"
    assert run.parameters == 90
    assert run.isolation is None  # the fast engine


def test_files_of_other_groups_and_texts_are_no_weights(weights: Path) -> None:
    content = DictConfig({"a": [str(weights), "no file", 3], "b": {"c": "x" * 5000}})
    assert list(weight_files(content, "features")) == ["features.a[0]"]


class Counted:
    """The mean of an image, with or without noise."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def shape(self, image_shape: list[int]) -> list[int]:
        return [1]

    def __call__(self, images: Tensor) -> Tensor:
        return images.mean((1, 2, 3))[:, None] + self.noise * torch.rand(len(images), 1)


def test_features_by_weights_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = torch.rand(600, 1, 4, 4)
    first = OwnFeatures(Counted(), "key")(images)
    later, lengths = OwnFeatures(Counted(), "key"), []
    compute = later.mapped
    later.mapped = lambda piece: lengths.append(len(piece)) or compute(piece)
    again = later(images)
    assert sum(lengths) == 8  # two times a few, to see whether they are random
    assert torch.equal(first, again)
    torch.testing.assert_close(first, images.mean((1, 2, 3))[:, None])
    assert len(list(tmp_path.rglob("*.own"))) == 1
    for other in (OwnFeatures(Counted(), "other key"), OwnFeatures(Counted(), "key")):
        other(images + 1)
    assert len(list(tmp_path.rglob("*.own"))) == 3


def test_random_features_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    OwnFeatures(Counted(0.1), "key")(torch.rand(600, 1, 4, 4))
    assert not list(tmp_path.rglob("*.own"))


def test_own_features_without_weights_are_not_kept(part_config: Make) -> None:
    config = part_config("features", "tests.trust.test_weights.Counted")
    with open_dict(config):
        config.architecture = {"_target_": "runner.networks.architectures.linear"}
    features = prepare(resolved(config)).features
    assert isinstance(features, OwnFeatures)
    assert features.key == ""


def test_features_of_other_weights_have_another_key(weights: Path, part_config: Make) -> None:
    def key() -> str:
        config = part_config("features", "tests.trust.test_weights.Read", weights=str(weights))
        with open_dict(config):
            config.architecture = {"_target_": "runner.networks.architectures.linear"}
        features = prepare(resolved(config)).features
        assert isinstance(features, OwnFeatures)
        return features.key

    first = key()
    torch.save(nn.Linear(784, 8).state_dict(), weights)
    assert first
    assert key() != first


class Read(Counted):
    def __init__(self, weights: str) -> None:
        super().__init__()
        self.weights = weights

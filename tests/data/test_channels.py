"""Constants that standardise images, and whether they are statistics of the training images."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from runner.config import REPOSITORY
from runner.data import DataError
from runner.data.originals import CHANNELS, private_statistics

MNIST, OWN = {"name": "MNIST"}, {"_target_": "torchvision.datasets.CIFAR10", "root": "x"}


@pytest.mark.parametrize(
    ("mean", "std", "dataset", "private"),
    [
        ([0.1307], [0.3081], MNIST, True),
        ([0.13], [0.31], MNIST, True),  # fewer digits of the same statistics
        ([0.5], [0.3081], MNIST, True),  # one of the two is enough
        ([0.5], [0.5], MNIST, False),
        (None, None, MNIST, False),
        ([0.1307], [0.3081], {"name": "FashionMNIST"}, False),  # another data set's
        ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225], {"name": "CIFAR10"}, False),  # ImageNet's
        ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.201], {"name": "CIFAR10"}, True),
        ([0.4914, 0.4822, 0.4465], [1.0, 1.0, 1.0], OWN, True),  # torchvision's own class
        (["a", "b", "c"], [0.4914], {"name": "CIFAR10"}, False),
    ],
)
def test_which_constants_are_statistics_of_training_images(mean, std, dataset, private: bool) -> None:
    assert bool(private_statistics({"mean": mean, "std": std}, dataset)) == private


@pytest.mark.parametrize("path", sorted((REPOSITORY / "conf" / "dataset").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_data_set_has_the_statistics_of_its_images(path: Path) -> None:
    """They are measured where this machine has the images."""
    option = OmegaConf.load(path)
    stated = CHANNELS[option.name]
    try:
        train, _ = instantiate(option, _convert_="all").load(os.environ.get("DP_DATA_ROOT", "~/.cache/dp-data"))
    except DataError:
        pytest.skip(f"{option.name} is not here")
    deviations = train.images.std((0, 2, 3)), train.images.std((2, 3)).mean(0)
    for measured, statistic in zip((train.images.mean((0, 2, 3)), *deviations), stated, strict=False):
        assert measured.tolist() == pytest.approx(statistic, abs=1e-4)

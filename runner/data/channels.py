"""Constants that standardise the channels of images, and what they cost if they come from the training images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By torchvision's name, of the training images: each channel's mean and deviation. On CIFAR-10 the third is the mean
# over images of an image's own deviation, which is as common.
CHANNELS = {
    "MNIST": ([0.1307], [0.3081]),
    "FashionMNIST": ([0.2860], [0.3530]),
    "CIFAR10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616], [0.2023, 0.1994, 0.2010]),
}
_CLOSE = 0.002  # constants that differ by no more are the same statistic, written with fewer digits


def private_statistics(features: Mapping[str, Any], dataset: Mapping[str, Any]) -> str | None:
    """Return the reason why features cost privacy that no ledger holds, in one sentence, or None.

    A map of single images costs nothing if its constants are public. If `mean` or `std` is a statistic of the training
    images, a neighbouring data set has another one, and nothing is charged for its release. The values tell such
    statistics, so this holds for recorded configs, too. Of data sets that are not in `CHANNELS` constants are believed
    to be public.

    Args:
        features: the config's group `features`.
        dataset: the config's group `dataset`. A class of torchvision counts by its own name.

    >>> print(private_statistics({"mean": [0.1307], "std": [0.3081]}, {"name": "FashionMNIST"}))
    None
    >>> private_statistics({"mean": [0.1307], "std": [0.3081]}, {"name": "MNIST"})
    "The features have statistics of MNIST's training images as constants, which no ledger holds."
    """
    name = dataset.get("name") or str(dataset["_target_"]).rpartition(".")[2]
    given = [features.get("mean"), features.get("std")]
    if not any(_close(one, statistic) for one in given for statistic in CHANNELS.get(name, ())):
        return None
    return f"The features have statistics of {name}'s training images as constants, which no ledger holds."


def _close(given: Any, statistic: list[float]) -> bool:
    try:
        return all(abs(one - other) <= _CLOSE for one, other in zip(given, statistic, strict=True))
    except (TypeError, ValueError):  # of a user's class: no numbers, or other channels
        return False

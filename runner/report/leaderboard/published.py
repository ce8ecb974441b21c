"""Published accuracies to compare with (published.yaml)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.config.yaml_file import read_yaml

_PATH = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class Published:
    """A published accuracy (percent) at a privacy budget, which its authors counted.

    Attributes:
        source: authors, venue, year, and the place of the number in their work.
        read: the address at which the number was read.
        disputed: the address of a work that disputes the budget, or "".
    """

    dataset: str
    method: str
    accuracy: float
    epsilon: float
    delta: float
    source: str
    read: str
    disputed: str = ""


def published() -> list[Published]:
    """Read the file, which has each work once, with its accuracies by data set and epsilon."""
    return [
        Published(dataset, accuracy=float(accuracy), epsilon=float(epsilon), **{**work, "delta": float(work["delta"])})
        for work in read_yaml(_PATH).plain
        for dataset, accuracies in work.pop("accuracies").items()
        for epsilon, accuracy in accuracies.items()
    ]


def best_published(known: Sequence[Published], dataset: str, epsilon: float) -> Published | None:
    """Return the highest undisputed accuracy on a data set within a budget, if there is one."""
    found = [one for one in known if one.dataset == dataset and one.epsilon <= epsilon and not one.disputed]
    return max(found, key=lambda one: one.accuracy, default=None)

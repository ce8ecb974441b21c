"""Published accuracies to compare with (published.yaml)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.config.yaml_file import read_yaml

KINDS = ("from scratch", "synthetic pre-training", "public data")
_PATH = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class Published:
    """A published accuracy (percent) at a privacy budget, which its authors counted.

    Attributes:
        kind: what training saw besides the private images: one of KINDS.
        accountant: how its authors count epsilon.
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
    kind: str = "from scratch"
    accountant: str = ""


def published() -> list[Published]:
    """Read the file, which has each work once, with its accuracies by data set and epsilon."""
    numbers = []
    for work in read_yaml(_PATH).plain:
        accuracies, kind, delta = work.pop("accuracies"), work.pop("class"), float(work.pop("delta"))
        for dataset, by_epsilon in accuracies.items():
            for epsilon, accuracy in by_epsilon.items():
                values = {"accuracy": float(accuracy), "epsilon": float(epsilon), "delta": delta, "kind": kind}
                numbers.append(Published(dataset, **values, **work))
    return numbers


def best_published(known: Sequence[Published], dataset: str, epsilon: float, kind: str = KINDS[0]) -> Published | None:
    """Return the highest undisputed accuracy of a kind on a data set within a budget, if there is one."""
    within = (one for one in known if one.dataset == dataset and one.epsilon <= epsilon and one.kind == kind)
    return max((one for one in within if not one.disputed), key=lambda one: one.accuracy, default=None)

"""A study: its arms, what is searched for each, and the combinations of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from runner.report.items import Statement
from runner.study.contrasts import Cell

SEARCH_SEED = 0
SAMPLERS = ("tpe", "gp", "random", "nsga-ii")  # of Optuna; the first one is used by default

Value: TypeAlias = float | str | bool
Values: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True)
class Dimension:
    """A range that is searched: uniform, or uniform in the logarithm; of whole numbers if `integer` is set."""

    low: float
    high: float
    log: bool = True
    integer: bool = False

    def rounded(self, value: float) -> float:
        """Round to three significant digits, or to a whole number, within the range."""
        return min(max(float(round(value)) if self.integer else float(f"{value:.3g}"), self.low), self.high)


class Times(tuple[float, ...]):
    """Factors of the value that an arm's config has."""

    __slots__ = ()


class ByEpsilon(dict[float, Any]):
    """Values, factors or a range of a field for each epsilon of the study."""


Space: TypeAlias = Mapping[str, Values | Times | Dimension]  # by searched field
Search: TypeAlias = Mapping[str, Values | Times | Dimension | ByEpsilon]
RATES: Search = {"optimizer.lr": Times((0.25, 0.354, 0.5, 0.707, 1.0, 1.41, 2.0, 2.83, 4.0))}  # searched by default


@dataclass(frozen=True)
class Arm:
    """A method that is compared: its overrides, and the fields that are searched for it.

    Attributes:
        place: the name of its place in the file, for messages.
        cell: the levels of the parts, in a factorial.
    """

    name: str
    overrides: tuple[str, ...]
    search: Search
    place: str
    cell: Cell = ()


@dataclass(frozen=True)
class Study:
    """The question of a study file.

    Attributes:
        arms: the first one is the baseline.
        datasets: options of the group `dataset`; "" for the base's own.
        seeds: of the final runs.
        trials: the number of each arm; None for all combinations of the listed values.
        equal: give all arms the same number of trials.
        widen: have a range widened whose best value is at its edge.
        parts: the names of the parts of a factorial; empty for other studies.
        sampler: suggests values of a range, one of `SAMPLERS`.
        prune: have Hyperband stop trials.
        front: search for accuracy against epsilon, with every epoch of every trial as a point. All epsilons then share
            one search, up to the largest, and no noise is calibrated.
        finding: the answer in a few sentences, with numbers, that its page begins with.
        remarks: sentences that a reader of its page has to know.
    """

    name: str
    path: Path
    title: str
    base: tuple[str, ...]
    arms: tuple[Arm, ...]
    datasets: tuple[str, ...]
    epsilons: tuple[float, ...]
    seeds: tuple[int, ...]
    trials: int | None = None
    equal: bool = True
    widen: bool = True
    parts: tuple[str, ...] = ()
    sampler: str = SAMPLERS[0]
    prune: bool = False
    front: bool = False
    finding: Statement | None = None
    remarks: tuple[str, ...] = ()


def shortened(study: Study) -> Study:
    """Return the study with the two middle values of each list and two trials of each arm, which test its file."""

    def middle_two(values: Any) -> Any:
        if isinstance(values, ByEpsilon):
            return ByEpsilon({epsilon: middle_two(inner) for epsilon, inner in values.items()})
        start = max(0, len(values) // 2 - 1) if not isinstance(values, Dimension) else 0
        return values if isinstance(values, Dimension) else type(values)(values[start : start + 2])

    arms = tuple(replace(arm, search={k: middle_two(values) for k, values in arm.search.items()}) for arm in study.arms)
    counts = [combinations_of(space_at(arm.search, epsilon)) for arm in arms for epsilon in study.epsilons]
    return replace(study, arms=arms, trials=min(2, *(2 if count is None else count for count in counts)), widen=False)


def space_at(search: Search, epsilon: float) -> Space:
    """Return the fields that are searched at an epsilon."""
    return {name: values[epsilon] if isinstance(values, ByEpsilon) else values for name, values in search.items()}


def combinations_of(search: Space) -> int | None:
    """Return the number of combinations of listed values, or None if a range is among them."""
    lengths = [None if isinstance(values, Dimension) else len(values) for values in search.values()]
    return None if None in lengths else math.prod(filter(None, lengths))


def grid(search: Space) -> list[dict[str, Value]]:
    """List all combinations of listed values."""
    values = [values for values in search.values() if not isinstance(values, Dimension)]
    return [dict(zip(search, point, strict=True)) for point in product(*values)]

"""The factorial design: four parts of a private network, each at an old and a new level, in all sixteen combinations.

See `runner.claims.contrasts` for contrasts of cells, effects and intervals.

Near 100% points are harder to gain, so gains may add up on another scale. The other natural scale is the share of
errors that a part removes. Take ln(100 - y) instead of the accuracy y. Then the gain of all parts minus the sum of each
alone is a logarithm of a ratio: the errors that remain with all four, over the errors if each removed the same share as
it does alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import TypeAlias

from runner.claims import contrasts
from runner.claims.contrasts import Cell, Estimate, estimate
from runner.claims.runs import PlannedRun, Runs
from runner.claims.statistics import Interval

Accuracies: TypeAlias = Mapping[Cell, Mapping[int, float]]  # percent, by seed


@dataclass(frozen=True)
class Part:
    """A config group with an old and a new option that are compared: their classes, and readable names."""

    group: str
    classes: tuple[str, str]
    names: tuple[str, str]

    @property
    def step(self) -> str:
        """Return the change in words: `tanh for ReLU`."""
        return f"{self.names[1]} for {self.names[0]}"

    def is_new(self, run: PlannedRun) -> bool | None:
        """Return True if a run has the new level, False for the old one, None for neither."""
        found = run.field(f"{self.group}._target_")
        return self.classes.index(found) == 1 if found in self.classes else None


PARTS = (
    Part("activation", ("torch.nn.ReLU", "torch.nn.Tanh"), ("ReLU", "tanh")),
    Part(
        "loss",
        ("torch.nn.CrossEntropyLoss", "runner.networks.losses.LosingLess"),
        ("cross-entropy", "losing-less loss"),
    ),
    Part("clipping", ("runner.clipping.Flat", "runner.clipping.Automatic"), ("flat clipping", "automatic clipping")),
    Part("features", ("runner.data.features.Pixels", "runner.data.features.ScatterNet"), ("pixels", "ScatterNet")),
)
CELLS = contrasts.cells_of(len(PARTS))
OLD, NEW = CELLS[0], CELLS[-1]
ALONE: tuple[Cell, ...] = tuple(tuple(i == j for j in range(len(PARTS))) for i in range(len(PARTS)))


def words(cell: Cell) -> list[str]:
    """Return a cell in words, a name per part."""
    return [part.names[new] for part, new in zip(PARTS, cell, strict=True)]


def by_cell(runs: Runs) -> dict[Cell, Runs]:
    """Return runs by their cell, without runs that belong to no cell."""
    found = runs.by(lambda run: tuple(part.is_new(run) for part in PARTS))
    return {cell: of for cell, of in found.items() if None not in cell}


def effect_of(parts: Sequence[Part]) -> dict[Cell, float]:
    """Return the weights of the effect of some parts."""
    return contrasts.weights_of([PARTS.index(part) for part in parts], len(PARTS))


def effects() -> list[tuple[Part, ...]]:
    """Return the sets of parts that have an effect, single ones first, then pairs, and so on."""
    return [tuple(PARTS[place] for place in places) for places in contrasts.effects_of(len(PARTS))]


def gain_alone(part: Part) -> dict[Cell, float]:
    """Return the weights of the gain of one part alone, from the cell in which all are old."""
    return contrasts.gain_alone(PARTS.index(part), len(PARTS))


def pairs_of(part: Part) -> list[tuple[Cell, Cell]]:
    """Return the eight pairs of cells that differ only in a part: the new cell, then the old one."""
    place = PARTS.index(part)
    return [(cell, (*cell[:place], False, *cell[place + 1 :])) for cell in CELLS if cell[place]]


GAIN_OF_ALL = contrasts.gain_of_all(len(PARTS))
SUM_OF_GAINS = contrasts.sum_of_gains(len(PARTS))
MORE_THAN_PARTS = contrasts.more_than_parts(len(PARTS))


def errors_left(accuracies: Accuracies) -> Estimate | None:
    """Return the errors that all parts leave together, over the errors if their shares were independent.

    It is None if the needed cells share no seed, or if a run makes no error.
    """
    if any(value >= 100 for values in accuracies.values() for value in values.values()):
        return None
    logarithms = {
        cell: {seed: math.log(100 - value) for seed, value in values.items()} for cell, values in accuracies.items()
    }
    found = estimate(logarithms, MORE_THAN_PARTS)
    if found is None:
        return None
    interval = found.interval and Interval(math.exp(found.interval.low), math.exp(found.interval.high))
    return Estimate(math.exp(found.value), interval, found.seeds)


def spreads(accuracies: Accuracies, seeds: Sequence[int]) -> list[float]:
    """Return the standard deviations within cells of their runs with these seeds, two or more."""
    return [stdev(of[seed] for seed in seeds) for of in accuracies.values()]

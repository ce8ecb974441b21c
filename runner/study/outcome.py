"""The outcome of a study: the gain of each arm over the first one, paired by seed, and the effects of a factorial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from runner.claims.runs import grouped
from runner.study import contrasts
from runner.study.definition import Study
from runner.study.progress import Progress


@dataclass(frozen=True)
class Compared:
    """An arm, and its gain over the first arm in points of test accuracy, if both have run with a common seed.

    adjusted: the p-value of the gain, by Holm's procedure for all gains of the study; None for one seed.
    needed: the number of seeds that would decide, or None if no number would.
    """

    arm: Progress
    gain: contrasts.Estimate | None = None
    adjusted: float | None = None
    needed: int | None = None

    @property
    def decided(self) -> bool:
        return self.adjusted is not None and self.adjusted <= contrasts.ERROR

    @property
    def word(self) -> str:
        """The answer in words."""
        return _answer(self.gain, self.adjusted, "better", "worse")


def _answer(estimate: contrasts.Estimate | None, adjusted: float | None, above: str, below: str) -> str:
    """Return the answer of a test in words; "" without one. An interval is not corrected."""
    if estimate is None or (estimate.interval and adjusted is None):
        return ""
    if estimate.interval is None or adjusted is None:
        return "one seed cannot tell"
    if adjusted <= contrasts.ERROR:
        return above if estimate.value > 0 else below
    outside = estimate.spread and not estimate.interval.low <= 0 <= estimate.interval.high
    return "not decided after correction" if outside else "not decided"


def _adjusted(estimates: Sequence[contrasts.Estimate | None]) -> list[float | None]:
    """Adjust p-values by Holm's procedure. An estimate of one seed has none."""
    adjusted = iter(contrasts.holm([estimate.p for estimate in estimates if estimate and estimate.interval]))
    return [next(adjusted) if estimate and estimate.interval else None for estimate in estimates]


def compared(arms: Sequence[Progress]) -> list[Compared]:
    """Compare each arm with the first one on the same data set at the same epsilon."""
    first = {arm.setting.pair: arm for arm in reversed(arms)}
    gains = []
    for arm in arms:
        base = first[arm.setting.pair]
        accuracies = {"arm": arm.accuracies(), "first": base.accuracies()}
        gains.append(None if arm is base else contrasts.estimate(accuracies, {"arm": 1.0, "first": -1.0}))
    adjusted = _adjusted(gains)
    number = sum(p is not None for p in adjusted)
    return [
        Compared(arm, gain, p, gain.seeds_to_decide(number) if gain and p is not None else None)
        for arm, gain, p in zip(arms, gains, adjusted, strict=True)
    ]


def paired(arms: Sequence[Compared]) -> dict[tuple[str, float], list[Compared]]:
    """Group arms by data set and epsilon."""
    return grouped(arms, lambda arm: arm.arm.setting.pair)


def tests(arms: Sequence[Compared]) -> int:
    """Return the number of gains that are tested."""
    return sum(arm.adjusted is not None for arm in arms)


DIFFERS = "differs from 0"
ALL, SUM, LESS = "all together", "sum of each alone", "together less the sum"


@dataclass(frozen=True)
class Effect:
    """The effect of one part, the interaction of several, or a sum of gains, on a data set at an epsilon, in points.

    place: the data set and epsilon, for people.
    adjusted: the p-value of an effect, by Holm's procedure for all effects of the study.
    parts: the number of parts of an effect.
    """

    place: tuple[str, str]
    name: str
    estimate: contrasts.Estimate | None
    adjusted: float | None = None
    parts: int = 0

    @property
    def answer(self) -> str:
        """The answer in words."""
        return _answer(self.estimate, self.adjusted, DIFFERS, DIFFERS)


Cells: TypeAlias = dict[contrasts.Cell, dict[int, float]]


def _tables(arms: Sequence[Progress]) -> list[tuple[tuple[str, str], Cells]]:
    """Return each data set and epsilon, for people, with the accuracies of its cells by seed."""
    groups = grouped(arms, lambda arm: arm.setting.pair).values()
    return [(g[0].setting.labels[:2], {arm.setting.arm.cell: arm.accuracies() for arm in g}) for g in groups]


def effects(study: Study, arms: Sequence[Progress]) -> list[Effect]:
    """Compute all effects of a factorial, single parts first. Nothing for another study."""
    estimates: list[Effect] = []
    for place, cells in _tables(arms) if study.parts else ():
        for parts in contrasts.effects_of(len(study.parts)):
            name = " × ".join(study.parts[part] for part in parts)
            estimate = contrasts.estimate(cells, contrasts.weights_of(parts, len(study.parts)))
            estimates.append(Effect(place, name, estimate, parts=len(parts)))
    adjusted = _adjusted([effect.estimate for effect in estimates])
    return [replace(effect, adjusted=p) for effect, p in zip(estimates, adjusted, strict=True)]


def sums(study: Study, arms: Sequence[Progress]) -> list[Effect]:
    """Compare the gain of all parts of a factorial with the sum of the gains of each alone. Nothing for one part."""
    weights = {ALL: contrasts.gain_of_all, SUM: contrasts.sum_of_gains, LESS: contrasts.more_than_parts}
    return [
        Effect(place, name, contrasts.estimate(cells, weights_for(len(study.parts))))
        for place, cells in (_tables(arms) if len(study.parts) > 1 else ())
        for name, weights_for in weights.items()
    ]


def additions(study: Study, arms: Sequence[Progress]) -> list[list[Effect]]:
    """Return what each part of a factorial adds to each part alone, a row for each part on each data set and epsilon.

    The first of a row is what it adds to the first arm. What a part would add to itself has no estimate.
    """
    number = len(study.parts)
    alone = dict(zip(("", *study.parts), (contrasts.cells_of(number)[0], *contrasts.cells_alone(number)), strict=True))

    def added(cells: Cells, part: str, start: str) -> contrasts.Estimate | None:
        both = tuple(map(max, zip(alone[part], alone[start], strict=True)))
        return contrasts.estimate(cells, {both: 1.0, alone[start]: -1.0}) if part != start else None

    return [
        [Effect(place, part, added(cells, part, start)) for start in alone]
        for place, cells in (_tables(arms) if number > 1 else ())
        for part in study.parts
    ]


def shares(study: Study, arms: Sequence[Progress]) -> list[Effect]:
    """Compare the errors that all parts leave with those if each removed the share that it removes alone: a ratio."""
    name, parts = "errors left, over those of independent shares", len(study.parts)
    tables = _tables(arms) if parts > 1 else ()
    return [Effect(place, name, contrasts.errors_left(cells, parts)) for place, cells in tables]

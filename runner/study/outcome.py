"""The outcome of a study: the gain of each arm over the first one, paired by seed, and the effects of a factorial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.claims.runs import grouped
from runner.study import contrasts
from runner.study.definition import Study
from runner.study.progress import Progress


@dataclass(frozen=True)
class Compared:
    """An arm, and its gain over the first arm in points of test accuracy, if both have run with a common seed.

    Attributes:
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


def _answer(found: contrasts.Estimate | None, adjusted: float | None, above: str, below: str) -> str:
    """Return the answer of a test in words; "" without one. An interval is not corrected."""
    if found is None or (found.interval and adjusted is None):
        return ""
    if found.interval is None or adjusted is None:
        return "one seed cannot tell"
    if adjusted <= contrasts.ERROR:
        return above if found.value > 0 else below
    outside = found.spread and not found.interval.low <= 0 <= found.interval.high
    return "not decided after correction" if outside else "not decided"


def _adjusted(found: Sequence[contrasts.Estimate | None]) -> list[float | None]:
    """Adjust p-values by Holm's procedure. An estimate of one seed has none."""
    adjusted = iter(contrasts.holm([one.p for one in found if one and one.interval]))
    return [next(adjusted) if one and one.interval else None for one in found]


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


def by_pair(found: Sequence[Compared]) -> dict[tuple[str, float], list[Compared]]:
    """Group arms by data set and epsilon."""
    return grouped(found, lambda one: one.arm.setting.pair)


def tests(found: Sequence[Compared]) -> int:
    """Return the number of gains that are tested."""
    return sum(one.adjusted is not None for one in found)


DIFFERS = "differs from 0"


@dataclass(frozen=True)
class Effect:
    """The effect of one part, the interaction of several, or a sum of gains, on a data set at an epsilon, in points.

    Attributes:
        adjusted: the p-value of an effect, by Holm's procedure for all effects of the study.
        parts: the number of parts of an effect.
    """

    arms: tuple[Progress, ...]
    name: str
    found: contrasts.Estimate | None
    adjusted: float | None = None
    parts: int = 0

    @property
    def place(self) -> tuple[str, ...]:
        """The data set and epsilon, for people."""
        return self.arms[0].setting.named[:2]

    @property
    def answer(self) -> str:
        """The answer in words."""
        return _answer(self.found, self.adjusted, DIFFERS, DIFFERS)


def effects(study: Study, arms: Sequence[Progress]) -> list[Effect]:
    """Compute all effects of a factorial, single parts first. Nothing for another study."""
    every: list[Effect] = []
    for of in _together(arms) if study.parts else ():
        for places in contrasts.effects_of(len(study.parts)):
            name = " × ".join(study.parts[place] for place in places)
            found = contrasts.estimate(_cells(of), contrasts.weights_of(places, len(study.parts)))
            every.append(Effect(of, name, found, parts=len(places)))
    adjusted = _adjusted([one.found for one in every])
    return [replace(one, adjusted=p) for one, p in zip(every, adjusted, strict=True)]


ALL, SUM, LESS = "all together", "sum of each alone", "together less the sum"


def sums(study: Study, arms: Sequence[Progress]) -> list[Effect]:
    """Compare the gain of all parts of a factorial with the sum of the gains of each alone. Nothing for one part."""
    if len(study.parts) < 2:
        return []
    weights = {ALL: contrasts.gain_of_all, SUM: contrasts.sum_of_gains, LESS: contrasts.more_than_parts}
    return [
        Effect(of, name, contrasts.estimate(_cells(of), weights_for(len(study.parts))))
        for of in _together(arms)
        for name, weights_for in weights.items()
    ]


def shares(study: Study, arms: Sequence[Progress]) -> list[Effect]:
    """Compare the errors that all parts leave with those if each removed the share that it removes alone: a ratio."""
    if len(study.parts) < 2:
        return []
    name = "errors left, over those of independent shares"
    return [Effect(of, name, contrasts.errors_left(_cells(of), len(study.parts))) for of in _together(arms)]


def _together(arms: Sequence[Progress]) -> list[tuple[Progress, ...]]:
    """Group arms by data set and epsilon."""
    return [tuple(of) for of in grouped(arms, lambda arm: arm.setting.pair).values()]


def _cells(arms: Sequence[Progress]) -> dict[contrasts.Cell, dict[int, float]]:
    return {arm.setting.arm.cell: arm.accuracies() for arm in arms}

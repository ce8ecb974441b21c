"""The outcome of a study: the gain of each arm over the first one, paired by seed, and the effects of a factorial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.claims.contrasts import ERROR, Estimate, effects_of, estimate, holm, weights_of
from runner.study.file import Study
from runner.study.progress import Progress


@dataclass(frozen=True)
class Compared:
    """An arm, and its gain over the first arm in points of test accuracy, if both have run with a common seed.

    Attributes:
        adjusted: the p-value of the gain, by Holm's procedure for all gains of the study.
        needed: the number of seeds that would decide, or None if no number would.
    """

    arm: Progress
    gain: Estimate | None = None
    adjusted: float | None = None
    needed: int | None = None

    @property
    def decided(self) -> bool:
        return self.adjusted is not None and self.adjusted <= ERROR

    @property
    def word(self) -> str:
        """The answer in words."""
        if self.gain is None or self.adjusted is None:
            return ""
        if not self.decided:
            return "not decided"
        return "better" if self.gain.value > 0 else "worse"


def compared(arms: Sequence[Progress]) -> list[Compared]:
    """Compare each arm with the first one on the same data set at the same epsilon."""
    first = {arm.setting.pair: arm for arm in reversed(arms)}
    gains = []
    for arm in arms:
        base = first[arm.setting.pair]
        accuracies = {"arm": arm.accuracies(), "first": base.accuracies()}
        gains.append(None if arm is base else estimate(accuracies, {"arm": 1.0, "first": -1.0}))
    tested = [gain for gain in gains if gain is not None]
    adjusted = iter(holm([gain.p for gain in tested]))
    return [
        Compared(arm) if gain is None else Compared(arm, gain, next(adjusted), gain.seeds_to_decide(len(tested)))
        for arm, gain in zip(arms, gains, strict=True)
    ]


def by_pair(found: Sequence[Compared]) -> dict[tuple[str, float], list[Compared]]:
    """Group arms by data set and epsilon."""
    pairs: dict[tuple[str, float], list[Compared]] = {}
    for one in found:
        pairs.setdefault(one.arm.setting.pair, []).append(one)
    return pairs


def tests(found: Sequence[Compared]) -> int:
    """Return the number of gains that are tested."""
    return sum(one.gain is not None for one in found)


@dataclass(frozen=True)
class Effect:
    """The effect of one part, or the interaction of several, on a data set at an epsilon, in points."""

    dataset: str
    epsilon: float
    parts: tuple[str, ...]
    found: Estimate | None
    adjusted: float | None


def effects(study: Study, arms: Sequence[Progress]) -> list[Effect]:
    """Compute all effects of a factorial, single parts first. Nothing for another study."""
    names, keys = study.parts, list(dict.fromkeys(arm.setting.pair for arm in arms))
    every: list[tuple[str, float, tuple[str, ...], Estimate | None]] = []
    for dataset, epsilon in keys if names else []:
        cells = {a.setting.arm.cell: a.accuracies() for a in arms if a.setting.pair == (dataset, epsilon)}
        for places in effects_of(len(names)):
            parts = tuple(names[place] for place in places)
            every.append((dataset, epsilon, parts, estimate(cells, weights_of(places, len(names)))))
    adjusted = iter(holm([found.p for *_, found in every if found is not None]))
    return [Effect(*of, None if of[-1] is None else next(adjusted)) for of in every]

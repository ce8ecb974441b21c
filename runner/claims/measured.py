"""What a measure found: a number, the runs that it is of, and what these cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Literal, TypeAlias

from runner.claims.runs import Sample
from runner.claims.statistics import Interval, Spread
from runner.claims.summary import summarise

Statistic: TypeAlias = Literal["mean", "geometric", "best"]
Comparison: TypeAlias = Literal["difference", "ratio", "order"]


@dataclass(frozen=True)
class Measured:
    """What was measured for a claim.

    value: the number compared with the claim; None where it could not be measured.
    values: the runs' own numbers that it summarises, empty where it does not summarise runs.
    sample, statistic: the number of each run that the value is made of, and what is taken of them; None where the
        value is not made of such numbers.
    against, comparison: the sample that `sample` is compared with, whose statistic is the same, and how.
    pooled: the spread of the data set's settings, for samples of fewer runs than show one of their own.
    planned_each: the planned runs of each sample's setting.
    interval_at: where the value lies with a confidence, where the measure has its own way to say so.
    every: what was measured for each of several statements of which the claim says that all hold (a data set each, a
        layer each); the value is then that of the one that supports it least. Empty where there is one.
    lacking: experiments of the claim without any run, where the others say something without it.
    chosen_on_test: whether the test data chose the epoch or the setting that was measured.
    each: how many runs each of several settings is of, "6 x 5", where no two samples say so.
    n, planned, diverged: runs recorded, planned, and of the recorded ones diverged. All 0 where `computed`.
    epsilon, epsilon_sound: at the point that was measured, the largest over the runs; delta: what they are at, the
        largest too.
    epsilon_tries: where the run itself decides how much it releases: the sound epsilon of what it did release, had that
        been fixed beforehand. `epsilon_sound` is then of the most that it could have released, and so what holds.
    epsilon_least: a lower bound on the true epsilon, where one was computed or attacked.
    best: the best epoch's accuracy (percent), chosen on the evaluation data; to compare.
    reference: the other experiment's value, for claims about an order.
    at_least: whether no more is known than that the value is at least `value`, as runs ended before showing it.
    """

    value: float | None = None
    values: Sequence[float] = ()
    sample: Sample | None = None
    statistic: Statistic | None = None
    against: Sample | None = None
    comparison: Comparison | None = None
    pooled: Spread | None = None
    planned_each: tuple[int, ...] = ()
    interval_at: Callable[[float], Interval] | None = None
    every: tuple[Measured, ...] = ()
    lacking: tuple[str, ...] = ()
    chosen_on_test: bool = False
    each: str = ""
    n: int = 0
    planned: int = 0
    diverged: int = 0
    epsilon: float | None = None
    epsilon_sound: float | None = None
    epsilon_tries: float | None = None
    epsilon_least: float | None = None
    best: float | None = None
    reference: float | None = None
    computed: bool = False
    explanation: str = ""
    at_least: bool = False
    delta: float | None = None

    @property
    def samples(self) -> list[Sample]:
        """The one or two samples that are compared."""
        return [sample for sample in (self.sample, self.against) if sample is not None]

    @property
    def sizes(self) -> str:
        """How many runs each of two samples is of, "5 + 5", or each of several; empty where there is but one."""
        return f"{len(self.sample.values)} + {len(self.against.values)}" if self.sample and self.against else self.each


def of_sample(statistic: Statistic, sample: Sample, *, best: float | None = None, explanation: str = "") -> Measured:
    """A statistic of a number of each run."""
    value = _taken(statistic, sample)
    return Measured(value, sample.values, sample, statistic, best=best, explanation=explanation)


def of_two(
    comparison: Comparison, statistic: Statistic, sample: Sample, against: Sample, explanation: str = ""
) -> Measured:
    """A statistic of one sample less, over or, where the order is claimed, beside that of another."""
    one, other = _taken(statistic, sample), _taken(statistic, against)
    values = {"difference": one - other, "ratio": one / other if other else math.inf, "order": one}
    return Measured(
        values[comparison],
        sample.values if comparison == "order" else (),
        sample,
        statistic,
        against,
        comparison,
        reference=other if comparison == "order" else None,
        explanation=explanation,
    )


def _taken(statistic: Statistic, sample: Sample) -> float:
    if statistic == "best":
        return max(sample.values)
    if statistic == "geometric":
        return geometric_mean(sample.values) if min(sample.values) > 0 else math.nan
    mean = summarise(sample.values).mean  # of one number, that number
    assert mean is not None
    return mean

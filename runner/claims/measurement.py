"""The measurement of a claim: a number, its runs, their privacy cost, and its interval with the same statistic."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean
from typing import Literal, TypeAlias

import numpy as np

from runner.claims import intervals
from runner.claims.claim import ORDERS, THRESHOLDS, Claim
from runner.claims.evidence import RunsAt, decides
from runner.claims.intervals import LEVEL, Interval, Mean, Spread

Statistic: TypeAlias = Literal["mean", "geometric", "best"]
Sample: TypeAlias = tuple[float, ...]  # a number of each run
Comparison: TypeAlias = Literal["difference", "ratio", "order"]
FEWEST_RUNS = 3  # of a setting, below which a claim can be contradicted but not confirmed
_AGREEING = 5  # equal runs, from which on their spread is taken to be zero


@dataclass(frozen=True)
class Measured:
    """The measurement for a claim.

    value: the number compared with the claim; None if it could not be measured.
    values: the runs' own numbers that the value summarises, if it does.
    sample, statistic: the number of each run that the value is made of, and the statistic that is taken, if any.
    against, comparison: the sample that `sample` is compared with, by the same statistic, and the comparison.
    typical: the spread of the data set's settings, for samples with too few runs to show their own.
    planned_each: the planned runs of each sample's setting.
    interval_at: the interval of the value by confidence, if the measure has its own way to compute it.
    lacks: what `interval_at` lacks to confirm a claim, in words: three runs of a setting, or some of the draws.
    statements: each of several statements that all have to hold, one for each data set or layer. The value is that of
        the statement that supports the claim least. Empty if there is one statement.
    lacking: experiments of the claim without any run, if the others give a measurement without it.
    chosen_on_test: True if the test data chose the epoch or the setting that was measured.
    n, planned, diverged: numbers of recorded, planned, and recorded but diverged runs; 0 if `computed` without runs.
    epsilon, epsilon_sound, delta: at the point that was measured, the largest over the runs.
    epsilon_spent: the sound epsilon of the steps taken, if it guarantees nothing: had their number been fixed, and
        statistics that standardise the images been public. `epsilon_sound` then covers all possible releases, or is
        infinite.
    epsilon_least: a lower bound on the true epsilon, if one was computed or shown by an attack.
    best: the best epoch's accuracy (percent), chosen on the evaluation data; to compare.
    reference: the other experiment's value, for claims about an order.
    kind: what the value is ("share of 20 runs"), if its samples and statistic do not say it (see `what`).
    at_least: True if `value` is only a lower bound, because runs ended before showing more.
    runs: a hypothetical number of runs of each setting, with the present mean and spread; None for the actual one.
    """

    value: float | None = None
    values: Sequence[float] = ()
    sample: Sample | None = None
    statistic: Statistic | None = None
    against: Sample | None = None
    comparison: Comparison | None = None
    typical: Spread | None = None
    planned_each: tuple[int, ...] = ()
    interval_at: Callable[[float], Interval] | None = None
    lacks: str = ""
    statements: "tuple[Measured, ...]" = ()
    lacking: tuple[str, ...] = ()
    chosen_on_test: bool = False
    n: int = 0
    planned: int = 0
    diverged: int = 0
    epsilon: float | None = None
    epsilon_sound: float | None = None
    epsilon_spent: float | None = None
    epsilon_least: float | None = None
    best: float | None = None
    reference: float | None = None
    computed: bool = False
    kind: str = ""
    explanation: str = ""
    at_least: bool = False
    delta: float | None = None
    runs: int | None = None

    def as_if(self, runs: int) -> "Measured":
        """Return the same measurement with a hypothetical number of runs of each setting."""
        return replace(self, runs=runs, statements=tuple(statement.as_if(runs) for statement in self.statements))

    @property
    def samples(self) -> list[Sample]:
        return [sample for sample in (self.sample, self.against) if sample is not None]

    @property
    def what(self) -> str:
        """Say what the value is: "mean of 5", "best of 5", "one run", "by formula"; empty without a value.

        Two samples are "means of 5 and 5", or "bests of 5 and 5, by means 3.63" if the value is the bests' difference.
        A value that is made of runs in another way is "from 12 runs".
        """
        if self.value is None or self.kind or self.computed:
            return "" if self.value is None else self.kind or "by formula"
        if math.isinf(self.value) and self.values:
            return f"by {sum(map(math.isinf, self.values))} of {len(self.values)} runs"
        sizes = [len(sample) for sample in self.samples]
        name = {"geometric": "geometric mean"}.get(self.statistic or "mean", self.statistic or "mean")
        kinds = ["one run" if size == 1 else f"{name} of {size}" for size in sizes]
        if not kinds:
            return "one run" if self.n == 1 else f"from {self.n} runs"
        alike = len(kinds) > 1 and 1 not in sizes
        text = f"{name}s of {' and '.join(map(str, sizes))}" if alike else " and ".join(kinds)
        if sizes == [1, 1]:
            text = "one run each"
        if self.statistic == "best" and self.comparison == "difference" and self.sample and self.against:
            text += f", by means {fmean(self.sample) - fmean(self.against):.2f}"
        return f"bound on the {text}" if self.at_least else text


def measure_sample(
    statistic: Statistic, sample: Sample, *, best: float | None = None, explanation: str = ""
) -> Measured:
    """Take a statistic of a sample."""
    return Measured(_statistic(statistic, sample), sample, sample, statistic, best=best, explanation=explanation)


def compare_samples(
    comparison: Comparison, statistic: Statistic, sample: Sample, against: Sample, explanation: str = ""
) -> Measured:
    """Compare a statistic of two samples: by their difference, their ratio or their order."""
    first, second = _statistic(statistic, sample), _statistic(statistic, against)
    values = {"difference": first - second, "ratio": first / second if second else math.inf, "order": first}
    return Measured(
        values[comparison],
        sample if comparison == "order" else (),
        sample,
        statistic,
        against,
        comparison,
        reference=second if comparison == "order" else None,
        explanation=explanation,
    )


def _statistic(statistic: Statistic, sample: Sample) -> float:
    if statistic == "best":
        return max(sample)
    if statistic == "geometric":
        return geometric_mean(sample) if min(sample) > 0 else math.nan
    return float(np.mean(sample))


def charged(measured: Measured, runs_at: RunsAt) -> Measured:
    """Charge a number with the largest epsilons of its runs, each up to its epoch.

    Runs without privacy count only if there are no others. If a run decides how much it releases, `epsilon_sound`
    covers the most that it could have released. `epsilon_spent` is the cost of its steps, if it differs for any run.
    """
    private = RunsAt(
        [(run, epoch) for run, epoch in runs_at if math.isfinite(run.history("epsilon")[epoch])] or runs_at
    )
    if not private:
        return measured
    name = "epsilon_sound"
    sound = [run.final(name) if decides(run) else run.history(name)[epoch] for run, epoch in private]
    spent = [run.history("epsilon_spent")[epoch] for run, epoch in private if run.has_spent]
    return replace(
        measured,
        epsilon=private.largest("epsilon"),
        epsilon_sound=max(sound),
        epsilon_spent=max(spent, default=None),
        delta=private.runs.delta,
    )


def interval_of(claim: Claim, measured: Measured, level: float = LEVEL) -> Interval | None:
    """Compute the interval of measured minus claimed; for an order, of the claim's setting minus the other.

    A mean of k is compared with a mean of k, and a best of k with the best of k further runs. For a difference of
    bests, k further runs of each setting are taken. A setting with fewer than `FEWEST_RUNS` runs gets the spread of its
    data set's settings, if that is known.

    None without runs, without a spread, or for a ratio of numbers that are not all positive.
    """
    if claim.direction not in ORDERS and claim.aim is None:
        return None
    aim = 0.0 if claim.direction in ORDERS else claim.aim or 0.0
    if measured.interval_at is not None:
        return measured.interval_at(level).less(aim)
    means = means_of(measured)
    if not means:
        return None
    if measured.runs is not None:
        means = [mean.of(measured.runs) for mean in means]
    runs = None if claim.direction in (*ORDERS, *THRESHOLDS) else claim.runs  # None: the claim is exact
    if measured.comparison == "ratio":
        logarithm = intervals.less_claim(means, 0.0, runs, level)
        interval = Interval(math.exp(logarithm.low), math.exp(logarithm.high)).less(aim)
    elif measured.statistic == "best" and len(means) == 1:
        interval = intervals.best_less_claim(means[0], aim, claim.runs, level)
    elif measured.statistic == "best":
        interval = intervals.bests_less_claim(means[0], means[1], aim, claim.runs, level)
    else:
        interval = intervals.less_claim(means, aim, runs, level)
    return Interval(interval.low, math.inf) if measured.at_least else interval


def enough_runs(claim: Claim, measured: Measured) -> bool:
    """Return True if there are enough runs to confirm a claim: three of each setting, and k for a best of k."""
    if measured.interval_at is not None:
        return not measured.lacks or (measured.runs or 0) >= FEWEST_RUNS
    sizes = [measured.runs or len(sample) for sample in measured.samples]
    least = max(FEWEST_RUNS, claim.runs) if measured.statistic == "best" else FEWEST_RUNS
    return bool(sizes) and min(sizes) >= least


def own_precision(claim: Claim, measured: Measured) -> float | None:
    """Compute half the 95% interval of the paper's own mean of k runs, with the measured spread; None if unknown."""
    means = means_of(measured)
    unknown = not means or measured.at_least or measured.comparison == "ratio"
    if unknown or not claim.of.startswith("mean of ") or claim.runs < 2:
        return None
    exact = [Mean(mean.value, claim.runs, mean.spread) for mean in means]
    return intervals.less_claim(exact, 0.0, None).half_width


def means_of(measured: Measured) -> list[Mean]:
    """Return the mean of each sample, of its logarithms for a ratio; empty if one has no finite spread."""
    means = []
    for sample in measured.samples:
        values: Sequence[float] = sample
        if measured.comparison == "ratio":
            if min(values) <= 0:
                return []
            values = [math.log(value) for value in values]
        if not all(map(math.isfinite, values)):
            return []
        if len(values) < FEWEST_RUNS and measured.typical is not None:
            means.append(Mean(sum(values) / len(values), len(values), measured.typical))
        elif len(values) < 2 or (len(values) < _AGREEING and len(set(values)) == 1):
            return []
        else:
            means.append(intervals.measured_mean(values))
    return means

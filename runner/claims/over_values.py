"""Mean accuracies by the values of a swept field: the best value, the range and the correlation.

Let s be the spread of the data set's settings, and n_i the number of runs of setting i.

- The range of the true means has Tukey and Kramer's simultaneous interval. All differences m_i - m_j of measured means
  are within q s sqrt((1/n_i + 1/n_j) / 2) of the true ones, with q the quantile of the studentized range. So the true
  range lies between the largest of the lower ends and the largest of the upper ends.
- The interval of the best value and of the correlation is between quantiles of a parametric bootstrap. Each mean is
  drawn again with its standard error, s / sqrt(n_i). A claimed number of k runs adds their own, s / sqrt(k): both
  are draws of the same sweep. If the best value may be the least or the largest one tried, a
  value beyond may be better. The interval is then unbounded on that side.

A setting with fewer than three runs confirms nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr, studentized_range

from runner.claims.claim import THRESHOLDS, Claim
from runner.claims.intervals import FEWEST_RUNS
from runner.claims.measurement import Measured, charged, measure_sample
from runner.claims.runs import Evidence, PlannedRun, Runs
from runner.claims.statistics import Interval, Spread, between, redrawn

_MISSING = object()


def over_values(claim: Claim, evidence: Evidence, experiments: Sequence[Runs]) -> Measured:
    """Measure a number made of the accuracies of all settings of a sweep.

    Of several experiments, the least favourable counts. An experiment counts once half of its values, and at least two,
    have a run. For the best value two settings are enough.
    """
    least = -math.inf if claim.among is None else claim.among
    chosen = [Runs(run for run in runs if float(field_of(claim, run, claim.by)) >= least) for runs in experiments]
    measured, texts = list[Measured](), list[str]()
    for runs in chosen:
        settings = list(runs.recorded.by(lambda run: run.job.setting_id).values())
        values = runs.recorded.groups_by(claim.by)
        samples = {value: recorded.finals("test_accuracy") for value, recorded in values.items()}
        if claim.statistic == "best_value":
            enough = len(settings) > 1
        else:
            enough = len(samples) >= max(2, len(runs.groups_by(claim.by)) / 2)
        if enough:
            measured.append(_measured(claim, settings, evidence.spread(runs[0].field("dataset.name"))))
            if len(settings) > len(samples):  # a grid
                best = max(fmean(setting.finals("test_accuracy")) for setting in settings)
                texts.append(f"{best:.2f}% with the best of {runs.recorded_of} settings")
            else:
                means = ", ".join(f"{value:g}: {fmean(sample):.2f}" for value, sample in samples.items())
                texts.append(f"{runs[0].name}, {measured[-1].value:.3g} by {claim.by} ({means})")
    if not measured:
        return Measured(explanation="less than half of the values have run")
    falling = claim.direction in ("below", "below_other")
    shown = (max if falling else min)(measured, key=lambda experiment: experiment.value or 0.0)
    planned = Runs(run for runs in chosen for run in runs)
    n = len(planned.recorded)
    return charged(replace(shown, values=(), explanation="; ".join(texts), n=n, planned=len(planned)), planned.last)


def field_of(claim: Claim, run: PlannedRun, name: str) -> Any:
    """Return a field of a run's config.

    Raises:
        ValueError: there is no such field.
    """
    value = run.job.field(name, _MISSING)
    if value is _MISSING:
        raise ValueError(f"{claim.place}: {run.job.experiment} has no field {name!r}.")
    return value


def _measured(claim: Claim, settings: Sequence[Runs], spread: Spread | None) -> Measured:
    """Measure the claim's number of a sweep from the recorded runs of its settings."""
    settings = sorted(settings, key=lambda runs: float(runs[0].field(claim.by)))
    means = [fmean(runs.finals("test_accuracy")) for runs in settings]
    if claim.statistic == "lowest":
        lowest = measure_sample("mean", tuple(settings[means.index(min(means))].finals("test_accuracy")))
        return replace(lowest, kind=f"lowest of {len(means)} values, {lowest.what}")
    values = [float(runs[0].field(claim.by)) for runs in settings]  # the smallest first
    number = partial(_NUMBERS[claim.statistic], values)
    value = float(number(np.array(means)))
    sizes = [*map(len, settings)]
    kind = f"{_KINDS[claim.statistic]} {_means_text(sizes)}"
    if spread is None:
        return Measured(value, kind=kind)
    if claim.statistic == "spread":
        interval_at = partial(_range, means, sizes, spread)
    else:
        theirs = 0.0 if claim.direction in THRESHOLDS else 1 / claim.runs
        draws = redrawn(number, means, [spread.std * math.sqrt(1 / size + theirs) for size in sizes])
        tried = (values[0], values[-1]) if claim.statistic == "best_value" else None
        interval_at = partial(_quantiles, draws, tried)
    return Measured(value, interval_at=interval_at, lacks="" if min(sizes) >= FEWEST_RUNS else _FEW, kind=kind)


def _means_text(sizes: Sequence[int]) -> str:
    """Say how many means there are, and of how many runs.

    >>> _means_text([1, 3]), _means_text([3, 3]), _means_text([1, 1])
    ('2 means of 1 to 3 runs', '2 means of 3 runs', '2 single runs')
    """
    least, most = min(sizes), max(sizes)
    if most == 1:
        return f"{len(sizes)} single runs"
    return f"{len(sizes)} means of {least if least == most else f'{least} to {most}'} runs"


def _range(means: Sequence[float], sizes: Sequence[int], spread: Spread, level: float) -> Interval:
    """Return Tukey and Kramer's simultaneous interval of the range of the true means."""
    q = float(studentized_range.ppf(level, len(means), spread.freedom))
    all_means, variances = np.array(means), 1 / np.array(sizes)
    half = q * spread.std * np.sqrt((variances[:, None] + variances) / 2)
    differences = all_means[:, None] - all_means
    return Interval(max(float((differences - half).max()), 0.0), float((differences + half).max()))


def _quantiles(draws: NDArray[np.float64], tried: tuple[float, float] | None, level: float) -> Interval:
    interval = between(draws, level)
    if tried is None:
        return interval
    low, high = interval.low, interval.high
    return Interval(-math.inf if low <= tried[0] else low, math.inf if high >= tried[1] else high)


_FEW = f"some value has fewer than {FEWEST_RUNS} runs"
_KINDS = {"best_value": "value with the best of", "spread": "range of", "correlation": "rank correlation of"}
_NUMBERS: dict[str, Callable[[Sequence[float], NDArray[np.float64]], float]] = {
    "best_value": lambda values, means: values[int(np.argmax(means))],
    "spread": lambda _, means: float(np.ptp(means)),
    "correlation": lambda values, means: float(spearmanr(values, means).statistic),
}

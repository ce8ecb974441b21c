"""Mean accuracies by the values of a swept field: which is best, how far they lie apart, how they rise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeAlias

from omegaconf import OmegaConf
from scipy.stats import spearmanr

from runner.claims.claim import Claim
from runner.claims.costs import charged
from runner.claims.measured import Measured, of_sample
from runner.claims.runs import PlannedRun, Runs, Sample

_MISSING = object()
Samples: TypeAlias = dict[float, Sample]  # accuracies (percent, last epoch) by a field's value


def over_values(claim: Claim, experiments: Sequence[Runs]) -> Measured:
    """A number made of the accuracies of all settings of a sweep; of several experiments, the least favourable.

    An experiment counts once half of its runs are recorded, of two values or more; for the best value two settings do.
    """
    every = [Runs(run for run in runs if _among(claim, float(field_of(claim, run, claim.by)))) for runs in experiments]
    found = [(runs, _samples(claim, runs)) for runs in every if _enough(claim, runs)]
    if not found:
        return Measured(explanation="less than half of the values have run")
    measured = [(_found(claim, runs, samples), runs, samples) for runs, samples in found]
    falling = claim.direction in ("below", "below_other")
    shown, _, _ = (max if falling else min)(measured, key=lambda one: one[0].value or 0.0)
    text = "; ".join(_text(claim, *one) for one in measured)
    planned = Runs(run for runs in every for run in runs)
    counts = replace(shown, values=(), explanation=text, n=len(planned.recorded), planned=len(planned))
    return charged(counts, planned.last)


def field_of(claim: Claim, run: PlannedRun, name: str) -> Any:
    """A field of a run's config.

    Raises:
        ValueError: there is no such field.
    """
    found = OmegaConf.select(run.job.config, name, default=_MISSING)
    if found is _MISSING:
        raise ValueError(f"{claim.place}: {run.job.experiment} has no field {name!r}.")
    return found


def _enough(claim: Claim, runs: Runs) -> bool:
    if claim.statistic == "best_value":
        return len(runs.recorded.by(_setting)) > 1
    return len(runs.recorded) >= max(2, len(runs) / 2) and len(_samples(claim, runs)) > 1


def _among(claim: Claim, value: float) -> bool:
    return claim.among is None or value >= claim.among


def _samples(claim: Claim, runs: Runs) -> Samples:
    return {value: of.sample() for value, of in runs.recorded.by_value(claim.by).items()}


def _found(claim: Claim, runs: Runs, samples: Samples) -> Measured:
    if claim.statistic == "best_value":
        return _best(claim, runs)
    return _FOUND[claim.statistic](samples)


def _text(claim: Claim, found: Measured, runs: Runs, samples: Samples) -> str:
    settings = runs.recorded.by(_setting)
    if len(settings) > len(samples):  # of a grid
        best = max(fmean(of.sample().values) for of in settings.values())
        return f"{best:.2f}% with the best of {runs.recorded_of} settings"
    means = ", ".join(f"{value:g}: {fmean(sample.values):.2f}" for value, sample in samples.items())
    return f"{runs[0].name}, {found.value:.3g} by {claim.by} ({means})"


def _means(samples: Samples) -> dict[float, float]:
    return {value: fmean(sample.values) for value, sample in samples.items()}


def _setting(run: PlannedRun) -> str:
    return str(run.job.setting_id)


def _best(claim: Claim, runs: Runs) -> Measured:
    """The value in the setting with the highest mean accuracy."""
    best = max(runs.recorded.by(_setting).values(), key=lambda of: fmean(of.sample().values))
    return Measured(float(best[0].field(claim.by)))


def _lowest(samples: Samples) -> Measured:
    return of_sample("mean", min(samples.values(), key=lambda sample: fmean(sample.values)))


def _spread(samples: Samples) -> Measured:
    means = _means(samples).values()
    return Measured(max(means) - min(means))


def _correlation(samples: Samples) -> Measured:
    means = _means(samples)
    return Measured(float(spearmanr(list(means), list(means.values())).statistic))


_FOUND: dict[str, Callable[[Samples], Measured]] = {
    "lowest": _lowest,
    "spread": _spread,
    "correlation": _correlation,
}

"""Measurements of this paper's claims.

Epsilons of screened runs: `epsilon` charges the kept updates, as the paper does. What is guaranteed, and compared with
the claim, is the sound epsilon of the most tries that the run could have made (see `runner.training.updates.screened`);
that of the tries it made is said beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

from runner.papers.noise_screening.settings import DATASETS, searched_to
from runner.report.claims import Claim
from runner.report.evidence import Evidence
from runner.report.files import bound_text
from runner.report.guarantee import guaranteed, guaranteed_for
from runner.report.measured import Measured, of_sample
from runner.report.measures import Measure, against_others, bound_of, counted, made_of, of_runs
from runner.report.runs import PlannedRun, Runs, RunsAt, Sample
from runner.report.statistics import LEVEL, Interval

Array: TypeAlias = NDArray[np.float64]
_ENOUGH, _REDRAWN = 3, 2000  # runs of each experiment, and how often they are drawn again
CARRIED_ON = "noise_screening/table_3"  # the sweep of runs that go on to it, where those of table 1 end at 3
_LONGER = {  # experiment of table 1: the same run, carried on
    short.format(dataset): f"noise_screening/{dataset}_{method}_to_6"
    for dataset in DATASETS
    for short, method in (("losing_less/{}_ce", "tanh"), ("noise_screening/{}_auto", "auto"))
}


def screened(run: PlannedRun) -> bool:
    """Whether the run's updates are screened, recorded or not."""
    return bool(run.job.config.get("screening"))


def tries_text(runs: Runs) -> str:
    """How many tries the recorded, screened runs took and what they cost, in words."""
    tries, accepted, forced = (sum(runs.finals(name)) for name in ("tries", "accepted", "forced"))
    costs = runs.finals("epsilon_sound")
    return (
        f"{tries / accepted:.2f} tries a kept update, {100 * forced / accepted:.1f}% of the kept by force only; all "
        f"tries made would cost {bound_text(fmean(costs))} (mean, at most {bound_text(max(costs))}) had "
        f"their number been fixed beforehand, the most allowed cost {bound_text(most_guaranteed(runs))}"
    )


def most_guaranteed(runs: Runs) -> float:
    """The largest of the sound epsilons that are guaranteed for the recorded runs."""
    return max(guaranteed(run) for run in runs.recorded)


def within(run: PlannedRun, bound: float) -> int | None:
    """The last epoch (from 0) whose epsilon, as the paper counts, is at most `bound`."""
    return max((e for e, spent in enumerate(run.history("epsilon")) if spent <= bound), default=None)


@of_runs
def accuracy_at_epsilon(claim: Claim, runs: Runs) -> Measured:
    """Accuracy in percent after the last epoch within the claimed epsilon, mean over the runs."""
    bound, recorded = bound_of(claim), runs.recorded
    reached = recorded.at(lambda run: within(run, bound))
    if not reached:
        return Measured()
    if all(screened(run) for run in recorded):
        text, sound = tries_text(recorded), most_guaranteed(recorded)
        tries = reached.largest("epsilon_sound")
    else:
        text = f"after epoch {max(last for _, last in reached) + 1}, the last within {bound:g}"
        sound, tries = reached.largest("epsilon_sound"), None
    best = fmean(reached.best_until("test_accuracy"))
    found = of_sample("mean", reached.sample(), best=best, explanation=text)
    return replace(
        found.charged(reached, sound),
        n=len(reached),
        delta=recorded.delta,
        epsilon_tries=tries,
        chosen_on_test=any(run.field("screening.images") == "test" for run in recorded),
    )


@Measure
def epsilon_at_accuracy(claim: Claim, evidence: Evidence) -> Measured:
    """The first epoch's epsilon, as the paper counts, at which the accuracy named by the quantity is reached.

    Mean over the runs. A run that ends at the paper's limit of 6 without getting there counts as infinite, as in the
    paper; of one that ends before, no more is known than that it needs more than it has spent: so the mean is a bound.

    The sound epsilon is that of the steps until then, as if their number had been fixed beforehand, like the claimed
    one: see `until`.
    """
    accuracy = accuracy_of(claim)
    planned = carried_on(claim, evidence, accuracy)
    recorded = planned.recorded
    reached = recorded.at(reaches(accuracy))
    if not recorded:
        found = Measured()
    elif len(reached) < len(recorded):
        found = _not_reached_by_all(recorded, reached, accuracy)
    else:
        made, sound = until(reached)
        text = f"all steps until then would cost {bound_text(made)} had their number been fixed beforehand"
        if screened(recorded[0]):
            text += f"; a run that is to end at so many kept updates may take tries that cost {bound_text(sound)}"
        found = of_sample("mean", reached.sample("epsilon"), explanation=text).charged(reached, sound)
        found = replace(found, epsilon_tries=made if screened(recorded[0]) else None)
    return replace(counted(planned, found), chosen_on_test=True)


def _not_reached_by_all(recorded: Runs, reached: RunsAt, accuracy: float) -> Measured:
    """Infinite, or where each of the others ends before the limit at least the mean with what they have spent. What
    is claimed for the accuracy is not known to be spent: no epsilons.
    """
    others = Runs(run for run in recorded if reaches(accuracy)(run) is None)
    ends = others.finals("epsilon")
    at = ", ".join(sorted({f"{end:.3g}" for end in ends}))
    text = f"{accuracy:g}% is reached by {len(reached)} of {len(recorded)} runs; the others end at {at}"
    at_least = all(run.field("max_epsilon") != searched_to() for run in others)
    found = of_sample("mean", recorded.sample(lambda run: _needed(run, accuracy, at_least)), explanation=text)
    return replace(found, values=() if at_least else found.values, at_least=at_least, delta=recorded.delta)


def _needed(run: PlannedRun, accuracy: float, at_least: bool) -> float:
    """The epsilon of the first epoch with this accuracy; of a run without one what it has spent, or infinity."""
    epoch = reaches(accuracy)(run)
    if epoch is None:
        return run.final("epsilon") if at_least else math.inf
    return run.history("epsilon")[epoch]


def accuracy_of(claim: Claim) -> float:
    """The accuracy in percent that a claim's quantity names."""
    return float(claim.quantity.rpartition("_")[2])


def carried_on(claim: Claim, evidence: Evidence, accuracy: float) -> Runs:
    """The planned runs of a claim; in place of one that ends at 3 short of an accuracy (percent), the run of the same
    seed and settings that goes on to the limit, where that is recorded and begins with the shorter one.

    On one device it has the same batches and noise. Where it is another draw (from another device, by other code), it
    would be a second chance for the seeds that failed, and is not taken.
    """
    further = evidence.recorded(CARRIED_ON, _LONGER.get(claim.experiment, ""))
    longer = {run.seed: run for run in further if not run.diverged}
    planned = evidence.planned(claim.sweep, claim.experiment)
    return Runs(
        longest if (longest := longer.get(run.seed)) and _goes_on(run, longest, accuracy) else run for run in planned
    )


def _goes_on(short: PlannedRun, longer: PlannedRun, accuracy: float) -> bool:
    """Whether the shorter run is lacking, or ends short of the accuracy and is how the longer begins: the same
    epsilons, and training losses that differ by rounding only.
    """
    if short.record is None:
        return True
    if short.diverged or reaches(accuracy)(short) is not None:
        return False
    return all(
        len(longer.history(name)) > len(short.history(name))
        and np.allclose(longer.history(name)[: len(short.history(name))], short.history(name), rtol=1e-3, atol=0)
        for name in ("epsilon", "train_loss")
    )


def until(reached: RunsAt) -> tuple[float, float]:
    """What runs cost until an epoch each, the largest: of all steps made, had their number been fixed beforehand, and
    what is guaranteed for a run that is to end there.

    Both are the same, but of screened runs only the number of kept updates can be fixed beforehand.
    """
    made = reached.largest("epsilon_sound")
    if not screened(reached[0][0]):
        return made, made
    longest, epoch = max(reached, key=lambda pair: pair[0].history("accepted")[pair[1]])
    return made, guaranteed_for(longest, round(longest.history("accepted")[epoch]))


def reaches(accuracy: float) -> Callable[[PlannedRun], int | None]:
    """A function of a run: the first epoch (from 0) with at least this test accuracy in percent."""
    return lambda run: next((e for e, value in enumerate(run.history("test_accuracy")) if value >= accuracy), None)


def mean_at(runs: Runs, name: str, epsilon: float) -> float | None:
    """Mean of a column over the runs at an epsilon as the paper counts; None before the first epoch of one of them.

    Between two epochs by linear interpolation, after the last as it was then: epochs of screened runs are at other
    epsilons than those of others.
    """
    if not runs or any(epsilon < run.history("epsilon")[0] for run in runs):
        return None
    return fmean(float(np.interp(epsilon, run.history("epsilon"), run.history(name))) for run in runs)


def lead_in(column: str, *, larger: bool) -> Measure:
    """A measure: the share of the second experiment's epochs, up to the claim's epsilon, at which the first leads.

    In the mean of a column, at equal epsilon as the paper counts (see `mean_at`); a tie is no lead. Its interval is
    that of shares of curves whose runs are drawn again from those there are, each experiment's apart (the percentile
    bootstrap), where there are three runs of each.
    """

    @against_others
    def share(claim: Claim, own: Runs, *others: Runs) -> Measured:
        grid = [epsilon for epsilon in others[0][0].history("epsilon") if epsilon <= bound_of(claim)]
        curves = [_curves(runs, column, grid) * (1 if larger else -1) for runs in (own, *others)]
        value = _share([of.mean(0) for of in curves])
        if math.isnan(value):
            return Measured()
        names = ", ".join(name.rpartition("/")[2] for name in claim.experiments)
        last = ", ".join("–" if np.isnan(of[:, -1]).any() else f"{abs(of[:, -1].mean()):.4g}" for of in curves)
        text = f"{column.replace('_', ' ')} at the last of them: {last} ({names})"
        found = Measured(value, interval=_redrawn(curves), explanation=text)
        return replace(found.charged(own, most_guaranteed(own)), epsilon_tries=own.largest("epsilon_sound"))

    return share


def _curves(runs: Runs, column: str, grid: Sequence[float]) -> Array:
    """A column of each run at these epsilons, NaN before its first epoch: [runs, epsilons]."""
    found = [[mean_at(Runs([run]), column, epsilon) for epsilon in grid] for run in runs]
    return np.array([[math.nan if value is None else value for value in of] for of in found])


def _share(means: Sequence[Array]) -> float:
    """The share of places at which the first is above all the others that are there; NaN where it is alone."""
    own, others = means[0], np.array(means[1:])
    compared = ~np.isnan(own) & ~np.isnan(others).all(0)
    ahead = own > np.where(np.isnan(others), -math.inf, others).max(0)
    return float(ahead[compared].mean()) if compared.any() else math.nan


def _redrawn(curves: Sequence[Array]) -> Interval | None:
    if min(len(of) for of in curves) < _ENOUGH:
        return None
    found = bootstrap(
        [np.arange(len(of)) for of in curves],  # runs are drawn, each with its whole curve
        lambda *drawn: _share([of[runs].mean(0) for of, runs in zip(curves, drawn, strict=True)]),
        n_resamples=_REDRAWN,
        vectorized=False,
        confidence_level=LEVEL,
        method="percentile",
        random_state=np.random.default_rng(0),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


lead = lead_in("test_accuracy", larger=True)
lead_in_loss = lead_in("test_loss", larger=False)


def over_field(
    field: str,
    explanation: str,
    found: Callable[[dict[float, Sample]], Measured | None],
    among: Callable[[float], bool] = lambda _: True,
) -> Measure:
    """A measure of accuracy (percent, last epoch) by a swept field: what is `found` in the accuracies of each value
    `among` those that the claim is about. Charged is the largest cost of their runs.
    """

    @of_runs
    def measure(_: Claim, runs: Runs) -> Measured:
        samples = {value: of.sample() for value, of in runs.recorded.by_value(field).items()}
        measured = found({value: sample for value, sample in samples.items() if among(value)})
        if measured is None:
            return Measured()
        text = ", ".join(f"{value:g}: {fmean(sample.values):.2f}" for value, sample in samples.items())
        own = Runs(run for run in runs if among(float(run.field(field))))
        found_there = replace(measured, values=(), explanation=f"{explanation}: {text}")
        return made_of(found_there, own).charged(own, most_guaranteed(own))

    return measure


def mean_at_value(field: str, value: float, explanation: str) -> Measure:
    """A measure: the mean accuracy of the seeds at one value of a swept field."""
    return over_field(
        field, explanation, lambda s: of_sample("mean", s[value]) if s else None, lambda swept: swept == value
    )


def spread_from(field: str, least: float, explanation: str) -> Measure:
    """A measure: how far the mean accuracies lie apart, over the values of a swept field that are `least` or more."""

    def spread(samples: dict[float, Sample]) -> Measured | None:
        means = [fmean(sample.values) for sample in samples.values()]
        return Measured(max(means) - min(means)) if len(means) > 1 else None

    return over_field(field, explanation, spread, lambda value: value >= least)


def _lowest(samples: dict[float, Sample]) -> Measured | None:
    """The lowest mean, once both ends of the range that the claim is about have run."""
    if not {0.1, 2.0} <= set(samples):
        return None
    return of_sample("mean", min(samples.values(), key=lambda sample: fmean(sample.values)))


def _highest(samples: dict[float, Sample]) -> Measured | None:
    """The value with the highest mean."""
    if len(samples) < 2:
        return None
    return Measured(max(samples, key=lambda value: fmean(samples[value].values)))


lowest_by_rate = over_field("optimizer.lr", "by learning rate", _lowest)
at_rate_1_5 = mean_at_value("optimizer.lr", 1.5, "by learning rate")
best_rate = over_field("optimizer.lr", "by learning rate", _highest)
best_batch = over_field("batch_size", "by batch size", _highest)
spread_by_temperature = spread_from("screening.initial_temperature", 1.001, "by Q0")
spread_by_threshold = spread_from("screening.rejection_threshold", 5, "by mu0")

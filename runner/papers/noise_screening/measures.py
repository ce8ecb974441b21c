"""Measurements of this paper's claims.

Epsilons of screened runs: `epsilon` charges the kept updates, as the paper does. What is guaranteed, and compared with
the claim, is the sound epsilon of the most tries that the run could have made (see `runner.training.updates.screened`);
that of the tries it made is said beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import numpy as np

from runner.report.claims import Claim
from runner.report.evidence import Evidence
from runner.report.files import bound_text
from runner.report.guarantee import guaranteed, guaranteed_for
from runner.report.measured import Measured, of_sample
from runner.report.measures import Measure, against_others, bound_of, counted, of_runs
from runner.report.runs import PlannedRun, Runs, RunsAt

LIMIT = 6.0  # the epsilon up to which the paper looked for an accuracy
CARRIED_ON = "noise_screening/table_3"  # the sweep of runs that go on to it, where those of table 1 end at 3
_LONGER = {  # experiment of table 1: the same run, carried on
    short.format(dataset): f"noise_screening/{dataset}_{method}_to_6"
    for dataset in ("mnist", "fashion_mnist", "cifar10")
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
    return replace(found.charged(reached, sound), n=len(reached), delta=recorded.delta, epsilon_tries=tries)


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
    others = Runs(run for run in recorded if first_epoch(run, accuracy) is None)
    ends = others.finals("epsilon")
    at = ", ".join(sorted({f"{end:.3g}" for end in ends}))
    text = f"{accuracy:g}% is reached by {len(reached)} of {len(recorded)} runs; the others end at {at}"
    at_least = all(run.field("max_epsilon") != LIMIT for run in others)
    found = of_sample("mean", recorded.sample(lambda run: _needed(run, accuracy, at_least)), explanation=text)
    return replace(found, values=() if at_least else found.values, at_least=at_least, delta=recorded.delta)


def _needed(run: PlannedRun, accuracy: float, at_least: bool) -> float:
    """The epsilon of the first epoch with this accuracy; of a run without one what it has spent, or infinity."""
    epoch = first_epoch(run, accuracy)
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
    if short.diverged or first_epoch(short, accuracy) is not None:
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


def first_epoch(run: PlannedRun, accuracy: float) -> int | None:
    """The first epoch (from 0) with at least this test accuracy in percent."""
    return next((e for e, value in enumerate(run.history("test_accuracy")) if value >= accuracy), None)


def reaches(accuracy: float) -> Callable[[PlannedRun], int | None]:
    """That first epoch as a function of the run."""
    return lambda run: first_epoch(run, accuracy)


def mean_at(runs: Runs, name: str, epsilon: float) -> float | None:
    """Mean of a column over the runs at an epsilon as the paper counts; None before the first epoch of one of them.

    Between two epochs by linear interpolation, after the last as it was then: epochs of screened runs are at other
    epsilons than those of others.
    """
    if not runs or any(epsilon < run.history("epsilon")[0] for run in runs):
        return None
    return fmean(float(np.interp(epsilon, run.history("epsilon"), run.history(name))) for run in runs)


@against_others
def lead(claim: Claim, own: Runs, *others: Runs) -> Measured:
    """The share of the second experiment's epochs, up to the claim's epsilon, at which a run of the first leads.

    Its accuracy beside the means of the others, at equal epsilon as the paper counts (see `mean_at`); a tie is no lead.
    Mean of the shares of the first's runs.
    """
    grid = [epsilon for epsilon in others[0][0].history("epsilon") if epsilon <= bound_of(claim)]
    rivals = [[mean_at(runs, "test_accuracy", epsilon) for runs in others] for epsilon in grid]

    def share(run: PlannedRun) -> float:
        places = [mean_at(Runs([run]), "test_accuracy", epsilon) for epsilon in grid]
        compared = [(a, [r for r in of if r is not None]) for a, of in zip(places, rivals, strict=True)]
        led = [a > max(of) for a, of in compared if a is not None and of]
        return fmean(led) if led else 0.0

    last = [mean_at(own, "test_accuracy", grid[-1]), *rivals[-1]]
    names = ", ".join(name.rpartition("/")[2] for name in claim.experiments)
    text = ", ".join("–" if v is None else f"{v:.2f}" for v in last)
    found = of_sample("mean", own.sample(share), explanation=f"accuracy at the last of them: {text} ({names})")
    return replace(found.charged(own, most_guaranteed(own)), epsilon_tries=own.largest("epsilon_sound"))


def over_field(
    field: str, value: Callable[[dict[float, float]], float | None], explanation: str, at: float | None = None
) -> Measure:
    """A measure of accuracy (percent, last epoch, mean of the seeds) by a swept field; of the runs `at` one value, if
    given.
    """

    @of_runs
    def measure(_: Claim, runs: Runs) -> Measured:
        by_value = sorted(runs.recorded.by(lambda run: float(run.field(field))).items())
        accuracies = {each: fmean(of.finals("test_accuracy")) for each, of in by_value}
        found = value(accuracies)
        if found is None:
            return Measured()
        text = ", ".join(f"{each:g}: {accuracy:.2f}" for each, accuracy in accuracies.items())
        explained = f"{explanation}: {text}"
        if at is None:
            return Measured(found, explanation=explained).charged(runs, most_guaranteed(runs))
        there = runs.where(field, at)
        return of_sample("mean", there.sample(), explanation=explained).charged(there, most_guaranteed(there))

    return measure


def _best(values: dict[float, float]) -> float | None:
    return max(values, key=lambda at: values[at]) if len(values) > 1 else None


def _spread(values: dict[float, float], above: float) -> float | None:
    chosen = [accuracy for at, accuracy in values.items() if at >= above]
    return max(chosen) - min(chosen) if len(chosen) > 1 else None


lowest_by_rate = over_field(
    "optimizer.lr", lambda v: min(v.values()) if {0.1, 2.0} <= set(v) else None, "by learning rate"
)
at_rate_1_5 = over_field("optimizer.lr", lambda v: v.get(1.5), "by learning rate", at=1.5)
best_rate = over_field("optimizer.lr", _best, "by learning rate")
best_batch = over_field("batch_size", _best, "by batch size")
spread_by_temperature = over_field("screening.initial_temperature", lambda v: _spread(v, 1.001), "by Q0")
spread_by_threshold = over_field("screening.rejection_threshold", lambda v: _spread(v, 5), "by mu0")

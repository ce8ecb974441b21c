"""Measures of this paper only, and the values of table 2, read from the runs with its settings.

Epsilons of screened runs: `epsilon` charges the kept updates, as the paper does. The guarantee, which is compared with
the claim, is the sound epsilon of the largest number of attempts (see `runner.training.updates.screened`). The sound
epsilon of the actual attempts is stated next to it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its modules are imported at their first use

from runner.claims.claim import DATASETS as IN_FILES
from runner.claims.claim import Claim, dataset_name
from runner.claims.evidence import Evidence, PlannedRun, Runs, RunsAt
from runner.claims.intervals import between
from runner.claims.measure import (
    Formula,
    computed,
    counted,
    guaranteed_for,
    over_values,
    planned_for,
    prepared,
    run_formula,
)
from runner.claims.measurement import Measured, charged, compare_samples, measure_sample
from runner.claims.numbers import Array
from runner.terminal import bound_text

if TYPE_CHECKING:
    from runner.training.run import Run
    from runner.training.updates.screened import Annealing

SWEEP = "noise_screening/table_1"
_MORE = ("more_mnist", "more_fashion_mnist", "kept", "kept_cifar10")
SWEEPS = (*(f"{SWEEP}_{name}" for name in _MORE), SWEEP)  # more seeds first
DATASETS = {file: name for name, file in IN_FILES.items()}  # names in experiments, and in claims
ORDERS = tuple(range(2, 65))  # of Rényi divergences, the paper's
_ENOUGH, _REDRAWN = 3, 2000  # runs of each experiment, and bootstrap samples
CARRIED_ON = "noise_screening/table_3"  # the sweep of longer runs; the runs of table 1 end at 3
_LONGER = {  # experiment of table 1: the same run, carried on
    short.format(dataset): f"noise_screening/{dataset}_{method}_to_6"
    for dataset in DATASETS
    for short, method in (("losing_less/{}_ce", "tanh"), ("noise_screening/{}_auto", "auto"))
}


def screened_run(dataset: str) -> "Run":
    """Return the run of algorithm 2 as printed on a data set ("MNIST"), unread and untrained."""
    return prepared(SWEEP, f"noise_screening/{IN_FILES[dataset]}_screened")


def screening(dataset: str) -> "Annealing":
    """Return the parameters Q0 and mu0 of algorithm 2 on a data set ("MNIST")."""
    from runner.training.updates.screened import Annealing  # here, because plans need no PyTorch

    rule = screened_run(dataset).rule
    assert isinstance(rule, Annealing)
    return rule


def planned(evidence: Evidence, experiment: str) -> Runs:
    """Return the planned runs of an experiment of table 1, from the sweep with the most seeds."""
    return evidence.planned(SWEEPS, experiment)


def kept_steps(dataset: str) -> int:
    """Return the number of kept updates that the paper's accounting allows at its epsilon."""
    allowed = screened_run(dataset).paid_for
    assert allowed is not None
    return allowed


def claimed_at() -> float:
    """Return the epsilon that the paper claims for its accuracies, the same on every data set."""
    return float(screened_run("MNIST").config.max_epsilon)


def delta() -> float:
    """Return the delta of the paper's claims, the same on every data set."""
    return float(screened_run("MNIST").config.delta)


@computed
def printed_epsilon(_: Claim) -> Measured:
    """Return the smallest epsilon by equation 4, as printed, at the settings of table 2 of any data set.

    Equation 9 has T / (a - 1) A_a for the Renyi divergence of order a of T kept steps. Equation 4 converts it, adding
    ln(1 / delta) / (a - 1). Here A_a is the sum of equation 8, the a-th moment of the likelihood ratio mu / mu_0 of a
    step under mu_0.

    That is a misprint of T / (a - 1) ln A_a, for the paper proves the latter. By equation 6 (Mironov et al., 2019,
    section 3.3) a step is (a, 1 / (a - 1) ln A_a)-RDP, and by its lemma 1 the T divergences of order a add up.

    The authors cannot have computed with the printed equation. The mean of mu / mu_0 under mu_0 is 1, so A_a >= 1 by
    Jensen's inequality. At every order a <= 64 of theirs the printed value is therefore at least T / 63. With the 1,157
    steps or more that epsilon = 3 pays for, this is more than 18. With the logarithm the same orders give the
    claimed 3 on all three data sets. The printed value is never too small, as ln A < A.
    """
    values, texts = [], []
    for name in DATASETS.values():
        printed, with_logarithm = epsilon_by_orders(name, np.exp), epsilon_by_orders(name, lambda log: log)
        values.append(printed)
        texts.append(f"{printed:.4g} on {dataset_name(name)} ({with_logarithm:.4g} with the logarithm)")
    return Measured(min(values), explanation=", ".join(texts))


def epsilon_by_orders(dataset: str, divergence: Callable[[float], float]) -> float:
    """Return the least epsilon over the orders, a step's divergence of order a being `divergence(ln A_a) / (a - 1)`."""
    run, steps = screened_run(dataset), kept_steps(dataset)
    rate, sigma = run.mechanism.sampling_rate, run.mechanism.noise_multiplier
    allowed = math.log(1 / run.config.delta)
    moments = {order: log_moment(rate, sigma, order) for order in ORDERS}
    with np.errstate(over="ignore"):  # moments of large orders are infinite, and so not the smallest
        return min((steps * float(divergence(log)) + allowed) / (order - 1) for order, log in moments.items())


def log_moment(rate: float, sigma: float, order: int) -> float:
    """Return ln A_a of a sampled Gaussian at a whole order a, from its Renyi divergence ln A_a / (a - 1)."""
    from runner.accounting.accountants import rdp_analysis

    return (order - 1) * float(rdp_analysis().compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=float(order)))


def screened(run: PlannedRun) -> bool:
    """Return True if the run's updates are screened, recorded or not."""
    return bool(run.field("screening"))


@Formula
def epsilon_at_accuracy(claim: Claim, evidence: Evidence) -> Measured:
    """Return the first epoch's epsilon, as the paper counts, at which the accuracy in brackets is reached.

    It is the mean over the runs. A run that ends at the paper's limit of 6 without the accuracy counts as infinite, as
    in the paper. A run that ends before needs more than it has spent, so the mean is then a bound.
    """
    accuracy = float(claim.number.argument)
    planned = carried_on(claim, evidence, claim.experiment, accuracy)
    recorded, reach = planned.recorded, reaches(accuracy)
    reached = recorded.at(reach)
    measured = Measured()
    if len(reached) < len(recorded):  # the accuracy may need more than the other runs have spent: no epsilons
        short = Runs(run for run in recorded if reach(run) is None)
        ends = ", ".join(sorted({f"{end:.3g}" for end in short.finals("epsilon")}))
        text = f"{accuracy:g}% is reached by {len(reached)} of {len(recorded)} runs; the others end at {ends}"
        limit = prepared(SWEEP, "noise_screening/mnist_relu").config.max_epsilon  # at which the paper's search ends
        at_least = all(run.field("max_epsilon") != limit for run in short)
        needed = recorded.sample(lambda run: spent(run, accuracy) if at_least or reach(run) is not None else math.inf)
        measured = measure_sample("mean", needed, explanation=text)
        values = () if at_least else needed
        measured = replace(measured, values=values, at_least=at_least, delta=recorded.delta)
    elif recorded:
        cost, sound = reached_costs(reached)
        text = f"all steps until then would cost {bound_text(cost)} had their number been fixed beforehand"
        if screened(recorded[0]):
            limit = bound_text(sound)
            text += f"; a run that is to end at this number of kept updates may take attempts that cost {limit}"
        measured = charged(measure_sample("mean", tuple(reached.values("epsilon")), explanation=text), reached)
        tries = cost if screened(recorded[0]) else None
        measured = replace(measured, epsilon_sound=sound, epsilon_spent=tries, planned_each=(len(planned),))
    return replace(counted(planned, measured), chosen_on_test=True)


def spent(run: PlannedRun, accuracy: float) -> float:
    """Return the epsilon, as the paper counts, of the first epoch with this accuracy; without one, the whole run's."""
    epoch = reaches(accuracy)(run)
    return run.final("epsilon") if epoch is None else run.history("epsilon")[epoch]


@Formula
def cheaper(claim: Claim, evidence: Evidence) -> Measured:
    """Compare the epsilon that the first experiment spends on an accuracy with each other experiment's.

    In brackets: accuracies in percent ("94 96 98"), with a statement for each accuracy and other experiment. Or two of
    them ("94 to 98"), for the epsilon from the first to the second. A run without the accuracy spends at least its
    epsilon. Among the other experiments such a run counts against the claim. In the first experiment it makes the
    difference a bound (`at_least`).
    """
    accuracies = [float(word) for word in claim.number.argument.replace(" to ", " ").split()]
    start = accuracies.pop(0) if " to " in claim.number.argument else None
    statements, planned = [], Runs()
    for accuracy in accuracies:
        first, *further = (carried_on(claim, evidence, name, accuracy) for name in claim.experiments)
        planned = planned or Runs(run for runs in (first, *further) for run in runs)
        at_least = any(reaches(accuracy)(run) is None for run in first.recorded)
        for runs in (runs for runs in further if first.recorded and runs.recorded):
            costs, other_costs = (
                tuple(spent(run, accuracy) - (spent(run, start) if start else 0.0) for run in side.recorded)
                for side in (first, runs)
            )
            measured = compare_samples("order", "mean", costs, other_costs)
            statements.append(replace(measured, at_least=at_least, planned_each=(len(first), len(runs))))
    if not statements:
        return counted(planned, Measured())
    gaps = [(measured.value or 0.0) - (measured.reference or 0.0) for measured in statements]
    shown = statements[gaps.index(max(gaps))]
    text = f"{', '.join(f'{gap:+.2f}' for gap in gaps)}, accuracy by accuracy; the least favourable counts"
    lacking = tuple(name for name in claim.experiments if not planned_for(claim, evidence, name).recorded)
    all_of = tuple(statements) if len(statements) > 1 else ()
    return counted(planned, replace(shown, statements=all_of, lacking=lacking, explanation=text))


@Formula
def later_gain(claim: Claim, evidence: Evidence) -> Measured:
    """Return the first experiment's gain over each other at the later of two epsilons, less that at the earlier one.

    In brackets: the two epsilons, as the paper counts ("1.5 2.96"). Each other experiment is a statement. Accuracies
    between two epochs are interpolated linearly, because screened runs have epochs at other epsilons.
    """
    epsilons = [float(text) for text in claim.number.argument.split()]

    def risen(run: PlannedRun) -> float:
        early, late = np.interp(epsilons, run.history("epsilon"), run.history("test_accuracy"))
        return float(late - early)

    first, *others = (planned_for(claim, evidence, name) for name in claim.experiments)
    together = Runs(run for runs in (first, *others) for run in runs)
    statements = [
        replace(
            compare_samples("difference", "mean", first.sample(risen), runs.sample(risen)),
            planned_each=(len(first), len(runs)),
        )
        for runs in others
        if first.recorded and runs.recorded
    ]
    if not statements:
        return counted(together, Measured())
    least = min(statements, key=lambda statement: statement.value or 0.0)
    names = [name.rpartition("/")[2] for name in claim.experiments[1:]]
    ran = [name for name, runs in zip(names, others, strict=True) if runs.recorded]
    lacking = tuple(name for name in names if name not in ran)
    text = ", ".join(f"{s.value:+.2f} over {name}" for s, name in zip(statements, ran, strict=True))
    all_of = tuple(statements) if len(statements) > 1 else ()
    read_at = together.at(lambda run: run.last_within(max(epsilons), by="epsilon"))
    shown = replace(least, statements=all_of, lacking=lacking, explanation=text)
    return counted(together, charged(shown, read_at))


@Formula
def time_ratio(claim: Claim, evidence: Evidence) -> Measured:
    """Return the median processor time of the first experiment's runs over that of the second's.

    A record without it counts with its wall time, which is no shorter.
    """
    planned = [planned_for(claim, evidence, name) for name in claim.experiments]
    if not all(runs.recorded for runs in planned):
        return counted(Runs(run for runs in planned for run in runs), Measured())
    records = [[run.record["provenance"] for run in runs if run.record] for runs in planned]
    seconds = [median(cost.get("processor_seconds", cost["wall_seconds"]) for cost in costs) for costs in records]
    words = " and ".join(
        f"{name.rpartition('/')[2]} {time:.0f} s ({sum('processor_seconds' not in cost for cost in costs)} of "
        f"{len(costs)} by wall time)"
        for name, time, costs in zip(claim.experiments, seconds, records, strict=True)
    )
    kind = f"by medians of {' and '.join(str(len(costs)) for costs in records)} runs"
    measured = Measured(seconds[0] / seconds[1], kind=kind, explanation=words)
    return counted(Runs(run for runs in planned for run in runs), measured)


@run_formula
def tries_by_value(claim: Claim, planned: Runs) -> Measured:
    """Compare attempts per kept update at two values of the field that the claim names: "20 5"."""
    values = [float(text) for text in claim.number.argument.split()]
    runs, by_value = planned.recorded.groups_by(claim.by), planned.groups_by(claim.by)
    if not all(value in runs for value in values):
        return Measured()
    first, second = (runs[value].sample(lambda run: run.final("tries") / run.final("accepted")) for value in values)
    sizes = tuple(len(by_value[value]) for value in values)
    return replace(compare_samples("order", "mean", first, second), planned_each=sizes)


@Formula
def pooled(claim: Claim, evidence: Evidence) -> Measured:
    """Return the claim's statistic over the values of a field, for the runs of all its experiments together."""
    planned = Runs(run for name in claim.experiments for run in planned_for(claim, evidence, name))
    return counted(planned, over_values(claim, evidence, [planned]))


def carried_on(claim: Claim, evidence: Evidence, experiment: str, accuracy: float) -> Runs:
    """Return the planned runs of one of a claim's experiments, with longer runs if needed and available.

    If a run ends at 3 below an accuracy (percent), a run of the same seed and settings replaces it and goes on to the
    limit. The longer run has to be recorded and begin with the shorter one. On one device it has the same
    batches and noise. If it is another draw (from another device, by other code), it would be a second chance for the
    seeds that failed, and is not taken.
    """
    further = evidence.recorded(CARRIED_ON, _LONGER.get(experiment, ""))
    longer = {run.seed: run for run in further if not run.diverged}
    planned = planned_for(claim, evidence, experiment)

    def extends(long: PlannedRun, short: PlannedRun) -> bool:
        if short.record is None:
            return True
        if short.diverged or reaches(accuracy)(short) is not None:
            return False
        # The epsilons of the beginning are the same, and its training losses differ only by rounding.
        pairs = [(long.history(name), short.history(name)) for name in ("epsilon", "train_loss")]
        return all(len(x) > len(y) and np.allclose(x[: len(y)], y, rtol=1e-3, atol=0) for x, y in pairs)

    return Runs(long if (long := longer.get(run.seed)) and extends(long, run) else run for run in planned)


def reached_costs(reached: RunsAt) -> tuple[float, float]:
    """Return two costs of runs up to an epoch each, the largest over the runs.

    The first is the cost of all steps made, had their number been fixed beforehand. The second is the guarantee of a
    run that is to end there. Both are the same, except that screened runs can fix only their kept updates beforehand.
    """
    cost = reached.largest("epsilon_spent")
    if not screened(reached[0][0]):
        return cost, cost
    longest, epoch = max(reached, key=lambda pair: pair[0].history("accepted")[pair[1]])
    return cost, guaranteed_for(longest, round(longest.history("accepted")[epoch]))


def reaches(accuracy: float) -> Callable[[PlannedRun], int | None]:
    """Return a function of a run: the first epoch (from 0) with at least this test accuracy in percent."""
    return lambda run: next((e for e, value in enumerate(run.history("test_accuracy")) if value >= accuracy), None)


@Formula
def lead(claim: Claim, evidence: Evidence) -> Measured:
    """Return the share of the second experiment's epochs, to the claim's epsilon, at which the first leads all others.

    It leads in the mean of the column in brackets, at equal epsilon as the paper counts. Larger is better, except for a
    loss. A tie is no lead. With three runs of each experiment it has an interval, from the percentile bootstrap: the
    runs of each experiment are drawn again separately. Values between two epochs are interpolated linearly, as screened
    runs have epochs at other epsilons, and after the last epoch its value is used.
    """
    column = claim.number.argument
    planned = [planned_for(claim, evidence, name) for name in claim.experiments]
    recorded = [runs.recorded for runs in planned]
    if not all(recorded):
        return counted(planned[0], Measured())
    grid = [epsilon for epsilon in recorded[1][0].history("epsilon") if epsilon <= claim.bound]
    sign = -1 if column.endswith("loss") else 1
    curves = [  # by experiment: [runs, epsilons], NaN before a run's first epoch
        sign * np.array([np.interp(grid, r.history("epsilon"), r.history(column), left=math.nan) for r in runs])
        for runs in recorded
    ]
    value = _share([curve.mean(0) for curve in curves])
    if math.isnan(value):
        return counted(planned[0], Measured())
    interval = None
    if min(map(len, recorded)) >= _ENOUGH:
        resampled = scipy.stats.bootstrap(
            [np.arange(len(curve)) for curve in curves],  # runs are drawn, each with its whole curve
            lambda *draws: _share([curve[runs].mean(0) for curve, runs in zip(curves, draws, strict=True)]),
            n_resamples=_REDRAWN,
            vectorized=False,
            method="percentile",
            random_state=np.random.default_rng(0),
        )
        interval = partial(between, resampled.bootstrap_distribution)
    names = ", ".join(name.rpartition("/")[2] for name in claim.experiments)
    last = ", ".join("–" if np.isnan(c[:, -1]).any() else f"{abs(c[:, -1].mean()):.4g}" for c in curves)
    text = f"{column.replace('_', ' ')} at the last of them: {last} ({names})"
    kind = f"share of epochs, by means of {' and '.join(str(len(runs)) for runs in recorded)} runs"
    return counted(planned[0], Measured(value, interval_at=interval, kind=kind, explanation=text))


def _share(means: Sequence[Array]) -> float:
    """Return the share of places at which the first is above all others that exist there; NaN if it is alone."""
    first, further = means[0], np.array(means[1:])
    compared = ~np.isnan(first) & ~np.isnan(further).all(0)
    ahead = first > np.where(np.isnan(further), -math.inf, further).max(0)
    return float(ahead[compared].mean()) if compared.any() else math.nan

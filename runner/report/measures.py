"""How claims are measured: from recorded runs to the one number that a claim is about.

A measure is found by its name, that of the function, in the modules of the claim's paper or here. What a decorator
makes a measure of says only what is its own: the decorator chooses the runs, says how many there are, and charges
what they cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import update_wrapper, wraps
from statistics import fmean, median
from types import ModuleType

from runner.report.claims import Claim, claims_path, read_claims
from runner.report.evidence import Evidence
from runner.report.measured import Measured, of_sample
from runner.report.runs import Runs, RunsAt, Sample


class Measure:
    """A function of a claim and the evidence, marked as a measure."""

    def __init__(self, function: Callable[[Claim, Evidence], Measured]) -> None:
        self.function = function
        update_wrapper(self, function)

    def __call__(self, claim: Claim, evidence: Evidence) -> Measured:
        return self.function(claim, evidence)


def measures_in(module: ModuleType) -> Mapping[str, Measure]:
    """The measures of a module by their names."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Measure)}


def computed(measure: Callable[[Claim], Measured]) -> Measure:
    """A measure that needs no run."""

    @wraps(measure)
    def of_none(claim: Claim, _: Evidence) -> Measured:
        return replace(measure(claim), computed=True)

    return Measure(of_none)


def of_runs(measure: Callable[[Claim, Runs], Measured]) -> Measure:
    """A measure of the claim's experiment: what it says of the planned runs, of which some are recorded."""

    @wraps(measure)
    def of_one(claim: Claim, evidence: Evidence) -> Measured:
        planned = evidence.planned(claim.sweep, claim.experiment)
        return counted(planned, measure(claim, planned) if planned.recorded else Measured())

    return Measure(of_one)


def within_epsilon(measure: Callable[[Claim, Runs, RunsAt], Measured]) -> Measure:
    """A measure of the claim's experiment at the last epoch whose epsilon is below the claimed one.

    It is given the planned runs, and those that have such an epoch. They count, and what they cost until then.
    """

    @wraps(measure)
    def of_one(claim: Claim, runs: Runs) -> Measured:
        bound = bound_of(claim)
        reached = runs.last_below(bound)
        if not reached:  # above the claimed epsilon from the first epoch
            return Measured(explanation=never_below(bound))
        return replace(measure(claim, runs, reached).charged(reached), n=len(reached))

    return of_runs(of_one)


def of_experiments(measure: Callable[..., Measured]) -> Measure:
    """A measure of all experiments of the claim: of the claim, and the planned runs of each in turn.

    It has to say itself which of them have to be recorded. All of them count.
    """

    @wraps(measure)
    def of_all(claim: Claim, evidence: Evidence) -> Measured:
        by_name = {name: evidence.planned(claim.sweep, name) for name in claim.experiments}
        planned = Runs(run for runs in by_name.values() for run in runs)
        lacking = tuple(name.rpartition("/")[2] for name, runs in by_name.items() if not runs.recorded)
        found = counted(planned, measure(claim, *(by_name[name] for name in claim.experiments)))
        return found if found.value is None else replace(found, lacking=lacking)

    return Measure(of_all)


def against_others(measure: Callable[..., Measured]) -> Measure:
    """A measure of the claim's first experiment beside the others, if all have a recorded run.

    It is given the recorded runs of each. The first's are charged, and count; where it is of two samples, the others'
    count, too.
    """

    @wraps(measure)
    def of_first(claim: Claim, evidence: Evidence) -> Measured:
        own, *others = (evidence.planned(claim.sweep, name) for name in claim.experiments)
        recorded = [runs.recorded for runs in (own, *others)]
        if not all(recorded):
            return counted(own, Measured())
        found = measure(claim, *recorded)
        return counted(own, found if found.against is None else made_of(found, own, *others))

    return Measure(of_first)


def counted(planned: Runs, found: Measured) -> Measured:
    """What was found, with how many runs are planned, recorded and diverged, and what those recorded cost in all.

    What the measure says itself stays: how many count (n, planned), and what they cost (with their delta).
    """
    n, of = found.n or len(planned.recorded), found.planned or len(planned)
    counts = replace(found, n=n, planned=of, diverged=planned.diverged)
    return counts if found.value is None or found.delta is not None else counts.charged(planned)


def made_of(found: Measured, *planned: Runs) -> Measured:
    """What was found, as made of the recorded ones of these planned runs alone, where a claim has more."""
    return replace(found, n=sum(len(runs.recorded) for runs in planned), planned=sum(map(len, planned)))


@of_runs
def test_accuracy(claim: Claim, runs: Runs) -> Measured:
    """Last-epoch accuracy (percent), mean over an experiment's runs; a diverged one counts as it ended."""
    return of_sample("mean", runs.sample(), best=fmean(runs.finals("best_test_accuracy")))


@within_epsilon
def accuracy_within_epsilon(claim: Claim, _: Runs, reached: RunsAt) -> Measured:
    """Accuracy in percent at the last epoch whose epsilon, by the accountant configured, is below the claimed one.

    Mean over the runs. A run set up for a larger budget may do worse there than one set up for this budget.
    """
    whole = reached.runs.largest("epsilon")
    explanation = f"after epoch {reached.epochs}, the last below {bound_of(claim):g}; the whole run ends at {whole:.3g}"
    return of_sample("mean", reached.sample(), explanation=explanation)


@within_epsilon
def best_within_epsilon(claim: Claim, runs: Runs, reached: RunsAt) -> Measured:
    """Accuracy in percent of the best run at the last epoch whose epsilon is below the claimed one: a maximum over the
    seeds, chosen on test data.

    The explanation has their mean and median, and the same at the last epoch whose sound epsilon is below the claimed
    one. `best`: mean over the runs of the best epoch below the claimed epsilon.
    """
    bound, accuracies = bound_of(claim), reached.sample()
    sound = runs.last_below(bound, "epsilon_sound")
    parts = [f"the best of the runs after epoch {reached.epochs}, the last below {bound:g} ({_middle(accuracies)})"]
    if sound:
        parts.append(f"by the sound ε after epoch {sound.epochs}: {_spread(sound.sample())}")
    parts.append(f"after the last epoch: {_spread(reached.runs.sample())}")
    best = fmean(reached.best_until("test_accuracy"))
    return of_sample("best", accuracies, best=best, explanation="; ".join(parts))


def claims_of(paper: str, **columns: str) -> list[Claim]:
    """The claims of a paper that have these values in these columns."""
    claims = read_claims(claims_path(paper))
    return [claim for claim in claims if all(getattr(claim, name) == value for name, value in columns.items())]


def bound_of(claim: Claim) -> float:
    """The epsilon that a claim names."""
    assert claim.epsilon is not None
    return claim.epsilon[0]


def never_below(bound: float) -> str:
    """Why there is no accuracy within an epsilon."""
    return f"no epoch of these runs stays below {bound:g}"


def _middle(sample: Sample) -> str:
    return f"mean {fmean(sample.values):.2f}, median {median(sample.values):.2f}"


def _spread(sample: Sample) -> str:
    return f"best {max(sample.values):.2f}, {_middle(sample)}"

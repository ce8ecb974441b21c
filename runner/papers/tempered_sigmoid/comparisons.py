"""Measures of what the paper says of two settings, and of the best of a search."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import fmean

from runner.report.claims import Claim
from runner.report.evidence import Evidence
from runner.report.measured import Measured, of_two
from runner.report.measures import Measure, accuracy_within_epsilon, counted, of_experiments, test_accuracy
from runner.report.runs import PlannedRun, Runs, RunsAt, last_accuracy

_RATE = "optimizer.lr"
_FIFTHS = 5


def of_search(measure: Measure) -> Measure:
    """A measure of the runs at the learning rate that the search chose, by one of any runs.

    The search is of the claim's experiment, on held-out images (see `Claim.searches`).
    Until all of it has run there is no such number.
    """

    def of_chosen(claim: Claim, evidence: Evidence) -> Measured:
        planned = evidence.planned(claim.sweep, claim.experiment)
        chosen, text = _at_chosen_rate(claim, evidence, claim.experiment)
        if not chosen.recorded:
            if fixed := planned.sample().values:
                text += f"; at one fixed setting the mean after the last epoch is {fmean(fixed):.2f} (n = {len(fixed)})"
            return counted(planned, Measured(explanation=text))
        found = measure(claim, Evidence(evidence.scale, {claim.sweep: chosen}))
        return replace(found, explanation="; ".join(part for part in (text, found.explanation) if part))

    return Measure(of_chosen)


@Measure
def above_at_best_of_search(claim: Claim, evidence: Evidence) -> Measured:
    """Mean last-epoch accuracy of the first experiment beside the second's, each at the rate that its search chose."""
    planned = Runs(run for name in claim.experiments for run in evidence.planned(claim.sweep, name))
    chosen, texts = zip(*(_at_chosen_rate(claim, evidence, name) for name in claim.experiments), strict=True)
    text = "; ".join(f"{name.rpartition('/')[2]}: {of}" for name, of in zip(claim.experiments, texts, strict=True))
    if not all(runs.recorded for runs in chosen):
        return counted(planned, Measured(explanation=text))
    one, other = (runs.recorded.sample() for runs in chosen)
    return counted(Runs(run for runs in chosen for run in runs), of_two("order", "mean", one, other, explanation=text))


def _at_chosen_rate(claim: Claim, evidence: Evidence, experiment: str) -> tuple[Runs, str]:
    """The planned runs of an experiment at the rate that the search chose, and how; none until all of it has run."""
    searched = Runs(
        run for sweep in claim.searches for run in evidence.planned(sweep, experiment.removesuffix("_norms"))
    )
    done = len(searched.recorded)
    if done < len(searched) or not searched:
        return Runs(), f"the search has not run ({done} of {len(searched)} settings)"
    best = max(searched.recorded, key=last_accuracy).field(_RATE)
    chosen = evidence.planned(claim.sweep, experiment).where(_RATE, best)
    if not chosen.recorded:
        return chosen, f"the search chose the learning rate {best:g}: not run"
    seeds = "" if len({run.seed for run in searched}) > 1 else ", one seed each"  # so that chance had a part in it
    how = f"the best of {len(searched)} learning rates on held-out images{seeds}{_edge(best, searched)}"
    return chosen, f"at {best:g}, {how}"


def _edge(best: float, searched: Runs) -> str:
    """Words where the search may have ended too early."""
    rates = [run.field(_RATE) for run in searched]
    which = "least" if best == min(rates) else "largest" if best == max(rates) else None
    return f", the {which} of them: one beyond may do better" if which else ""


accuracy_of_best_of_search = of_search(test_accuracy)
within_epsilon_of_best_of_search = of_search(accuracy_within_epsilon)


@of_experiments
def above_at_every_fifth(_: Claim, one: Runs, other: Runs) -> Measured:
    """Mean accuracy of the first experiment beside the second's after every fifth of the epochs.

    All five have to hold; the value is that where the first leads least.
    """
    recorded = one.recorded, other.recorded
    if not all(recorded):
        return Measured()
    at = [[runs.at(partial(_epoch, part)) for runs in recorded] for part in range(1, _FIFTHS + 1)]
    every = [of_two("order", "mean", a.sample(), b.sample()) for a, b in at]
    leads = [(found.value or 0.0) - (found.reference or 0.0) for found in every]
    least = every[leads.index(min(leads))]
    text = ", ".join(f"{lead:+.2f}" for lead in leads)
    found = replace(least, every=tuple(every), explanation=f"lead in points after each fifth of the epochs: {text}")
    return found.charged(RunsAt(pair for runs in at[-1] for pair in runs))


def _epoch(part: int, run: PlannedRun) -> int:
    """The last epoch, from 0, of so many fifths of them."""
    return max(1, len(run.history("epoch")) * part // _FIFTHS) - 1


@of_experiments
def accuracy_difference(_: Claim, one: Runs, other: Runs) -> Measured:
    """Last-epoch accuracy of the first experiment less that of the second, in points, of the means of the seeds."""
    if not one.recorded or not other.recorded:
        return Measured()
    samples = one.recorded.sample(), other.recorded.sample()
    text = f"{one[0].name} (n = {len(samples[0].values)}) less {other[0].name} (n = {len(samples[1].values)})"
    return of_two("difference", "mean", *samples, explanation=text)

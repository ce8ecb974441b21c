"""Measure a claim: choose its runs and their epochs, read a number of each, and compare."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeAlias

from runner.claims.claim import ORDERS, OVER_VALUES, SEARCH_CHOICE, Claim
from runner.claims.measurement import Measured, Sample, charged, of_sample, of_two
from runner.claims.numbers import FIFTHS, epochs_of, reader_of
from runner.claims.over_values import field_of, over_values
from runner.claims.runs import Evidence, Runs, RunsAt, decides
from runner.terminal import bound_text

Formulated: TypeAlias = Callable[[Claim, Evidence], Measured]  # see `runner.claims.formulas`

_LEARNING_RATE = "optimizer.lr"


def measure(claim: Claim, evidence: Evidence, formulas: Mapping[str, Formulated]) -> Measured:
    """Measure a claim; the result is empty if its runs are not recorded."""
    if claim.number.name in formulas:
        return formulas[claim.number.name](claim, evidence)
    settings = {name: _setting(claim, evidence, name) for name in claim.experiments}
    planned, how = {name: runs for name, (runs, _) in settings.items()}, _how(settings)
    every = Runs(run for runs in planned.values() for run in runs)
    lacking = tuple(name.rpartition("/")[2] for name, runs in planned.items() if not runs.recorded)
    if claim.statistic in OVER_VALUES:
        found = over_values(claim, evidence, list(planned.values()))
    elif lacking and claim.where == SEARCH_CHOICE:
        found = Measured(explanation=how)
        every = Runs(run for name in planned for run in planned_for(claim, evidence, name, chosen=False))
    else:
        found = _compared(claim, evidence, planned, how)
    return counted(every, replace(found, lacking=lacking) if found.value is not None else found)


def planned_for(claim: Claim, evidence: Evidence, experiment: str, *, chosen: bool = True) -> Runs:
    """Return the planned runs of one of a claim's experiments, from the first of its sweeps that has it.

    `chosen`: only the runs that the claim's `where` selects.
    """
    planned = evidence.planned(claim.sweeps, experiment)
    if claim.where in (None, SEARCH_CHOICE) or not chosen:
        return planned
    field, value = claim.where.field, claim.bound if claim.where.value is None else claim.where.value
    return Runs(run for run in planned if field_of(claim, run, field) in (value, None))  # none: without privacy


def at_chosen_rate(claim: Claim, evidence: Evidence, experiment: str) -> tuple[Runs, str]:
    """Find the planned runs of an experiment at the rate that its search chose.

    The search consists of all runs of the experiment in `Claim.searches`.

    Returns:
        The runs, none until the whole search has run, and in words how they were chosen.
    """
    planned = evidence.planned(claim.sweep, experiment)
    searched = Runs(
        run for sweep in claim.searches for run in evidence.planned(sweep, experiment.removesuffix("_norms"))
    )
    done = len(searched.recorded)
    if done < len(searched) or not searched:
        return Runs(), f"the search has not run ({done} of {len(searched)} settings){_at_one_setting(planned)}"
    best = searched.best.field(_LEARNING_RATE)
    chosen = planned.where(_LEARNING_RATE, best)
    if not chosen.recorded:
        return chosen, f"the search chose the learning rate {best:g}: not run{_at_one_setting(planned)}"
    seeds = "" if len({run.seed for run in searched}) > 1 else ", one seed each"  # so that chance had a part in it
    how = f"the best of {len(searched)} learning rates on held-out images{seeds}{_edge(best, searched)}"
    return chosen, f"at {best:g}, {how}"


def _at_one_setting(planned: Runs) -> str:
    values = planned.finals("test_accuracy")
    if not values:
        return ""
    return f". At one fixed setting the mean after the last epoch is {fmean(values):.2f} (n = {len(values)})"


def _edge(best: float, searched: Runs) -> str:
    """Warn, in words, that a search may have ended too early."""
    rates = [run.field(_LEARNING_RATE) for run in searched]
    which = "least" if best == min(rates) else "largest" if best == max(rates) else None
    return f", the {which} of them: one beyond may do better" if which else ""


def _setting(claim: Claim, evidence: Evidence, name: str) -> tuple[Runs, str]:
    """Return an experiment's planned runs that a claim is about, and in words how they were chosen."""
    if claim.where == SEARCH_CHOICE:
        return at_chosen_rate(claim, evidence, name)
    return planned_for(claim, evidence, name), ""


def _how(settings: Mapping[str, tuple[Runs, str]]) -> str:
    if len(settings) == 1:
        return next(iter(settings.values()))[1]
    return "; ".join(f"{name.rpartition('/')[2]}: {how}" for name, (_, how) in settings.items() if how)


def _compared(claim: Claim, evidence: Evidence, settings: Mapping[str, Runs], how: str) -> Measured:
    """Measure the claim's statement about each pair, epoch and number; the value is the least favourable one."""
    statements, used, texts = [], RunsAt(), []
    for pair in _whole(claim, settings):
        planned = [settings[name] for name in pair]
        of_pair = []
        for epoch in epochs_of(claim):
            at = [runs.at(epoch) for runs in planned]
            if all(at):
                used = RunsAt((*used, *(pair for runs in at for pair in runs)))
                of_pair += _statements(claim, evidence, planned, at)
        if of_pair:
            statements += of_pair
            texts.append(_text(claim, [runs.at(epochs_of(claim)[-1]) for runs in planned], of_pair))
    if not statements:
        above = claim.at.name in ("below", "within") and all(runs.recorded for runs in settings.values())
        return Measured(explanation=f"no epoch of these runs stays {claim.at} {claim.bound:g}" if above else "")
    shown = min(statements, key=lambda found: _in_favour(claim, found))
    how = "; ".join(filter(None, (how, *texts)))
    if len(statements) > 1:
        how += "; the least favourable counts"
    return replace(charged(shown, used), every=tuple(statements) if len(statements) > 1 else (), explanation=how)


def _in_favour(claim: Claim, found: Measured) -> float:
    """Return a number that grows with the support that a statement gives to the claim."""
    value = found.value if found.value is not None else math.nan
    sign = -1 if claim.direction in ("below", "below_other") else 1
    return -math.inf if math.isnan(value) else sign * (value - (found.reference or 0.0))


def _whole(claim: Claim, settings: Mapping[str, Runs]) -> list[tuple[str, ...]]:
    """List the recorded pairs. A setting that is compared with several needs records of all of them."""
    recorded = [pair for pair in claim.pairs if all(settings[name].recorded for name in pair)]
    asked, there = (Counter(pair[0] for pair in of) for of in (claim.pairs, recorded))
    return [pair for pair in recorded if asked[pair[0]] == there[pair[0]]]


def _statements(claim: Claim, evidence: Evidence, planned: Sequence[Runs], at: Sequence[RunsAt]) -> list[Measured]:
    read = reader_of(claim.number)
    numbers = [[_numbers(read(run, epoch)) for run, epoch in runs] for runs in at]
    of_accuracies = claim.number.name == "test_accuracy" and claim.compare != "ratio"
    typical = evidence.spread(at[0][0][0].field("dataset.name")) if of_accuracies else None
    found = []
    for place in range(len(numbers[0][0])):
        samples = [tuple(of[place] for of in by_run) for by_run in numbers]
        one = _of_one(claim, samples[0], at[0]) if len(samples) == 1 else _of_two(claim, *samples)
        sizes = tuple(map(len, planned))
        found.append(replace(one, n=sum(map(len, at)), planned=sum(sizes), planned_each=sizes, typical=typical))
    return found


def _numbers(found: float | Sequence[float]) -> Sequence[float]:
    return [found] if isinstance(found, (int, float)) else found


def _of_one(claim: Claim, sample: Sample, at: RunsAt) -> Measured:
    on_test = any(run.field("screening.images") == "test" for run, _ in at)
    best = None
    if claim.number.name == "test_accuracy":
        best_epochs = at.best_until("test_accuracy")
        best = max(best_epochs) if claim.statistic == "largest" else fmean(best_epochs)
    if claim.statistic == "largest":  # the paper gives no number of runs: no sample to compare
        return Measured(max(sample), sample, best=best, chosen_on_test=True, kind=f"best of {len(sample)} runs")
    return replace(of_sample(claim.statistic, sample, best=best), chosen_on_test=on_test)  # type: ignore[arg-type]


def _of_two(claim: Claim, one: Sample, other: Sample) -> Measured:
    found = of_two(claim.compare, claim.statistic, one, other)  # type: ignore[arg-type]
    in_order = claim.direction in ORDERS and claim.compare == "difference"
    return replace(found, reference=0.0) if in_order else found


_FEW = 6  # runs, up to which each is named
_WORDS = {"difference": "less", "ratio": "over", "order": "and"}


def _text(claim: Claim, at: Sequence[RunsAt], found: Sequence[Measured]) -> str:
    if len(at) == 1:
        return _text_of_one(claim, at[0])
    values = [one.value or 0.0 for one in found]
    if claim.compare == "order":
        values = [(one.value or 0.0) - (one.reference or 0.0) for one in found]
    names = f" {_WORDS[claim.compare]} ".join(
        f"{runs[0][0].name}{_middle_text(claim, found)[place]} (n = {len(runs)})" for place, runs in enumerate(at)
    )
    epochs = dict.fromkeys(str(runs.epochs) for runs in at)
    when = f"after epoch {' and '.join(epochs)}: " if claim.at.name in ("below", "within", "quarter") else ""
    if claim.at.name == "each_fifth":
        when = "after each fifth of the epochs: "
    if len(found) == 1:
        return f"{when}{names}" + ("" if claim.compare == "order" else f" is {values[0]:.3g}")
    if len(found) <= FIFTHS:
        return f"{when}{names}: {', '.join(f'{value:.3g}' for value in values)}"
    level = claim.aim or 0.0
    above = f"{sum(value > level for value in values)} of {len(values)} above {level:g}"
    return f"{when}{names}: {min(values):.3g} to {max(values):.3g}, {above}"


def _middle_text(claim: Claim, found: Sequence[Measured]) -> list[str]:
    """Return the statistic of each of the two settings, if there is one statement."""
    (one,) = found[:1]
    if len(found) > 1 or one.sample is None or one.against is None:
        return ["", ""]
    return [f" {of_sample(one.statistic or 'mean', sample).value:.4g}" for sample in (one.sample, one.against)]


def _text_of_one(claim: Claim, at: RunsAt) -> str:
    runs, best = at.runs, "the best of the runs " if claim.statistic == "best" else ""
    if claim.statistic == "largest":
        return f"the largest of {len(at)} runs" if len(at) > _FEW else _text_of_each(claim, at)
    if claim.at.name == "within" and all(decides(run) for run in runs):
        return tries_text(runs)
    if claim.at.name in ("below", "within"):
        whole = f"; the whole run ends at {bound_text(runs.largest('epsilon'))}" if claim.at.name == "below" else ""
        return f"{best}after epoch {at.epochs}, the last {claim.at} {claim.bound:g}{whole}"
    return best and f"{best}after epoch {at.epochs}"


def _text_of_each(claim: Claim, at: RunsAt) -> str:
    read = reader_of(claim.number)
    return ", ".join(f"{_numbers(read(run, epoch))[0]:.4g} ({run.job.label.partition(' ')[2]})" for run, epoch in at)


def counted(planned: Runs, found: Measured) -> Measured:
    """Add the numbers of planned, recorded and diverged runs, and their cost unless it is already there."""
    n, of = found.n or len(planned.recorded), found.planned or len(planned)
    counts = replace(found, n=n, planned=of, diverged=planned.diverged)
    return counts if found.value is None or found.delta is not None else charged(counts, planned.last)


def tries_text(runs: Runs) -> str:
    """State, in words, the number of attempts of the recorded, screened runs, and their cost."""
    tries, accepted, forced = (sum(runs.finals(name)) for name in ("tries", "accepted", "forced"))
    costs = runs.finals("epsilon_spent")
    return (
        f"{tries / accepted:.2f} attempts a kept update, {100 * forced / accepted:.1f}% of the kept by force only. "
        f"All attempts made would cost {bound_text(fmean(costs))} (mean, at most {bound_text(max(costs))}) had "
        f"their number been fixed beforehand. The most allowed cost {bound_text(runs.largest('epsilon_sound'))}"
    )

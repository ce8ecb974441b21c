"""Measures of this study: contrasts of cells, at the learning rates that the searches chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps

from runner.claims.claim import Claim
from runner.claims.contrasts import Cell, estimate
from runner.claims.costs import charged
from runner.claims.evidence import Evidence
from runner.claims.measure import Formula
from runner.claims.measured import Measured
from runner.claims.runs import PlannedRun, Runs
from runner.papers.composition.choices import at_chosen_rates, best_cell, searches
from runner.papers.composition.design import (
    GAIN_OF_ALL,
    MORE_THAN_PARTS,
    OLD,
    PARTS,
    Accuracies,
    by_cell,
    effect_of,
    gain_alone,
    spreads,
    words,
)


def cells_at(evidence: Evidence, sweep: str, epsilon: float) -> dict[Cell, Runs]:
    """Return the recorded runs of a sweep at a target epsilon and at chosen rates, by cell."""
    runs = at_chosen_rates(evidence, sweep).where("target_epsilon", epsilon).recorded
    return by_cell(runs)


def accuracies_of(cells: Mapping[Cell, Runs]) -> Accuracies:
    """Return the last accuracies (percent) of the runs of each cell, by seed."""
    return {cell: by_seed(runs) for cell, runs in cells.items()}


def by_seed(runs: Runs) -> dict[int, float]:
    """Return the last accuracy (percent) of each run, by its seed."""
    sample = runs.sample()
    return dict(zip(sample.seeds, sample.values, strict=True))


def of_seeds(runs: Iterable[PlannedRun], seeds: Sequence[int]) -> Runs:
    """Return the runs with these seeds, from which an estimate is computed."""
    return Runs(run for run in runs if run.seed in seeds)


def _contrast(weights_of: Callable[[Claim], Mapping[Cell, float]]) -> Formula:
    """Return a measure of the cells that the weights name, if all of them have run."""

    @wraps(weights_of)
    def of_cells(claim: Claim, evidence: Evidence) -> Measured:
        weights, epsilon = weights_of(claim), claim.bound
        cells = cells_at(evidence, claim.sweep, epsilon)
        planned = by_cell(Runs(evidence.sweeps.get(claim.sweep, ())).where("target_epsilon", epsilon))
        accuracies = accuracies_of(cells)
        of = sum(len(planned.get(cell, ())) for cell in weights)
        there = Runs(run for cell in weights for run in cells.get(cell, ()))
        found = estimate(accuracies, weights)
        if found is None:
            lack = sum(cell not in cells for cell in weights)
            text = f"{lack} of {len(weights)} cells have no run at a learning rate that the search chose"
            return Measured(n=len(there), planned=of, explanation=text if lack else "no seed has run in all its cells")
        counted = of_seeds(there, found.seeds)
        text = "one seed has run in all of its cells: no interval"
        if found.interval is not None:
            within = spreads({cell: accuracies[cell] for cell in weights}, found.seeds)
            text = f"runs within a cell spread by {min(within):.2f} to {max(within):.2f} points"
        measured = Measured(
            found.value,
            interval_at=found.interval_at,
            each=f"{len(weights)} x {len(found.seeds)}",
            n=len(counted),
            planned=of,
            diverged=counted.diverged,
            explanation=text,
        )
        return charged(measured, counted.last)

    return Formula(of_cells)


@_contrast
def main_effect(claim: Claim) -> Mapping[Cell, float]:
    """Return the mean of the eight cells with a part's new level, minus the mean with its old, in points."""
    return effect_of([part for part in PARTS if part.step == claim.method])


@_contrast
def gain_of_one(claim: Claim) -> Mapping[Cell, float]:
    """Return the gain from a part alone, with all others old, in points."""
    (part,) = (part for part in PARTS if part.step == claim.method.removesuffix(", alone"))
    return gain_alone(part)


@_contrast
def plain(_: Claim) -> Mapping[Cell, float]:
    """Return the accuracy of the cell with all parts old, in percent."""
    return {OLD: 1.0}


@_contrast
def gain_of_all(_: Claim) -> Mapping[Cell, float]:
    """Return the cell with all parts new minus the cell with all old, in points."""
    return GAIN_OF_ALL


@_contrast
def more_than_parts(_: Claim) -> Mapping[Cell, float]:
    """Return the gain of all parts together minus the sum of the gains of each alone, in points."""
    return MORE_THAN_PARTS


@Formula
def added(claim: Claim, evidence: Evidence) -> Measured:
    """Return the accuracy of the claim's first experiment minus the second's, in points, of the means of the seeds.

    If there are searches, the rates are the chosen ones, and both experiments have to extend the best cell.
    """
    planned, recorded = _planned(claim, evidence.sweeps.get(claim.sweep, ())), Runs()
    text = "" if not searches(evidence, claim.sweep) else _why_not_best(evidence, planned)
    if not text:
        there = at_chosen_rates(evidence, claim.sweep) if searches(evidence, claim.sweep) else planned
        recorded = _planned(claim, there).recorded
    accuracies = {
        name: by_seed(Runs(run for run in recorded if run.job.experiment == name)) for name in claim.experiments
    }
    found = estimate(accuracies, dict(zip(claim.experiments, (1.0, -1.0), strict=True)))
    if found is None:
        text = text or "no seed has run in both at a chosen learning rate"
        return Measured(n=len(recorded), planned=len(planned), explanation=text)
    recorded = of_seeds(recorded, found.seeds)
    measured = Measured(
        found.value, interval_at=found.interval_at, n=len(recorded), planned=len(planned), diverged=recorded.diverged,
        explanation="" if found.interval else "one run each: no interval",
    )  # fmt: skip
    return charged(measured, recorded.last)


def _planned(claim: Claim, runs: Iterable[PlannedRun]) -> Runs:
    """Return the runs of the claim's experiments at its epsilon."""
    named = Runs(run for run in runs if run.job.experiment in claim.experiments)
    return named.where("target_epsilon", claim.bound)


def _why_not_best(evidence: Evidence, planned: Runs) -> str:
    """Return the reason why the experiments may not add to the best cell, or "" if they do."""
    cell = best_cell(evidence)
    if cell is None:
        return "the best cell on held-out images is not known until all cells have been searched"
    if {cell} != set(by_cell(planned)):
        return f"the best cell on held-out images is {', '.join(words(cell))}: the experiments have another one"
    return ""

"""Measurements of this paper's own claims (see runner.report.measures for the shared ones)."""

from __future__ import annotations

from statistics import fmean

from runner.report.charges import ledger_of
from runner.report.claims import Claim
from runner.report.evidence import Evidence
from runner.report.measured import Measured, of_two
from runner.report.measures import Measure, bound_of, computed, counted, of_runs
from runner.report.runs import Runs, last_accuracy

STATED = ("3", "1", "02", "01")  # the epsilons of the authors' script, as its experiments have them


@computed
def layer_sensitivity(claim: Claim) -> Measured:
    """The largest norm of one example's contribution to a layer, of the claim's experiment."""
    run = ledger_of(claim.sweep, claim.experiment)[0]
    return Measured(max(group.sensitivity for group in run.mechanism.noise_groups))


@Measure
def gap_to_no_noise(claim: Claim, evidence: Evidence) -> Measured:
    """Accuracy without noise (the claim's second experiment, table 1) less that at the claimed epsilon, in points."""
    private, clipping = claim.experiments
    planned = evidence.planned(claim.sweep, private).where("target_epsilon", bound_of(claim))
    without = evidence.recorded("backprop_clipping/table_1", clipping).sample()
    if not planned.recorded or not without.values:
        return counted(planned, Measured())
    explanation = f"{fmean(without.values):.2f}% without noise (n = {len(without.values)})"
    return counted(planned, of_two("difference", "mean", without, planned.sample(), explanation))


def at_best_of_grid(field: str) -> Measure:
    """A measure of the grid's best setting: the value of a config field where held-out accuracy is highest."""

    @of_runs
    def value(_: Claim, runs: Runs) -> Measured:
        best = runs.best
        accuracy = f"{last_accuracy(best):.2f}% of held-out images"
        explanation = f"{accuracy}, the best of {runs.recorded_of} settings"
        return Measured(float(best.field(field)), explanation=explanation).charged(Runs([best]))

    return value


best_epochs = at_best_of_grid("epochs")
best_batch_size = at_best_of_grid("batch_size")
best_input_bound = at_best_of_grid("clipping.input_bound")
best_upstream_bound = at_best_of_grid("clipping.upstream_bound")

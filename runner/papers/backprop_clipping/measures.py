"""Measurements of this paper's own claims (see runner.report.measures for the shared ones)."""

from __future__ import annotations

from functools import lru_cache
from statistics import fmean

from omegaconf import OmegaConf

from runner.accounting import Releases, sound_epsilon
from runner.report.claims import Claim
from runner.report.evidence import Evidence
from runner.report.measures import Measure, Measured, measured, unmeasured
from runner.report.networks import prepared
from runner.training.prepare import Run

SEARCHED = {
    "epochs": "epochs",
    "batch_size": "batch_size",
    "input_bound": "clipping.input_bound",
    "upstream_bound": "clipping.upstream_bound",
}
_SMALL_EPSILON = 0.2


@lru_cache
def ledger_of(sweep: str, experiment: str) -> tuple[Run, Releases, Releases]:
    """The first run of an experiment in a sweep, what it charges as the paper counts, and what it releases."""
    run = prepared(sweep, experiment)
    ledger = run.mechanism.charges_of_epochs(run.epochs)
    return run, ledger.claimed, ledger.actual


def charged_epsilon(claim: Claim, _: Evidence) -> Measured:
    """Epsilon of the claim's experiment by its own accountant, and the sound one: computed, no run needed."""
    run, claimed, actual = ledger_of(claim.sweep, claim.experiment)
    delta = run.config.delta
    sound = sound_epsilon(actual, delta)
    epsilon = run.accountant.epsilon(claimed, delta)
    return Measured(
        value=epsilon,
        epsilon=epsilon,
        epsilon_sound=sound,
        delta=delta,
        computed=True,
        explanation=f"{type(run.mechanism).__name__}, for {run.mechanism.neighbouring_relation} neighbours",
    )


def layer_sensitivity(claim: Claim, _evidence: Evidence) -> Measured:
    """The largest norm of one example's contribution to a layer, of the claim's experiment."""
    run = ledger_of(claim.sweep, claim.experiment)[0]
    return Measured(value=max(group.sensitivity for group in run.mechanism.noise_groups), computed=True)


def gap_to_no_noise(claim: Claim, evidence: Evidence) -> Measured:
    """Accuracy without noise (the claim's second experiment, table 1) less that at epsilon 0.2, percentage points."""
    private, clipping = claim.experiments
    planned = [r for r in evidence.planned(claim.sweep, private) if r.job.config.target_epsilon == _SMALL_EPSILON]
    recorded = [run for run in planned if run.record is not None]
    without = [run.final("test_accuracy") for run in evidence.recorded("backprop_clipping/table_1", clipping)]
    if not recorded or not without:
        return unmeasured(planned)
    values = [fmean(without) - run.final("test_accuracy") for run in recorded]
    return measured(planned, fmean(values), values, explanation=f"{fmean(without):.2f}% without noise")


def best(field: str) -> Measure:
    """A measurement of the grid's best setting: the value of a config field where held-out accuracy is highest."""

    def measure(claim: Claim, evidence: Evidence) -> Measured:
        planned = evidence.planned(claim.sweep, claim.experiment)
        recorded = evidence.recorded(claim.sweep, claim.experiment)
        if not recorded:
            return unmeasured(planned)
        top = max(recorded, key=lambda run: run.final("test_accuracy"))
        accuracy = top.final("test_accuracy")
        explanation = f"{accuracy:.2f}% of held-out images, the best of {len(recorded)} of {len(planned)} settings"
        return measured(planned, float(OmegaConf.select(top.job.config, field)), charged=[top], explanation=explanation)

    return measure

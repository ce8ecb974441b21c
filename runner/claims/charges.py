"""Charges of an experiment's runs, from their config alone."""

from __future__ import annotations

import copy
from functools import lru_cache

from runner.accounting import Releases, epsilon_by
from runner.build.prepare import prepare
from runner.claims.claim import Claim
from runner.claims.measure import computed
from runner.claims.measured import Measured
from runner.records.files import upper_bound
from runner.records.jobs import sweep_jobs
from runner.training.run import Run


@lru_cache
def prepared(sweep: str, experiment: str) -> Run:
    """Prepare an experiment's first run in a sweep, on the CPU and without reading data."""
    job = next(job for job in sweep_jobs(sweep) if job.experiment == experiment)
    config = copy.deepcopy(job.config)
    config.runtime.device = "cpu"
    return prepare(config)


@lru_cache
def ledger_of(sweep: str, experiment: str) -> tuple[Run, Releases, Releases]:
    """Return an experiment's first run in a sweep, its charges as the paper counts, and its actual releases."""
    run = prepared(sweep, experiment)
    ledger = run.mechanism.charges_of_epochs(run.epochs)
    return run, ledger.claimed, ledger.actual


@computed
def charged_epsilon(claim: Claim) -> Measured:
    """Compute epsilon of the claim's experiment by its own accountant, and the sound epsilon.

    If there is no sound one, also what the steps cost.
    """
    run, claimed, _ = ledger_of(claim.sweep, claim.experiment)
    ledger, delta = run.mechanism.charges_of_epochs(run.epochs), run.config.delta
    epsilon = epsilon_by(run.accountant, claimed, delta)
    return Measured(
        value=epsilon,
        epsilon=epsilon,
        epsilon_sound=upper_bound(run.sound_epsilon(ledger)),
        epsilon_spent=run.spent_epsilon(ledger) if run.unsound else None,
        delta=delta,
        explanation=f"{type(run.mechanism).__name__}, for {run.mechanism.neighbouring_relation} neighbours",
    )

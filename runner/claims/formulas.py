"""Formulas: functions of a claim and the evidence, for claims beyond numbers of runs and their comparisons.

Papers have more of them. Some need no run, such as the charges of an experiment, which follow from its config alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING

from runner.claims.claim import Claim
from runner.claims.measure import counted, planned_for
from runner.claims.measurement import Measured
from runner.claims.runs import Evidence, PlannedRun, Runs
from runner.records.files import upper_bound
from runner.records.jobs import sweep_jobs

if TYPE_CHECKING:
    from runner.accounting import Releases
    from runner.training.run import Run


class Formula(partial[Measured]):
    """A function of a claim and the evidence, found by its name, for claims beyond readers and comparisons."""


class Computed(Formula):
    """A formula that needs no run."""


def formulas_in(module: ModuleType) -> Mapping[str, Formula]:
    """Return the formulas of a module by their names."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Formula)}


def computed(formula: Callable[[Claim], Measured]) -> Computed:
    """Make a formula that needs no run."""
    return Computed(lambda claim, evidence: replace(formula(claim), computed=True))


def run_formula(formula: Callable[[Claim, Runs], Measured]) -> Formula:
    """Make a formula of the planned runs of the claim's experiment, if any of them is recorded."""

    def measured(claim: Claim, evidence: Evidence) -> Measured:
        planned = planned_for(claim, evidence, claim.experiment)
        return counted(planned, formula(claim, planned) if planned.recorded else Measured())

    return Formula(measured)


@lru_cache
def prepared(sweep: str, experiment: str) -> Run:
    """Prepare an experiment's first run in a sweep, on the CPU and without reading data."""
    from runner.build.prepare import prepare  # here, because plans need no PyTorch

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
    from runner.accounting import epsilon_by

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


_planned: dict[str, Run] = {}  # by setting


def guaranteed_for(run: PlannedRun, steps: int) -> float:
    """Compute the sound epsilon of all that a run could have released, told to end after `steps` kept steps."""
    from runner.build.prepare import prepare

    setting = run.job.setting_id
    if setting not in _planned:
        _planned[setting] = prepare(run.job.config)
    planned = _planned[setting]
    most = planned.rule.most_steps(planned.most_steps, steps)
    return upper_bound(planned.sound_epsilon(planned.mechanism.charges(most)))

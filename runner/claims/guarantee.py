"""The guarantee of a run whose number of releases depends on the data."""

from __future__ import annotations

from runner.claims.runs import PlannedRun
from runner.records.files import upper_bound
from runner.training.instantiation import update_rule_of
from runner.training.prepare import prepare
from runner.training.run import Run

_AT_MOST_STEPS = "epsilon_sound_at_max_tries"  # only such a run has it among its final metrics
_planned: dict[str, Run] = {}  # by setting
_reversible: dict[str, bool] = {}  # by setting


def decides(run: PlannedRun) -> bool:
    """Return True if the run, recorded or not, itself decides how much it releases."""
    return _takes_back(run) or _ended_early(run)


def makes_all_tries(run: PlannedRun) -> bool:
    """Return True if the number of steps up to an epoch, rejected ones included, does not depend on the data."""
    return not (run.field("max_epsilon") is not None and _takes_back(run)) and not _ended_early(run)


def _takes_back(run: PlannedRun) -> bool:
    if not run.field("screening"):
        return False
    setting = run.job.setting_id
    if setting not in _reversible:
        _reversible[setting] = update_rule_of(run.job.config).takes_back
    return _reversible[setting]


def _ended_early(run: PlannedRun) -> bool:
    """Return True if the run diverged or its rule ended it, which depends on the data."""
    if run.record is None:
        return False
    final = run.record["final"]
    return bool(run.record["status"] != "finished" or final.get("max_tries", 0) > final.get("steps", 0))


def guaranteed(run: PlannedRun) -> float:
    """Return the sound epsilon of all that the recorded run could have released, from its final metrics.

    If the record of a run that decides does not have it, it is infinite.
    """
    if not decides(run):
        return run.final("epsilon_sound")
    assert run.record is not None
    return upper_bound(run.record["final"].get(_AT_MOST_STEPS))


def guaranteed_for(run: PlannedRun, kept: int) -> float:
    """Compute the sound epsilon of all that a run could have released, had it been told to end at `kept` kept steps."""
    planned = _plan(run)
    steps = planned.rule.most_steps(planned.most_steps, kept)
    return upper_bound(planned.sound_epsilon(planned.mechanism.charges(steps)))


def _plan(run: PlannedRun) -> Run:
    setting = run.job.setting_id
    if setting not in _planned:
        _planned[setting] = prepare(run.job.config)
    return _planned[setting]

"""The guarantee of a run whose number of releases depends on the data."""

from __future__ import annotations

from runner.build.groups import Group
from runner.build.parts import build_rule
from runner.build.prepare import prepare
from runner.claims.runs import PlannedRun
from runner.records.files import upper_bound
from runner.training.run import Run

_planned: dict[str, Run] = {}  # by setting
_reversible: dict[str, bool] = {}  # by setting


def decides(run: PlannedRun) -> bool:
    """Return True if the run, recorded or not, itself decides how much it releases.

    It may end early, because its rule or its data end it, or because a budget is spent on kept updates.
    """
    if run.record is not None:
        return "max_tries" in run.record["final"]
    return run.field("max_epsilon") is not None and _takes_back(run)


def _takes_back(run: PlannedRun) -> bool:
    if not run.field("screening"):
        return False
    setting = run.job.setting_id
    if setting not in _reversible:
        _reversible[setting] = build_rule(Group(run.job.config, "screening")).takes_back
    return _reversible[setting]


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

"""What a run guarantees, where it decides itself how much it releases."""

from __future__ import annotations

from runner.accounting import sound_epsilon
from runner.report.runs import PlannedRun
from runner.training.prepare import Run, prepare

_planned: dict[str, Run] = {}  # by setting


def screened(run: PlannedRun) -> bool:
    """Whether the run's updates were screened."""
    return bool(run.job.config.get("screening"))


def guaranteed(run: PlannedRun) -> float:
    """The sound epsilon of all that the recorded run could have released.

    Of a screened run that of the most tries its config allows (see `runner.training.updates.screened`).
    """
    return run.final("epsilon_sound_at_max_tries" if screened(run) else "epsilon_sound")


def guaranteed_for(run: PlannedRun, kept: int) -> float:
    """The sound epsilon of all that a screened run could have released that was to end at so many kept updates."""
    setting = run.job.setting_id
    if setting not in _planned:
        _planned[setting] = prepare(run.job.config)
    planned = _planned[setting]
    assert planned.screening is not None
    tries = planned.screening.most_tries(planned.max_tries, kept)
    return sound_epsilon(planned.mechanism.charges(tries).actual, run.delta)

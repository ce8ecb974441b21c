"""Execute a search: the draws first, then rounds of suggestions. What is next follows from the records alone."""

from __future__ import annotations

from pathlib import Path

from runner.launch import Work, run_jobs
from runner.launch.interface import Launcher
from runner.records.files import is_recorded
from runner.records.jobs import Job
from runner.search.space import Space
from runner.search.suggest import AT_ONCE, Tried, suggested
from runner.search.trials import trials_of
from runner.terminal import Line

DRAWS = 10  # trials before suggestions, as Optuna's sampler has it by default


def next_jobs(space: Space, folder: Path, budget: float, number: int, draws: int = DRAWS) -> list[Job]:
    """Return the trials that can be run now; nothing if `number` of them are recorded.

    Args:
        space: what is searched.
        folder: the results folder.
        budget: the sound epsilon that trials are judged at.
        number: of trials in all.
        draws: the number of the sweep's own draws that come before suggestions.
    """
    trials = trials_of(space, folder)
    left, known = number - len(trials), {trial.run_id for trial in trials}
    if left <= 0:
        return []
    if drawn := [job for job in space.draws[:draws] if job.run_id not in known]:
        return drawn[:left]
    tried = [Tried(t.values, t.accuracy_within(budget) or 0.0) for t in trials if space.may_suggest(t.values)]
    return [space.job(point) for point in suggested(space.dimensions, tried, min(AT_ONCE, left), draws)]


def carry_out(
    space: Space,
    folder: Path,
    budget: float,
    number: int,
    launcher: Launcher,
    line: Line,
    *,
    draws: int = DRAWS,
    at_once: int = 1,
    threads: int | None = 1,
) -> list[tuple[Job, str]]:
    """Run trials up to their number in all, including those recorded before (see `next_jobs`).

    Returns:
        The trials of a round that failed, and why. No further round follows.
    """
    while jobs := next_jobs(space, folder, budget, number, draws):
        if failed := run_jobs(launcher, Work(jobs, at_once, threads), line).failed:
            return failed
        if lost := [job for job in jobs if not is_recorded(folder, job.run_id)]:
            return [(job, "it left no record") for job in lost]
    return []

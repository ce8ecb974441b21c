"""What of a request is left, and how long that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from omegaconf import DictConfig

from runner.runs.estimate import TIMED, TIMED_BEFORE, Estimate, Estimator
from runner.runs.planned import Planned
from runner.terminal import Line, duration
from runner.training.prepare import Run

Prepare = Callable[[Planned, DictConfig], Run]


def estimated(left: Sequence[Planned], estimator: Estimator, prepare: Prepare) -> dict[str, Estimate]:
    """How long each of some runs will take, by run id: the same for runs of a setting."""
    line, settings = Line(at_once=False), {job.setting_id: job for job in left}
    known = dict[str, Estimate]()
    for number, (setting, job) in enumerate(settings.items(), 1):
        line.show(f"{len(left)} runs left; estimating {number} of their {len(settings)} settings ...")
        known[setting] = estimator.of(job, partial(prepare, job))
    line.keep(f"{len(left)} runs left")
    return {job.run_id: known[job.setting_id] for job in left}


def plan_text(
    jobs: Mapping[str, Sequence[Planned]], estimates: Mapping[str, Estimate], workers: int, crowded: float
) -> str:
    """A table of items: runs recorded, runs left, time left. A run that two items share is counted in both.

    Times are for a machine that does nothing else, and for one that stays as `crowded` as it is.
    """
    every = [job for planned in jobs.values() for job in planned]
    width = 2 + max(len(name) for name in ("item", "in all", *jobs))
    lines = [f"{'item':<{width}}{'runs':>6}{'done':>6}{'left':>6}{'time left, alone':>27}{'as busy as now':>27}"]
    for name, planned in {**with_runs(jobs), "in all": every}.items():
        ids = {job.run_id for job in planned}
        left = [estimates[each] for each in ids if each in estimates]
        sums = [sum(parts) / workers for parts in zip(*((e.seconds, e.low, e.high) for e in left), strict=True)]
        alone, busy = (_times([factor * each for each in sums or (0.0, 0.0, 0.0)]) for factor in (1.0, crowded))
        lines.append(f"{name:<{width}}{len(ids):>6}{len(ids) - len(left):>6}{len(left):>6}{alone:>27}{busy:>27}")
    timed = Counter(estimate.by for estimate in estimates.values())
    recorded = len(estimates) - timed[TIMED] - timed[TIMED_BEFORE]
    lines.append(
        f"With JOBS={workers}; in brackets the least and the most that it may be, as the records of like runs scatter. "
        f"Of the runs left {recorded} are estimated by records of runs like them, {timed[TIMED_BEFORE]} by timings "
        f"kept among the results, {timed[TIMED]} were timed just now. Runs that items share are trained once, and in "
        "all counted once."
    )
    return "\n".join(lines)


def with_runs(jobs: Mapping[str, Sequence[Planned]]) -> dict[str, Sequence[Planned]]:
    """The items that train something: others are computed, or of other items' runs, and have no line in a table."""
    return {name: planned for name, planned in jobs.items() if planned}


def _times(sums: Sequence[float]) -> str:
    likely, low, high = (duration(seconds) if seconds < 360_000 else f"{seconds / 3600:.0f}h" for seconds in sums)
    return f"{likely} ({low} to {high})" if high != "0s" else likely

"""What of a request is left, and how long that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from omegaconf import DictConfig

from runner.runs.estimate import TIMED, TIMED_BEFORE, Estimate, Estimator
from runner.runs.planned import Planned
from runner.terminal import Line
from runner.training.prepare import Run

Prepare = Callable[[Planned, DictConfig], Run]


def estimated(left: Sequence[Planned], estimator: Estimator, prepare: Prepare) -> dict[str, Estimate]:
    """How long each of some runs will take, by run id: the same for runs of a setting."""
    line, settings = Line(), {job.setting_id: job for job in left}
    known = dict[str, Estimate]()
    for number, (setting, job) in enumerate(settings.items(), 1):
        line.show(f"{len(left)} runs left; estimating {number} of their {len(settings)} settings ...")
        known[setting] = estimator.of(job, partial(prepare, job))
    line.keep(f"{len(left)} runs left")
    return {job.run_id: known[job.setting_id] for job in left}


def plan_text(
    jobs: Mapping[str, Sequence[Planned]], estimates: Mapping[str, Estimate], workers: int, crowded: float
) -> str:
    """A table of items: runs recorded, runs left, hours left. A run that two items share is counted in both.

    Hours are for a machine that does nothing else, and for one that stays as `crowded` as it is.
    """
    every = [job for planned in jobs.values() for job in planned]
    width = 2 + max(len(name) for name in ("item", "in all", *jobs))
    lines = [f"{'item':<{width}}{'runs':>6}{'done':>6}{'left':>6}{'hours left, alone':>27}{'as busy as now':>27}"]
    for name, planned in {**jobs, "in all": every}.items():
        ids = {job.run_id for job in planned}
        left = [estimates[each] for each in ids if each in estimates]
        sums = [sum(parts) / 3600 / workers for parts in zip(*((e.seconds, e.low, e.high) for e in left), strict=True)]
        alone, busy = (_hours([factor * hours for hours in sums or (0.0, 0.0, 0.0)]) for factor in (1.0, crowded))
        lines.append(f"{name:<{width}}{len(ids):>6}{len(ids) - len(left):>6}{len(left):>6}{alone:>27}{busy:>27}")
    timed = Counter(estimate.by for estimate in estimates.values())
    recorded = len(estimates) - timed[TIMED] - timed[TIMED_BEFORE]
    lines.append(
        f"With JOBS={workers}; in brackets the least and the most that it may be, as the records of like runs scatter. "
        f"{recorded} runs are estimated by records; {timed[TIMED_BEFORE]} are like none and were timed with the "
        f"results, {timed[TIMED]} here, of those that measure the Hessian the most that they can take. Runs that items "
        "share are trained once, and in all counted once."
    )
    return "\n".join(lines)


def _hours(sums: Sequence[float]) -> str:
    likely, low, high = (f"{hours:.2f}" if hours < 100 else f"{hours:.0f}" for hours in sums)
    return f"{likely} ({low} to {high})"

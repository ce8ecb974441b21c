"""Tasks for a scheduler: short runs are packed together, and a long run is a task of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.records.jobs import Job


def packed(
    jobs: Sequence[Job], estimates: Mapping[str, float], minutes: float, at_once: int = 1, *, unknown: float
) -> list[list[Job]]:
    """Pack jobs into tasks, in order, each of at most `minutes` by the estimates, or of one job.

    A task is closed when the next job would make it longer: of runs that take no more than half of `minutes`, all
    but the last task take at least half.

    Args:
        at_once: how many jobs a task computes at a time.
        unknown: the minutes that a run of unknown time counts.
    """
    tasks: list[list[Job]] = []
    filled = room = 60.0 * minutes * at_once
    for job in jobs:
        seconds = estimates.get(job.run_id, 60.0 * unknown)
        if not tasks or filled + seconds > room:
            tasks.append([])
            filled = 0.0
        tasks[-1].append(job)
        filled += seconds
    return tasks

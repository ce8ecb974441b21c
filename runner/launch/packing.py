"""Tasks for a scheduler: short runs are packed together, and a long run is a task of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.records.jobs import Job


def packed(
    groups: Sequence[Sequence[Job]], estimates: Mapping[str, float], minutes: float, at_once: int = 1, *, unknown: float
) -> list[list[Job]]:
    """Pack groups into tasks, in order, each of at most `minutes` by the estimates, or of one group.

    A task is closed when the next group would make it longer: of runs that take no more than half of `minutes`, all
    but the last task take at least half.

    Args:
        at_once: how many groups a task computes at a time.
        unknown: the minutes that a group counts with a run of unknown time.
    """
    tasks: list[list[Job]] = []
    filled = room = 60.0 * minutes * at_once
    for group in groups:
        known = all(job.run_id in estimates for job in group)
        seconds = sum(estimates[job.run_id] for job in group) if known else 60.0 * unknown
        if not tasks or filled + seconds > room:
            tasks.append([])
            filled = 0.0
        tasks[-1].extend(group)
        filled += seconds
    return tasks

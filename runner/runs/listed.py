"""The runs of a sweep from the user's cache, where they were listed before: composing a paper's takes Hydra 20 s."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import lru_cache

from runner.config import register
from runner.records.jobs import Job, sweep_jobs
from runner.runs import kept


def listed_jobs(extra: Sequence[str], sweep: str) -> list[Job]:
    """What `runner.records.jobs.sweep_jobs` returns and raises, kept as long as `runner.runs.kept` keeps things.

    What is kept has been written by the user alone, or it is not read: see `runner.runs.kept`.
    """
    return list(_listed(sweep, tuple(extra)))


@lru_cache
def _listed(sweep: str, extra: tuple[str, ...]) -> list[Job]:
    key = repr(("jobs", sweep, extra))
    content = kept.recalled(key)
    if content is not None:
        register()
        jobs: list[Job] = pickle.loads(content)
        return jobs
    jobs = sweep_jobs(sweep, extra)
    if not any(job.config.sources for job in jobs):  # `kept` does not see when files of the user's own change
        kept.keep(key, pickle.dumps(jobs, pickle.HIGHEST_PROTOCOL))
    return jobs

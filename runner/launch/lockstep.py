"""Groups of runs that can be trained together: they differ only in seed and in numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from runner.config import FIELDS
from runner.config.fields import Differs
from runner.records.jobs import Job


def grouped(jobs: Sequence[Job]) -> list[tuple[Job, ...]]:
    """Group jobs that may be trained together, at most `runtime.lockstep` each. The groups' first jobs are in order.

    A group's networks can turn out not to be stackable when they are built: see
    `runner.runs.execute.execute_together`.
    """
    groups: list[list[Job]] = []
    filling: dict[str, list[Job]] = {}
    for job in jobs:
        kind, most = _kind(job.values), job.field("runtime.lockstep") or 1
        if kind not in filling or len(filling[kind]) >= most:
            filling[kind] = []
            groups.append(filling[kind])
        filling[kind].append(job)
    return [tuple(group) for group in groups]


def _kind(values: dict[str, Any]) -> str:
    """Everything that runs trained together have in common."""
    common: dict[str, Any] = {}
    for name, value in values.items():
        if FIELDS[name].differs is Differs.nothing:
            common[name] = value
        elif FIELDS[name].differs is Differs.numbers:
            common[name] = {argument: v for argument, v in value.items() if type(v) not in (int, float)}
    return json.dumps(common, sort_keys=True)

"""The state of planned runs: recorded, running, failed with a reason, queued at Slurm, or left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.launch.slurm import queued_runs
from runner.records.files import failure_path, is_recorded, progress, results_folder
from runner.records.jobs import Job
from runner.runs.durations import table_of_items
from runner.terminal import one_line

KINDS = ("recorded", "running", "queued", "failed", "left")


def states(jobs: Sequence[Job]) -> dict[str, tuple[str, str]]:
    """Return the states of runs by run id: one of `KINDS`, and a text about it. All have the same results folder.

    A run is running while a process holds its claim there. What waits elsewhere than at Slurm is left.
    """
    if not jobs:
        return {}
    root = Path(jobs[0].values["runtime"]["results_root"]).expanduser()
    queued = queued_runs(root) or {}
    return {job.run_id: _state(results_folder(job.values), root, job.run_id, queued) for job in jobs}


def status_text(jobs: Mapping[str, Sequence[Job]]) -> str:
    """Make a table of items by state, and a line for every run that is running or failed."""
    runs: dict[str, Job] = {}
    for job in (job for planned in jobs.values() for job in planned):
        runs.setdefault(job.run_id, job)  # the first of the items that share a run, as `make reproduce` prints it
    by_run = states(list(runs.values()))

    def cells(ids: set[str]) -> str:
        counts = Counter(by_run[run_id][0] for run_id in ids)
        return f"{len(ids):>6}" + "".join(f"{counts[kind]:>10}" for kind in KINDS)

    lines = table_of_items(f"{'runs':>6}" + "".join(f"{kind:>10}" for kind in KINDS), jobs, cells)
    for kind in ("running", "failed"):
        for run_id, job in runs.items():
            if by_run[run_id][0] == kind:
                lines.append(f"{kind}: {job.sweep} {job.label} · {by_run[run_id][1]}")
    return "\n".join(lines)


def _state(results: Path, root: Path, run_id: str, queued: Mapping[str, str]) -> tuple[str, str]:
    if is_recorded(results, run_id):
        return "recorded", ""
    if (epoch := progress(root, run_id)) is not None:
        return "running", epoch or "before its first epoch"
    try:
        failure = json.loads(failure_path(results, run_id).read_text(encoding="utf-8"))
        return "failed", one_line(str(failure["error"]))
    except (OSError, ValueError, KeyError):
        return ("queued", f"Slurm job {queued[run_id]}") if run_id in queued else ("left", "")

"""The state of planned runs: recorded, under way, failed with a reason, lost with their task, or left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.launch import notes, queue, slurm
from runner.launch.notes import Note, Report
from runner.records.files import failure_path, is_recorded, results_folder
from runner.records.jobs import Job
from runner.runs.durations import table_of_items
from runner.terminal import duration, one_line

KINDS = ("recorded", "running", "queued", "failed", "lost", "left")
_UNDER_WAY = ("running", "queued")


@dataclass(frozen=True)
class State:
    """One of `KINDS`, and a text about it."""

    kind: str
    text: str = ""


def states(jobs: Sequence[Job]) -> dict[str, State]:
    """Return the states of runs by run id. All runs have the same results folder.

    If several tasks have a run, the latest one counts, unless it is dead and another one has the run under way.
    """
    if not jobs:
        return {}
    values = jobs[0].values  # the results folder is the same for all
    folder = notes.folder_of(Path(values["runtime"]["results_root"]).expanduser())
    there_are = notes.notes(folder)
    in_queue = queue.states() if any(note.launcher == slurm.NAME for note in there_are) else {}
    found: dict[str, State] = {}
    for note in there_are:
        report, alive = notes.last_report(folder, note.name), notes.alive(folder, note)
        for run_id, state in _of_task(note, report, alive, in_queue).items():
            if state.kind in _UNDER_WAY or found.get(run_id, state).kind not in _UNDER_WAY:
                found[run_id] = state
    return {job.run_id: _of_run(results_folder(values), job.run_id, found.get(job.run_id)) for job in jobs}


def status_text(jobs: Mapping[str, Sequence[Job]]) -> str:
    """Make a table of items by state, and a line for every run that is running, failed or lost."""
    every: dict[str, Job] = {}
    for job in (job for planned in jobs.values() for job in planned):
        every.setdefault(job.run_id, job)  # the first of the items that share a run, as `make reproduce` prints it
    known = states(list(every.values()))

    def cells(ids: set[str]) -> str:
        counts = Counter(known[run_id].kind for run_id in ids)
        return f"{len(ids):>6}" + "".join(f"{counts[kind]:>10}" for kind in KINDS)

    lines = table_of_items(f"{'runs':>6}" + "".join(f"{kind:>10}" for kind in KINDS), jobs, cells)
    for kind in ("running", "failed", "lost"):
        for run_id, job in every.items():
            if known[run_id].kind == kind:
                lines.append(f"{kind}: {job.sweep} {job.label} · {known[run_id].text}".rstrip(" ·"))
    return "\n".join(lines)


def _of_run(results: Path, run_id: str, by_task: State | None) -> State:
    if is_recorded(results, run_id):
        return State("recorded")
    if by_task is not None and by_task.kind in _UNDER_WAY:
        return by_task
    try:
        failure = json.loads(failure_path(results, run_id).read_text(encoding="utf-8"))
        return State("failed", one_line(str(failure["error"])))
    except (OSError, ValueError, KeyError):
        return by_task or State("left")


def _of_task(
    note: Note, report: Report | None, alive: bool | None, in_queue: Mapping[str, str] | None
) -> dict[str, State]:
    """Return the states of a task's runs.

    `alive` is None if it is unknown, and `in_queue` if the scheduler does not answer.
    """
    fresh = alive is not False and report is not None and not report.over and report.age < notes.SILENT
    state = None if in_queue is None or note.launcher != slurm.NAME else in_queue.get(note.job, "")
    waits = state not in (None, "", "RUNNING")
    here = (fresh or alive is True) if state is None else bool(state)
    found: dict[str, State] = {}
    for run_id in note.runs:
        outcome, text = (report.ended if report else {}).get(run_id, ("", ""))
        if outcome == "failed":
            found[run_id] = State("failed", text)
        elif outcome:
            found[run_id] = State("left")
        elif not here and not note.job and not (report and run_id in report.running):
            found[run_id] = State("left")  # the command was stopped before it began this run
        elif not here:
            found[run_id] = State("lost", _gone(note, report))
        elif report is not None and run_id in report.running and not waits:
            silent = "" if fresh else f"silent for {duration(report.age)} · "
            found[run_id] = State("running", f"{silent}{report.running[run_id] or 'before its first epoch'}")
        else:
            found[run_id] = State("queued")
    return found


def _gone(note: Note, report: Report | None) -> str:
    what = f"Slurm job {note.job}" if note.job else f"the command that computed it ({note.launcher})"
    last = "" if report is None else f", {duration(report.age)} after its last heartbeat"
    return f"{what} is gone without a report{last}; the same command hands it over again"

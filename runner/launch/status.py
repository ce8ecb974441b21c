"""The state of planned runs: recorded, under way, failed with a reason, lost with their task, or left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.launch import notes, queue, slurm
from runner.launch.notes import Heard, Note
from runner.records.files import failure_path, is_recorded, results_folder
from runner.records.jobs import Job
from runner.runs.durations import with_runs
from runner.terminal import duration

KINDS = ("recorded", "running", "queued", "failed", "lost", "left")
_UNDER_WAY = ("running", "queued")


@dataclass(frozen=True)
class State:
    """One of `KINDS`, and what is to be said of it."""

    kind: str
    text: str = ""


def states(jobs: Sequence[Job]) -> dict[str, State]:
    """The states of runs, all of one results folder, by run id.

    Of what several tasks say the latest counts, but for one that is gone while another has the run under way.
    """
    if not jobs:
        return {}
    values = jobs[0].values  # where results belong is the same for all
    folder = notes.folder_of(Path(values["runtime"]["results_root"]).expanduser())
    there_are = notes.notes(folder)
    in_queue = queue.states() if any(note.launcher == slurm.NAME for note in there_are) else {}
    said: dict[str, State] = {}
    for note in there_are:
        heard, alive = notes.heard(folder, note.name), notes.alive(folder, note)
        for run_id, state in _of_task(note, heard, alive, in_queue).items():
            if state.kind in _UNDER_WAY or said.get(run_id, state).kind not in _UNDER_WAY:
                said[run_id] = state
    return {job.run_id: _of_run(results_folder(values), job.run_id, said.get(job.run_id)) for job in jobs}


def status_text(jobs: Mapping[str, Sequence[Job]]) -> str:
    """A table of items by state, then every run that is computed, or came to nothing, in words."""
    every: dict[str, Job] = {}
    for job in (job for planned in jobs.values() for job in planned):
        every.setdefault(job.run_id, job)  # of items that share a run the first, as in what `make reproduce` says
    known = states(list(every.values()))
    width = 2 + max(len(name) for name in ("item", "in all", *jobs))
    lines = [f"{'item':<{width}}{'runs':>6}" + "".join(f"{kind:>10}" for kind in KINDS)]
    for name, planned in {**with_runs(jobs), "in all": list(every.values())}.items():
        counts = Counter(known[run_id].kind for run_id in {job.run_id for job in planned})
        lines.append(f"{name:<{width}}{counts.total():>6}" + "".join(f"{counts[kind]:>10}" for kind in KINDS))
    for kind in ("running", "failed", "lost"):
        for run_id, job in every.items():
            if known[run_id].kind == kind:
                lines.append(f"{kind}: {job.sweep} {job.label} · {known[run_id].text}".rstrip(" ·"))
    return "\n".join(lines)


def _of_run(results: Path, run_id: str, said: State | None) -> State:
    if is_recorded(results, run_id):
        return State("recorded")
    if said is not None and said.kind in _UNDER_WAY:
        return said
    try:
        failure = json.loads(failure_path(results, run_id).read_text(encoding="utf-8"))
        return State("failed", " ".join(str(failure["error"]).split()))
    except (OSError, ValueError, KeyError):
        return said or State("left")


def _of_task(
    note: Note, heard: Heard | None, alive: bool | None, in_queue: Mapping[str, str] | None
) -> dict[str, State]:
    """Return a task's report of its runs.

    The arguments say if this machine knows it to be alive, and its state by the scheduler (None: no answer).
    """
    fresh = alive is not False and heard is not None and not heard.over and heard.age < notes.SILENT
    state = None if in_queue is None or note.launcher != slurm.NAME else in_queue.get(note.job, "")
    waits = state not in (None, "", "RUNNING")
    here = (fresh or alive is True) if state is None else bool(state)
    found: dict[str, State] = {}
    for run_id in note.runs:
        outcome, text = (heard.ended if heard else {}).get(run_id, ("", ""))
        if outcome == "failed":
            found[run_id] = State("failed", text)
        elif outcome:
            found[run_id] = State("left")
        elif not here and not note.job and not (heard and run_id in heard.running):
            found[run_id] = State("left")  # a command that was stopped had not begun it
        elif not here:
            found[run_id] = State("lost", _gone(note, heard))
        elif heard is not None and run_id in heard.running and not waits:
            silent = "" if fresh else f"silent for {duration(heard.age)} · "
            found[run_id] = State("running", f"{silent}{heard.running[run_id] or 'before its first epoch'}")
        else:
            found[run_id] = State("queued")
    return found


def _gone(note: Note, heard: Heard | None) -> str:
    what = f"Slurm job {note.job}" if note.job else f"the command that had it computed ({note.launcher})"
    last = "" if heard is None else f", last heard of {duration(heard.age)} ago"
    return f"{what} ended without a word{last}; the same command hands it over again"

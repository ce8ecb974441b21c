"""Follow tasks on other machines: which runs have ended, and which are left when a task is lost."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from runner.launch import notes
from runner.launch.notes import Note, Report
from runner.launch.processes import NOT_STARTED, Tally
from runner.records.files import recorded
from runner.records.jobs import Job
from runner.terminal import Line


class Following:
    """The runs of a request that are left, and the tally of the others."""

    def __init__(self, jobs: Iterable[Job], line: Line) -> None:
        self.tally, self.line = Tally(), line
        self._left = {job.run_id: job for job in jobs}
        self._total = len(self._left)

    def knows(self, run_id: str) -> bool:
        """Return True if the outcome of a run is known already."""
        return run_id not in self._left

    def show(self, queued: int, running: dict[str, str]) -> None:
        """Show the progress in a line, with the last epoch of the run that began last."""
        parts = [f"{len(self._left)} of {self._total} runs left", f"{queued} tasks queued"]
        for run_id, text in list(running.items())[-1:]:
            if run_id in self._left:
                parts.append(f"{self._left[run_id].label} {text}".rstrip())
        self.line.show(" · ".join(parts))

    def ended(self, run_id: str, outcome: str, text: str) -> None:
        """Count a run as over. A second report is ignored, and so is a run that this request does not have."""
        job = self._left.pop(run_id, None)
        if job is None:
            return
        if outcome == "failed":
            self.tally.failed.append((job, text))
        elif outcome == NOT_STARTED:
            self.tally.not_started.append(job)
        else:
            self.tally.recorded.append(job)
        ending = f"{outcome} {text}".strip()
        self.line.keep(f"{self._total - len(self._left)} of {self._total} · {job.sweep} {job.label} · {ending}")


class FollowingTasks(Following):
    """The same of a request in tasks that report into a folder, and the tasks that are not over."""

    def __init__(self, folder: Path, jobs: Iterable[Job], line: Line) -> None:
        super().__init__(jobs, line)
        self.folder, self.open = folder, dict[str, Note]()

    def add(self, found: Iterable[Note]) -> None:
        """Follow tasks."""
        self.open |= {note.name: note for note in found}

    def look(self, note: Note) -> Report | None:
        """Read the last report of a task, and stop following a task that is over."""
        report = notes.last_report(self.folder, note.name)
        if report is None:
            return None
        for run_id, (outcome, text) in report.ended.items():
            self.ended(run_id, outcome, text)
        if report.over:
            for run_id in note.runs:
                self.ended(run_id, "failed", "its task ended without a report of it")
            self._forget(note)
        return report

    def lost(self, note: Note) -> list[Job]:
        """Stop following a task that is lost. Return its runs without a record."""
        self.look(note)
        left = [self._left[run_id] for run_id in note.runs if run_id in self._left]
        for job in left:
            if recorded(job.config):
                self.ended(job.run_id, "finished", "")
        self._forget(note)
        return [job for job in left if job.run_id in self._left]

    def _forget(self, note: Note) -> None:
        self.open.pop(note.name, None)
        notes.remove(self.folder, note.name)

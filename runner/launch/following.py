"""Tasks that others carry out, followed: which runs have ended, and what to do when a task is gone without a word."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from runner.launch import notes
from runner.launch.notes import Heard, Note
from runner.launch.processes import Tally
from runner.launch.task import NOT_STARTED
from runner.records.files import recorded
from runner.records.jobs import Job
from runner.terminal import Line


class Following:
    """The tasks of a request that are not over, and the tally of its runs."""

    def __init__(self, folder: Path, jobs: Iterable[Job], line: Line) -> None:
        self.tally, self.open = Tally(), dict[str, Note]()
        self._folder, self._line = folder, line
        self._left = {job.run_id: job for job in jobs}
        self._total = len(self._left)

    @property
    def done(self) -> bool:
        """Return True if nothing is left to wait for."""
        return not self.open

    def add(self, note: Note) -> None:
        """Follow a task."""
        self.open[note.name] = note

    def look(self, note: Note) -> Heard | None:
        """Take what a task says; it is forgotten when it is over."""
        heard = notes.heard(self._folder, note.name)
        if heard is None:
            return None
        for run_id, (outcome, text) in heard.ended.items():
            self.ended(run_id, outcome, text)
        if heard.over:
            for run_id in note.runs:
                self.ended(run_id, "failed", "its task did not say what became of it")
            self._forget(note)
        return heard

    def lost(self, note: Note) -> list[Job]:
        """Forget a task that is gone without a message. Return its runs that are still to be made."""
        self.look(note)
        left = [self._left[run_id] for run_id in note.runs if run_id in self._left]
        for job in left:
            if recorded(job.config):
                self.ended(job.run_id, "finished", "")
        self._forget(note)
        return [job for job in left if job.run_id in self._left]

    def knows(self, run_id: str) -> bool:
        """Return True if the outcome of a run is known already."""
        return run_id not in self._left

    def failed(self, job: Job, why: str) -> None:
        """A run is given up."""
        self.ended(job.run_id, "failed", why)

    def show(self, queued: int, running: dict[str, str]) -> None:
        """Say in a line how far it all is: one of the runs that are computed, the last one that began."""
        said = [f"{len(self._left)} of {self._total} runs left", f"{queued} tasks queued"]
        for run_id, text in list(running.items())[-1:]:
            if run_id in self._left:
                said.append(f"{self._left[run_id].label} {text}".rstrip())
        self._line.show(" · ".join(said))

    def ended(self, run_id: str, outcome: str, text: str) -> None:
        """A run is over. Said again, or of a run that somebody else asked for, it is nothing."""
        job = self._left.pop(run_id, None)
        if job is None:
            return
        if outcome == "failed":
            self.tally.failed.append((job, text))
        elif outcome == NOT_STARTED:
            self.tally.not_started.append(job)
        else:
            self.tally.recorded.append(job)
        said = f"{outcome} {text}".strip()
        self._line.keep(f"{self._total - len(self._left)} of {self._total} · {job.sweep} {job.label} · {said}")

    def _forget(self, note: Note) -> None:
        self.open.pop(note.name, None)
        notes.remove(self._folder, note.name)

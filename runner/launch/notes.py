"""Notes and heartbeats of tasks, by which a later command knows which runs are under way and which are lost.

The files are in `.launch/` below the results root. A task's note is written once, when the task is submitted. Its
heartbeat is written every 5 seconds while it runs, and holds its last report: the last epoch of each run under way, and
the outcome of each run that ended. A task without a heartbeat for 60 seconds is considered dead.
"""

from __future__ import annotations

import fcntl
import json
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from runner.data.files import locked, write_whole
from runner.records.jobs import Job

HEARTBEAT = 5.0  # seconds between two heartbeats of a task
SILENT = 60.0  # seconds without a heartbeat after which a task is considered dead, if nothing else is known of it
_LOCK_WAIT = 1.0  # seconds to wait for a lock that another command holds while it tests it


def folder_of(root: Path) -> Path:
    """Return the folder of the notes, given the folder of all results."""
    return root / ".launch"


@dataclass(frozen=True)
class Note:
    """A task that was submitted."""

    name: str
    launcher: str
    job: str  # its id at the scheduler, or "" without a scheduler
    runs: tuple[str, ...]
    attempt: int = 1  # the number of times that these runs were submitted, including this one
    host: str = ""  # the machine of its process, or "" if the launcher chooses it


@dataclass(frozen=True)
class Report:
    """The last report of a task."""

    age: float  # seconds since it was written, by the clock of the file system
    running: dict[str, str]  # by run id, the last epoch in words, "" before the first
    ended: dict[str, tuple[str, str]]  # by run id, the outcome and a text about it
    over: bool  # True if the task is done


def new_name() -> str:
    """Return a unique name of a task. Names of later tasks sort after it."""
    return f"{time.time_ns():020d}-{uuid4().hex[:8]}"


def write(folder: Path, note: Note) -> None:
    """Write the note of a task."""
    write_whole(folder / f"{note.name}.task", json.dumps(asdict(note)), replace=True)


def notes(folder: Path) -> list[Note]:
    """Read all notes, in the order in which the tasks were submitted. Other files are skipped."""
    found = []
    for path in sorted(folder.glob("*.task")):
        with suppress(OSError, ValueError, TypeError):
            content = json.loads(path.read_text(encoding="utf-8"))
            found.append(Note(**content | {"runs": tuple(content["runs"])}))
    return found


def last_report(folder: Path, name: str) -> Report | None:
    """Return the last report of a task, or None before its first."""
    try:
        content = json.loads((folder / f"{name}.beat").read_text(encoding="utf-8"))
        age = _age(folder, name, "beat")
    except (OSError, ValueError):
        return None
    ended = {run_id: (outcome, text) for run_id, (outcome, text) in content["ended"].items()}
    return Report(max(age, 0.0), content["running"], ended, content["over"])


def alive(folder: Path, note: Note) -> bool | None:
    """Return True if a process of this machine has a task, and None if the task is another machine's.

    The operating system drops the lock when the process ends, however it ends.
    """
    if note.host != platform.node():
        return None
    try:
        with (folder / f"{note.name}.alive").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def remove(folder: Path, name: str) -> None:
    """Delete the files of a task."""
    for kind in ("task", "beat", "alive"):
        (folder / f"{name}.{kind}").unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Delete the files of tasks that ended well, or whose command is dead."""
    with suppress(OSError):
        for note in notes(folder):
            report = last_report(folder, note.name)
            well = report is not None and report.over and all(how != "failed" for how, _ in report.ended.values())
            known = alive(folder, note)
            silent = (_age(folder, note.name, "task") if report is None else report.age) > SILENT
            dead = not note.job and (silent if known is None else not known)
            if well or dead:
                remove(folder, note.name)


def _age(folder: Path, name: str, kind: str) -> float:
    """Return the age of a file by the clock that stamps files in its folder, which may be another machine's."""
    clock = folder / ".clock"
    clock.touch()
    return clock.stat().st_mtime - (folder / f"{name}.{kind}").stat().st_mtime


@dataclass
class Heartbeat:
    """Heartbeat of a task: it writes the last report every 5 seconds while its context is entered.

    `runner.launch.processes.run_processes` fills the report, as its watch. A file that cannot be written stops no run.
    """

    folder: Path
    name: str
    _running: dict[str, str] = field(default_factory=dict)
    _ended: dict[str, tuple[str, str]] = field(default_factory=dict)
    _over: bool = False

    def __enter__(self) -> Heartbeat:
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._alive = ExitStack()
        with suppress(OSError):
            path = self.folder / f"{self.name}.alive"  # a command that tests its lock has it for an instant
            if not self._alive.enter_context(locked(path, wait=_LOCK_WAIT)):
                path.unlink()  # without the file, `alive` returns None
        self.write()
        self._thread = threading.Thread(target=self._repeat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()
        self._over = kind is None
        self.write()
        self._alive.close()

    def began(self, jobs: Sequence[Job]) -> None:
        """Report jobs as under way."""
        with self._lock:
            self._running |= dict.fromkeys((job.run_id for job in jobs), "")

    def epoch(self, run_id: str, text: str) -> None:
        """Report the last epoch of a run."""
        with self._lock:
            self._running[run_id] = text

    def ended(self, job: Job, outcome: str, text: str) -> None:
        """Report the outcome of a run."""
        with self._lock:
            self._running.pop(job.run_id, None)
            self._ended[job.run_id] = outcome, text

    def _repeat(self) -> None:
        while not self._stopped.wait(HEARTBEAT):
            self.write()

    def write(self) -> None:
        """Write the report now."""
        with self._lock:
            content = json.dumps({"running": self._running, "ended": self._ended, "over": self._over})
        with suppress(OSError):
            write_whole(self.folder / f"{self.name}.beat", content, replace=True)


@contextmanager
def noted(root: Path, launcher: str, jobs: Sequence[Job], host: str = "") -> Iterator[Heartbeat]:
    """Keep a note and a heartbeat of a task that this command carries out. A file that cannot be written stops no run.

    `root` is the folder of all results.
    """
    folder, name = folder_of(root), new_name()
    with suppress(OSError):
        write(folder, Note(name, launcher, "", tuple(job.run_id for job in jobs), host=host))
    try:
        with Heartbeat(folder, name) as heartbeat:
            yield heartbeat
    finally:
        with suppress(OSError):
            remove(folder, name)

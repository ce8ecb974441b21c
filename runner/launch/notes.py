"""Files in which tasks report, so that a later command knows which runs are under way, and which are lost.

They are below the results root, in `.launch/`. Every task has a note of its work, written once when it is submitted.
Next to it is its last report: an epoch of each run that it computes, and the outcome of each run that ended. A task
reports every few seconds, with or without news. A task that does not is gone.
"""

from __future__ import annotations

import fcntl
import json
import platform
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from runner.data.files import locked, write_whole
from runner.records.jobs import Job

BEAT = 5.0  # seconds between two beats of a task
_MOMENT = 1.0  # seconds for which a command that looks may have a lock
SILENT = 60.0  # seconds without a beat after which a task that nothing else is known of is taken to be gone


def folder_of(root: Path) -> Path:
    """Return the folder of the notes, given the folder of all results."""
    return root / ".launch"


@dataclass(frozen=True)
class Note:
    """A task that was handed over.

    Attributes:
        launcher: the name of what carries it out.
        job: what the scheduler calls it; "" where there is none.
        runs: the ids of the runs that it is to make.
        attempt: how often these were handed over, this time included.
        host: the machine on which a process is to have the task; "" where that is the launcher's to say.
    """

    name: str
    launcher: str
    job: str
    runs: tuple[str, ...]
    attempt: int = 1
    host: str = ""


@dataclass(frozen=True)
class Heard:
    """The last report of a task.

    Attributes:
        age: seconds since it said anything, by the clock of the file system.
        running: by run id, the last epoch in words ("" before the first).
        ended: by run id, the outcome and what is to be said of it.
        over: whether it is done.
    """

    age: float
    running: dict[str, str]
    ended: dict[str, tuple[str, str]]
    over: bool


def new_name() -> str:
    """Return a name that no other task has. Names of later tasks sort after it."""
    return f"{time.time_ns():020d}-{uuid4().hex[:8]}"


def write(folder: Path, note: Note) -> None:
    """Leave a note."""
    write_whole(folder / f"{note.name}.task", json.dumps(asdict(note)), replace=True)


def notes(folder: Path) -> list[Note]:
    """The notes that there are, in the order in which tasks were handed over. Files that are none are passed over."""
    found = []
    for path in sorted(folder.glob("*.task")):
        with suppress(OSError, ValueError, TypeError):
            content = json.loads(path.read_text(encoding="utf-8"))
            found.append(Note(**content | {"runs": tuple(content["runs"])}))
    return found


def heard(folder: Path, name: str) -> Heard | None:
    """Return the last report of a task, or None before its first."""
    try:
        content = json.loads((folder / f"{name}.beat").read_text(encoding="utf-8"))
        age = _age(folder, name, "beat")
    except (OSError, ValueError):
        return None
    ended = {run_id: (outcome, text) for run_id, (outcome, text) in content["ended"].items()}
    return Heard(max(age, 0.0), content["running"], ended, content["over"])


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
    """Forget a task."""
    for kind in ("task", "beat", "alive"):
        (folder / f"{name}.{kind}").unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Forget tasks without further reports: they ended well, or their command is gone."""
    with suppress(OSError):
        for note in notes(folder):
            said = heard(folder, note.name)
            well = said is not None and said.over and all(outcome != "failed" for outcome, _ in said.ended.values())
            known = alive(folder, note)
            silent = (_age(folder, note.name, "task") if said is None else said.age) > SILENT
            gone = not note.job and (silent if known is None else not known)
            if well or gone:
                remove(folder, note.name)


def _age(folder: Path, name: str, kind: str) -> float:
    return _now(folder) - (folder / f"{name}.{kind}").stat().st_mtime


def _now(folder: Path) -> float:
    """The time by the clock that stamps files there, which may be another machine's."""
    path = folder / ".clock"
    path.touch()
    return path.stat().st_mtime


@dataclass
class Beat:
    """Says how a task goes while it is entered as a context: told by `runner.launch.processes.run_jobs`, as its watch.

    That a file cannot be written stops no run: it is only not said.
    """

    folder: Path
    name: str
    _running: dict[str, str] = field(default_factory=dict)
    _ended: dict[str, tuple[str, str]] = field(default_factory=dict)
    _over: bool = False

    def __enter__(self) -> Beat:
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._alive = ExitStack()
        with suppress(OSError):
            self._hold(self.folder / f"{self.name}.alive")
        self.say()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()
        self._over = kind is None
        self.say()
        self._alive.close()

    def _hold(self, path: Path) -> None:
        """Hold the lock that says that this process has the task; a command that looks has it for an instant."""
        if not self._alive.enter_context(locked(path, wait=_MOMENT)):
            path.unlink()  # then it is unknown

    def began(self, jobs: Sequence[Job]) -> None:
        """These are computed now."""
        with self._lock:
            self._running |= dict.fromkeys((job.run_id for job in jobs), "")

    def epoch(self, run_id: str, text: str) -> None:
        """An epoch of a run is done."""
        with self._lock:
            self._running[run_id] = text

    def ended(self, job: Job, outcome: str, text: str) -> None:
        """A run is over."""
        with self._lock:
            self._running.pop(job.run_id, None)
            self._ended[job.run_id] = outcome, text

    def _go_on(self) -> None:
        while not self._stopped.wait(BEAT):
            self.say()

    def say(self) -> None:
        """Say so now."""
        with self._lock:
            said: dict[str, Any] = {"running": self._running, "ended": self._ended, "over": self._over}
            content = json.dumps(said)
        with suppress(OSError):
            write_whole(self.folder / f"{self.name}.beat", content, replace=True)

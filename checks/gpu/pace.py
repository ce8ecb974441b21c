"""The pace of a run: measured after each epoch in the run's own process, which stops a run that cannot end in time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner.records.jobs import Job
from runner.runs.durations import like


@dataclass(frozen=True)
class Measured:
    """The seconds of the start of a run and of each of its epochs, for the runs of a kind by the same code."""

    kind: str
    code: str
    start: float
    epoch: float

    def seconds(self, epochs: int) -> float:
        """Return the seconds of a whole run."""
        return self.start + epochs * self.epoch


def kind_of(job: Job) -> str:
    """Name the runs that take as long an epoch: the same network, batch size, clipping and update rule.

    >>> from runner.records.jobs import sweep_jobs
    >>> kind_of(sweep_jobs("noise_screening/table_3")[0]).partition("-")[2]
    'Flat-none'
    """
    parts = (job.field(f"{group}._target_", "none").rpartition(".")[2] for group in ("clipping", "screening"))
    return "-".join((like(job.values), *parts))


class Pace:
    """Decides after each epoch whether a run goes on: see `Job.goes_on`. From its second epoch on it knows the pace.

    It is sent to the process of the run with the job, and its clock starts there. If a run is stopped, what was
    measured is appended to `file`, so that no later call starts such a run in too little time.

    Args:
        deadline: the time.time() by which the run has to end.
    """

    def __init__(self, job: Job, deadline: float, file: Path, code: str) -> None:
        self._kind, self._epochs, self._code = kind_of(job), int(job.values["epochs"]), code
        self._deadline, self._file = deadline, file
        self._first: tuple[int, float] | None = None
        self._started = time.time()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state | {"_started": time.time()}

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        now, epoch = time.time(), int(rows[-1]["epoch"])
        if self._first is None:
            self._first = epoch, now
            return True
        first_epoch, first_end = self._first
        seconds = (now - first_end) / (epoch - first_epoch)
        if now + seconds * (self._epochs - epoch) <= self._deadline:
            return True
        start = max(0.0, first_end - self._started - seconds)
        append(self._file, Measured(self._kind, self._code, start, seconds))
        return False


def append(file: Path, measured: Measured) -> None:
    """Add a line to a file that several processes write to."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), "w", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(measured)) + "\n")


def measured(file: Path, code: str) -> dict[str, Measured]:
    """Read the last measurement of each kind of run by this code. Damaged lines are left out."""
    paces: dict[str, Measured] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        with suppress(TypeError, ValueError):
            pace = Measured(**json.loads(line))
            paces |= {pace.kind: pace} if pace.code == code else {}
    return paces

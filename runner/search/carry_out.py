"""A search carried out: so many trials at a time, wherever its launcher has places for them."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.launch.interface import Seat, Seats
from runner.launch.worker import BUSY_PAUSE
from runner.records.jobs import Job
from runner.search.study import Study
from runner.terminal import Line

if TYPE_CHECKING:
    import optuna

_MOST_LOST = 3  # times that a trial is begun again whose place was lost


@dataclass
class _Trial:
    trial: optuna.trial.Trial
    job: Job
    lost: int = 0

    @property
    def name(self) -> str:
        return f"trial {self.trial.number} · {self.job.run_id}"


def carry_out(study: Study, trials: int, seats: Seats, line: Line) -> list[tuple[Job, str]]:
    """Try until there are so many trials in all, those recorded before included.

    A trial that is recorded, stopped or whole, is not run again. Returns those that failed, and why.
    """
    running: list[tuple[_Trial, Seat]] = []
    again: deque[_Trial] = deque()
    failed: list[tuple[Job, str]] = []
    while True:
        while seats.free and (again or study.taken < trials):
            if again:
                each = again.popleft()
            else:
                each = _Trial(*study.ask())
                if study.replay(each.trial, each.job):
                    line.keep(f"{each.name} · recorded")
                    continue
                line.keep(f"{each.name} · starts")
            running.append((each, seats.start(each.job, each.trial.number)))
        if not running and not again and study.taken >= trials:
            return failed
        ready = seats.wait([seat for _, seat in running])
        for each, seat in [pair for pair in running if pair[1] in ready]:
            said, message = seat.received()
            if said == "epoch":
                line.show(f"{each.name} · {message.text}")
                seat.answer(study.after_epoch(each.trial, message.row))
                continue
            running.remove((each, seat))
            if said == "lost":
                line.keep(f"{each.name} · lost: {message}")
                each.lost += 1
                if each.lost > _MOST_LOST:
                    study.ended(each.trial, "failed")
                    failed.append((each.job, message))
                else:
                    again.append(each)
            elif _busy(study, each, message[0], failed, line):
                time.sleep(BUSY_PAUSE)
                again.append(each)


def _busy(study: Study, each: _Trial, message: Any, failed: list[tuple[Job, str]], line: Line) -> bool:
    """Take a trial that ended. Returns whether it has not: another process is making the same run."""
    outcome, text = message
    if outcome == "busy":
        return True
    if outcome == "failed":
        failed.append((each.job, text))
    if outcome != "skipped" or not study.replay(each.trial, each.job):  # skipped: that process has recorded it
        study.ended(each.trial, outcome)
    line.keep(f"{each.name} · {outcome} {text}".rstrip())
    return False

"""A search carried out on this machine: so many trials at a time, each in a process of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from runner.runs.jobs import Job
from runner.runs.search.study import Study
from runner.runs.worker import BUSY_PAUSE, Worker, received, start
from runner.terminal import Line

if TYPE_CHECKING:
    import optuna


@dataclass
class _Running:
    trial: optuna.trial.Trial
    job: Job
    worker: Worker


def carry_out(study: Study, trials: int, workers: int, threads: int | None, line: Line) -> list[tuple[Job, str]]:
    """Try until there are so many trials in all, those recorded before included.

    A trial that is recorded, stopped or whole, is not run again. Returns those that failed, and why.
    """
    running: list[_Running] = []
    failed: list[tuple[Job, str]] = []
    try:
        while True:
            while len(running) < workers and study.taken < trials:
                trial, job = study.ask()
                if study.replay(trial, job):
                    line.keep(f"{_name(trial, job)} · recorded")
                    continue
                line.keep(f"{_name(trial, job)} · starts")
                running.append(_Running(trial, job, start((job,), threads, trial.number, judged=True)))
            if not running:
                return failed
            connections = wait([each.worker.connection for each in running])
            for each in [each for each in running if each.worker.connection in connections]:
                said, message = received(each.worker)
                if said == "epoch":
                    line.show(f"{_name(each.trial, each.job)} · {message.text}")
                    each.worker.answer(study.after_epoch(each.trial, message.row))
                    continue
                running.remove(each)
                _ended(study, each, message[0], running, failed, threads, line)
    finally:
        for each in running:
            each.worker.process.terminate()


def _ended(
    study: Study, each: _Running, message: Any, running: list[_Running], failed: Any, threads: int | None, line: Line
) -> None:
    each.worker.process.join()
    outcome, text = message
    if outcome == "busy":  # another process here is making the same run: come back
        time.sleep(BUSY_PAUSE)
        running.append(_Running(each.trial, each.job, start((each.job,), threads, each.trial.number, judged=True)))
        return
    if outcome == "failed":
        failed.append((each.job, text))
    if outcome != "skipped" or not study.replay(each.trial, each.job):  # skipped: that process has recorded it
        study.ended(each.trial, outcome)
    line.keep(f"{_name(each.trial, each.job)} · {outcome} {text}".rstrip())


def _name(trial: optuna.trial.Trial, job: Job) -> str:
    return f"trial {trial.number} · {job.run_id}"

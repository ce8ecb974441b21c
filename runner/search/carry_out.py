"""Execute a search: some trials at a time, each as a run that a launcher is given."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from runner.launch import Launcher, Work, run_jobs
from runner.launch.processes import Tally
from runner.records.jobs import Job
from runner.search.study import Study
from runner.terminal import Line

if TYPE_CHECKING:
    import optuna


def carry_out(
    study: Study, trials: int, launcher: Launcher, line: Line, *, at_once: int = 1, threads: int | None = 1
) -> list[tuple[Job, str]]:
    """Run trials up to their number in all, including those recorded before.

    A trial that is recorded, stopped or whole, is not run again. Returns those that failed, and why.
    """
    ended: SimpleQueue[tuple[optuna.trial.Trial, Job, Tally | Exception]] = SimpleQueue()
    failed: list[tuple[Job, str]] = []
    running = 0

    def run(trial: optuna.trial.Trial, job: Job) -> None:
        try:
            ended.put((trial, job, run_jobs(launcher, Work([job], 1, threads), line)))
        except Exception as error:
            ended.put((trial, job, error))

    while True:
        while running < at_once and study.taken < trials:
            trial, job = study.ask()
            name = f"trial {trial.number} · {job.run_id}"
            if study.replay(trial, job):
                line.keep(f"{name} · recorded")
                continue
            line.keep(f"{name} · starts")
            Thread(target=run, args=(trial, job), daemon=True).start()  # an interrupted command does not wait for it
            running += 1
        if not running:
            return failed
        trial, job, result = ended.get()
        running -= 1
        if isinstance(result, Exception):
            raise result
        why = result.failed[0][1] if result.failed else "it left no record"
        if result.failed or not study.replay(trial, job, ran=True):
            study.ended(trial, "failed")
            failed.append((job, why))

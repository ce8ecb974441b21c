"""Slurm as a launcher: submitit submits tasks of runs as one array. Their files and `squeue` show their progress.

Near its time limit, submitit queues a task again. It skips recorded runs, and resumes a long run from its checkpoint. A
task is lost if it left the queue without a last report, or has no heartbeat. This is noticed with or without
accounting. Its runs are submitted again, a few times.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from runner.config import ConfigError
from runner.launch import notes, queue
from runner.launch.following import FollowingTasks
from runner.launch.interface import runs_on_node
from runner.launch.notes import Note
from runner.launch.packing import packed
from runner.launch.processes import Tally, Work
from runner.launch.task import Task
from runner.records.jobs import Job
from runner.terminal import Line, one_line

NAME = "slurm"
JOB_NAME = "dp-repro-bench"
_GONE = 20.0  # seconds until the last report of a task that left the queue is visible on a shared disk


@dataclass(frozen=True, config={"extra": "forbid", "coerce_numbers_to_str": True})
class Slurm:
    """A Slurm cluster that this machine submits to. conf/launcher/slurm.yaml explains the options."""

    wait: bool
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    time_limit: PositiveInt
    memory: float | None
    cpus: PositiveInt
    gpus: NonNegativeInt
    minutes: PositiveFloat
    requeues: NonNegativeInt
    retries: NonNegativeInt
    warning: NonNegativeInt
    poll: PositiveFloat
    silence: PositiveFloat
    setup: list[str]
    more: dict[str, Any]

    def __post_init__(self) -> None:
        if find_spec("submitit") is None:
            raise ConfigError("it needs submitit: pip install -e '.[slurm]'.")
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise ConfigError("it needs Slurm's sbatch and srun, which are not on this machine's PATH.")

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`. Runs of earlier commands that are still under way are waited for as well."""
        folder = notes.folder_of(work.root)
        following = FollowingTasks(folder, work.jobs, line)
        wanted = {job.run_id for job in work.jobs}
        following.add(self._under_way(folder, wanted))
        earlier = {run_id for note in following.open.values() for run_id in note.runs} & wanted
        at_once = runs_on_node(self.gpus, self.cpus, work.threads)
        missing = [job for job in work.jobs if job.run_id not in earlier]
        tasks = packed(missing, work.estimates, self.minutes, at_once, unknown=self.time_limit)
        following.add(self._hand_over(folder, tasks, work))
        line.keep(
            f"{len(wanted) - len(earlier)} runs in {len(tasks)} tasks handed to Slurm, {len(earlier)} were under way"
        )
        if not self.wait:
            return Tally(under_way=list(work.jobs))
        return self._follow(following, work)

    def _under_way(self, folder: Path, wanted: set[str]) -> list[Note]:
        """List tasks of earlier commands that are in the queue and have runs that are wanted.

        Notes of tasks that left the queue are removed. Their runs without a record are submitted again.
        """
        earlier = [note for note in notes.notes(folder) if note.launcher == NAME and wanted & set(note.runs)]
        if not earlier:
            return []
        there_are = queue.states()
        if there_are is None:
            raise ConfigError("Slurm does not answer (squeue), and earlier tasks with these runs may be under way.")
        for note in earlier:
            if note.job not in there_are:
                notes.remove(folder, note.name)
        return [note for note in earlier if note.job in there_are]

    def _hand_over(self, folder: Path, tasks: Sequence[Sequence[Job]], work: Work, attempt: int = 1) -> list[Note]:
        at_once, found = runs_on_node(self.gpus, self.cpus, work.threads), []
        made = [Task(folder, notes.new_name(), replace(work, jobs=jobs, at_once=at_once)) for jobs in tasks]
        for task, job in zip(made, self._submitted(folder, made, work.at_once), strict=True):
            found.append(Note(task.name, NAME, job, tuple(each.run_id for each in task.work.jobs), attempt))
            notes.write(folder, found[-1])
        return found

    def _submitted(self, folder: Path, tasks: Sequence[Any], at_once: int | None) -> list[str]:
        """Submit callables to Slurm, `at_once` at a time. Return their job ids."""
        if not tasks:
            return []
        import submitit

        logs = folder / "logs"
        logs.mkdir(mode=0o700, parents=True, exist_ok=True)  # who may write tasks may run code
        executor = submitit.AutoExecutor(logs, cluster="slurm", slurm_max_num_timeout=self.requeues)
        wanted = {"partition": self.partition, "account": self.account, "qos": self.qos, "constraint": self.constraint}
        executor.update_parameters(
            name=JOB_NAME,
            timeout_min=self.time_limit,
            cpus_per_task=self.cpus,
            slurm_array_parallelism=at_once or len(tasks),
            slurm_signal_delay_s=self.warning,
            slurm_srun_args=[f"--cpus-per-task={self.cpus}"],  # which srun no longer takes from sbatch
            slurm_setup=self.setup or None,
            slurm_additional_parameters={"requeue": True, **self.more},
            **({"mem_gb": self.memory} if self.memory else {}),
            **({"gpus_per_node": self.gpus} if self.gpus else {}),
            **{f"slurm_{name}": value for name, value in wanted.items() if value},
        )
        try:
            with executor.batch():  # one array; each task is what submitit asks for a checkpoint
                jobs = [executor.submit(task) for task in tasks]
        except submitit.core.utils.FailedJobError as error:
            raise ConfigError(f"Slurm refuses: {one_line(str(error))}") from error
        return [str(job.job_id) for job in jobs]

    def _follow(self, following: FollowingTasks, work: Work) -> Tally:
        silent: dict[str, float] = {}  # by task, the time since which it has no heartbeat
        while following.open:
            time.sleep(self.poll)
            there_are, now, running = queue.states(), time.monotonic(), dict[str, str]()
            for note in list(following.open.values()):
                report = following.look(note)
                if note.name not in following.open:
                    continue
                state = None if there_are is None else there_are.get(note.job, "")
                fresh = report is not None and report.age < self.silence
                if report is not None and fresh:
                    running |= report.running
                if state == "RUNNING" and not fresh:
                    patience, why = self.silence, "has been silent"
                elif state == "":
                    patience, why = _GONE, "ended without a report"
                else:
                    silent.pop(note.name, None)
                    continue
                if now - silent.setdefault(note.name, now) >= patience:
                    silent.pop(note.name)
                    self._give_up(following, note, why, work)
            queued = sum((there_are or {}).get(note.job) == "PENDING" for note in following.open.values())
            following.show(queued, running)
        return following.tally

    def _give_up(self, following: FollowingTasks, note: Note, why: str, work: Work) -> None:
        """Submit the runs that a lost task has left. After `retries` attempts, report them as failed instead."""
        queue.cancel([note.job])
        ended = queue.how_it_ended(note.job)
        event = f"Slurm job {note.job} {why}{f' ({ended})' if ended else ''}"
        left, folder = following.lost(note), following.folder
        if note.attempt > self.retries:
            for job in left:
                following.ended(job.run_id, "failed", f"{event}; see {folder / 'logs' / note.job}_0_log.err")
        elif left:
            following.line.keep(f"{event}: {len(left)} runs are handed over again")
            following.add(self._hand_over(folder, [left], work, note.attempt + 1))

"""Slurm as a launcher: submitit submits tasks of runs as one array, on a disk that all nodes share.

Near its time limit, submitit queues a task again. It skips recorded runs, and resumes a long run from its checkpoint.
After the loss of a node, Slurm does the same. A task that was killed leaves the queue without a result. Then its runs
without a record have failed, and the same command submits them again.
"""

import dataclasses
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from runner.config import ConfigError
from runner.launch.processes import Tally, Work, run_on_node
from runner.records.disk import recorded
from runner.records.jobs import Job
from runner.terminal import Line, one_line

_POLL = 10.0  # seconds between two looks at the queue
_GONE = 20.0  # seconds until the result of a task that left the queue is visible on a shared disk


@dataclasses.dataclass
class Task:
    """Runs of one node. Recorded runs are skipped, so the task can be started again at any time."""

    work: Work

    def __call__(self) -> Tally:
        return run_on_node(self.work)

    def checkpoint(self) -> Any:  # submitit queues this task again near the time limit, as runs have checkpoints
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


@dataclass(frozen=True, config={"extra": "forbid"})
class Slurm:
    """A Slurm cluster that this machine submits to. conf/launcher/slurm.yaml explains the options."""

    wait: bool
    time_limit: PositiveInt
    cpus: PositiveInt
    gpus: NonNegativeInt
    at_once: PositiveInt | None
    minutes: PositiveFloat
    requeues: NonNegativeInt
    setup: list[str]
    sbatch: dict[str, Any]

    def __post_init__(self) -> None:
        if find_spec("submitit") is None:
            raise ConfigError("it needs submitit: pip install -e '.[slurm]'.")
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise ConfigError("it needs Slurm's sbatch and srun, which are not on this machine's PATH.")

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`. Runs of earlier commands that are still in the queue are waited for as well."""
        if (queued := queued_runs(work.root)) is None:
            raise ConfigError("Slurm does not answer (squeue), and earlier tasks with these runs may be under way.")
        tasks: dict[str, list[Job]] = {}
        for job in work.jobs:
            if job.run_id in queued:
                tasks.setdefault(queued[job.run_id], []).append(job)
        new = [job for job in work.jobs if job.run_id not in queued]
        at_once = self.at_once or self.gpus or max(1, self.cpus // (work.threads or self.cpus))
        packed = pack(new, work.estimates, 60 * self.minutes * at_once, 60 * self.time_limit)
        tasks |= self._submit(packed, work, at_once)
        earlier = len(work.jobs) - len(new)
        line.keep(f"{len(new)} runs in {len(packed)} tasks handed to Slurm, {earlier} were under way")
        return follow(tasks, work.root, line) if self.wait else Tally(under_way=list(work.jobs))

    def _submit(self, packed: Sequence[list[Job]], work: Work, at_once: int) -> dict[str, list[Job]]:
        """Submit tasks as one array, `work.at_once` of them at a time. Return the jobs by Slurm's id of their task."""
        if not packed:
            return {}
        import submitit

        folder = _folder(work.root)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # who may write tasks may run code
        executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=self.requeues)
        executor.update_parameters(
            name="dp-repro-bench",
            timeout_min=self.time_limit,
            cpus_per_task=self.cpus,
            gpus_per_node=self.gpus or None,
            slurm_array_parallelism=work.at_once or len(packed),
            slurm_srun_args=[f"--cpus-per-task={self.cpus}"],  # which srun no longer takes from sbatch
            slurm_setup=self.setup or None,
            slurm_additional_parameters={"requeue": True, **self.sbatch},
        )
        tasks = [Task(dataclasses.replace(work, jobs=jobs, at_once=at_once)) for jobs in packed]
        try:
            with executor.batch():
                handles = [executor.submit(task) for task in tasks]
        except submitit.core.utils.FailedJobError as error:
            raise ConfigError(f"Slurm refuses: {one_line(str(error))}") from error
        return {str(handle.job_id): jobs for handle, jobs in zip(handles, packed, strict=True)}


def follow(tasks: dict[str, list[Job]], root: Path, line: Line) -> Tally:
    """Wait until tasks are over, given their jobs by Slurm's id. Return the outcomes of the jobs."""
    tally, last_seen = Tally(), dict[str, float]()
    while tasks:
        time.sleep(_POLL)
        states, now = queue_states(), time.monotonic()
        for task, jobs in list(tasks.items()):
            result = _result(root, task)
            if states is None or task in states:  # without an answer it may be in the queue
                last_seen[task] = now
            if result is None and now - last_seen.setdefault(task, now) <= _GONE:
                continue
            del tasks[task]
            if isinstance(result, Tally):
                tally.add(result, {job.run_id for job in jobs})
                continue
            lost = [job for job in jobs if not recorded(job.config)]
            tally.recorded += [job for job in jobs if job not in lost]
            reason = result or f"Slurm job {task} left the queue without a result; see {_folder(root)}/{task}_0_log.err"
            tally.failed += [(job, reason) for job in lost]
        running = sum((states or {}).get(task) == "RUNNING" for task in tasks)
        line.show(f"{len(tally.recorded)} runs recorded · {running} tasks run, {len(tasks) - running} wait")
    return tally


def pack(jobs: Sequence[Job], estimates: Mapping[str, float], room: float, unknown: float) -> list[list[Job]]:
    """Pack runs into tasks, in order, of at most `room` seconds or one run. A run of unknown time counts `unknown`."""
    tasks, filled = list[list[Job]](), room
    for job in jobs:
        seconds = estimates.get(job.run_id, unknown)
        if not tasks or filled + seconds > room:
            tasks.append([])
            filled = 0.0
        tasks[-1].append(job)
        filled += seconds
    return tasks


def queued_runs(root: Path) -> dict[str, str] | None:
    """Return Slurm's ids of tasks that wait or run, by run id, or None if Slurm does not answer.

    Slurm is asked only if a command has submitted runs of this folder of results.
    """
    if not (folder := _folder(root)).exists():
        return {}
    if (states := queue_states()) is None:
        return None
    import submitit

    handles: list[Any] = [submitit.SlurmJob(folder=folder, job_id=task) for task in states]
    works = {
        handle.job_id: handle.submission().function.work for handle in handles if handle.paths.submitted_pickle.exists()
    }
    return {job.run_id: task for task, work in works.items() for job in work.jobs}


def queue_states() -> dict[str, str] | None:
    """Return the states (PENDING, RUNNING, ...) of this user's jobs in the queue by id, or None without an answer.

    A task of an array is a separate job: 12_3.
    """
    command = ["squeue", "--noheader", "--array", f"--user={os.geteuid()}", "--format=%i|%T"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return {job.strip(): state for job, _, state in (line.partition("|") for line in answer.stdout.splitlines())}


def _folder(root: Path) -> Path:
    return root / ".launch" / "slurm"


def _result(root: Path, task: str) -> Tally | str | None:
    """Return the tally of a task, or the error that it raised, or None where there is no result."""
    import submitit

    handle: Any = submitit.SlurmJob(folder=_folder(root), job_id=task)
    if not handle.paths.result_pickle.exists():
        return None
    try:
        tally: Tally = handle.result()
        return tally
    except Exception as error:  # whatever the task raised, or a pickle that cannot be read
        return f"Slurm job {task} raised an error: {one_line(str(error))[:300]}"

"""Ray as a launcher: tasks of runs on the nodes of a cluster, without a shared disk.

A node executes its runs in a temporary folder, and sends each record back when the run ends. Only this process writes
records. If a node is lost, another one takes over its task, without the runs whose records have been sent back.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from runner.config import REPOSITORY, ConfigError
from runner.launch import notes
from runner.launch.away import RunFile, files_of, relocated, write_returned_files
from runner.launch.following import Following
from runner.launch.interface import runs_on_node
from runner.launch.packing import packed
from runner.launch.processes import Tally, Work
from runner.launch.task import carry_out
from runner.records.jobs import Job
from runner.terminal import Line, one_line

NAME = "ray"
Ended = tuple[str, str, str, list[RunFile]]  # a run's id, its outcome, a text about it, and its files
_CONNECTING = Lock()
_POLL = 1.0  # seconds between two requests for reports
_NOT_UPLOADED = [".git", ".venv", "results", "wandb", "tests", "docs", "**/__pycache__"]


@dataclass(frozen=True, config={"extra": "forbid"})
class Ray:
    """A Ray cluster that this machine belongs to or can reach. conf/launcher/ray.yaml explains the options."""

    address: str
    cpus: PositiveInt
    gpus: NonNegativeInt
    minutes: PositiveFloat
    retries: NonNegativeInt
    data_root: str | None
    working_dir: bool

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise ConfigError("it needs Ray: pip install -e '.[ray]'.")

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`."""
        ray = self._connected()
        with notes.noted(work.root, NAME, work.jobs) as heartbeat:
            return self._carry_out(ray, work, line, heartbeat)

    def _connected(self) -> Any:
        """Return Ray, connected to the cluster until the process ends. Several requests may use it at a time."""
        import ray

        environment = {"working_dir": str(REPOSITORY), "excludes": _NOT_UPLOADED} if self.working_dir else {}
        with _CONNECTING:
            if ray.is_initialized():
                return ray
            try:
                ray.init(self.address, runtime_env=environment, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                absent = f"There is no Ray cluster at {self.address} (ray start --head starts one)"
                raise ConfigError(f"{absent}: {one_line(str(error))}") from error
        return ray

    def _carry_out(self, ray: Any, work: Work, line: Line, heartbeat: notes.Heartbeat) -> Tally:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        # A restarted collector has lost its reports. A task returns all of its reports again when it is over.
        lasting = {"max_restarts": -1, "max_task_retries": -1}
        collector = ray.remote(Collector).options(num_cpus=0, scheduling_strategy=here, **lasting).remote()
        at_once = runs_on_node(self.gpus, self.cpus, work.threads)
        tasks = packed(work.jobs, work.estimates, self.minutes, at_once, unknown=self.minutes)
        jobs, following = {job.run_id: job for job in work.jobs}, Following(work.jobs, line)
        remote = ray.remote(_carry_out_on_node).options(  # started again elsewhere if its node or process is lost
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.retries, retry_exceptions=False
        )
        running, waiting = dict[Any, list[Job]](), list(reversed(tasks))
        line.keep(f"{len(jobs)} runs in {len(tasks)} tasks handed to Ray")
        while waiting or running:
            while waiting and (work.at_once is None or len(running) < work.at_once):
                task = waiting.pop()
                of_task = replace(work, jobs=task, at_once=at_once)
                running[remote.remote(collector, of_task, self.data_root)] = task
            over, _ = ray.wait(list(running), timeout=_POLL)
            texts, ended = ray.get(collector.take.remote())
            for run_id, text in texts.items():
                heartbeat.epoch(run_id, text)
            why = {reference: _add_returned(ray, reference, ended) for reference in over}
            for run_id, outcome, text, files in ended:
                if following.knows(run_id):
                    continue
                outcome, text = write_returned_files(files, jobs[run_id], outcome, text)
                heartbeat.ended(jobs[run_id], outcome, text)
                following.ended(run_id, outcome, text)
            for reference in over:
                for job in running.pop(reference):
                    following.ended(job.run_id, "failed", why[reference])
            following.show(len(waiting), texts)
        return following.tally


def _add_returned(ray: Any, reference: Any, ended: list[Ended]) -> str:
    """Add the runs that a finished task returns to `ended`. Return the reason for runs that are not among them."""
    try:
        ended += ray.get(reference)
    except Exception as error:  # errors of Ray, and of the task
        return f"{type(error).__name__}: {one_line(str(error))[:300]}"
    return "its task ended without a report of it"


class Collector:
    """An actor next to the command, which collects reports and files from the nodes, and outlives them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._ended: list[Ended] = []
        self._done: set[str] = set()

    def epoch(self, run_id: str, text: str) -> None:
        """Note the last epoch of a run."""
        self._texts[run_id] = text

    def ended(self, run_id: str, outcome: str, text: str, files: list[RunFile]) -> None:
        """Note that a run is over. A second report, from a node that was believed lost, is ignored."""
        if run_id not in self._done:
            self._done.add(run_id)
            self._texts.pop(run_id, None)
            self._ended.append((run_id, outcome, text, files))

    def done(self) -> set[str]:
        """Return the runs that are over."""
        return self._done

    def take(self) -> tuple[dict[str, str], list[Ended]]:
        """Return the last epochs of the runs under way, and the runs that ended since the last call."""
        ended, self._ended = self._ended, []
        return self._texts, ended


class _Reporter:
    """Watches runs on a node, and reports them to the collector."""

    def __init__(self, ray: Any, collector: Any) -> None:
        self._ray, self._collector = ray, collector
        self.all_ended: list[Ended] = []

    def began(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._collector.epoch.remote(job.run_id, "")

    def epoch(self, run_id: str, text: str) -> None:
        self._collector.epoch.remote(run_id, text)

    def ended(self, job: Job, outcome: str, text: str) -> None:
        self.all_ended.append((job.run_id, outcome, text, files_of(job)))
        self._ray.get(self._collector.ended.remote(*self.all_ended[-1]))


def _carry_out_on_node(collector: Any, work: Work, data_root: str | None) -> list[Ended]:
    """Execute on a node the runs that are not over yet, and return their outcomes and files."""
    import ray

    done = ray.get(collector.done.remote())
    with tempfile.TemporaryDirectory(prefix="dp-repro-") as folder:
        here = [relocated(job, Path(folder), data_root) for job in work.jobs if job.run_id not in done]
        reporter = _Reporter(ray, collector)
        carry_out(replace(work, jobs=here), reporter)
        return reporter.all_ended

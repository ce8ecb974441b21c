"""Ray as a launcher: tasks of runs on whatever nodes the cluster has, without a shared disk.

Every node makes its runs in a folder of its own and sends each record back as a value when the run ends; this process
alone writes them. What a lost node had under way goes to another one, without the runs that had come back.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from runner.config import REPOSITORY, ConfigError
from runner.launch import notes
from runner.launch.away import Parcel, delivered, parcels, sent
from runner.launch.following import Following
from runner.launch.interface import Work
from runner.launch.lockstep import grouped
from runner.launch.notes import Note
from runner.launch.packing import packed
from runner.launch.processes import Tally
from runner.launch.task import carry_out, until
from runner.records.jobs import Job
from runner.terminal import Line

NAME = "ray"
Ended = tuple[str, str, str, list[Parcel]]  # a run's id, its outcome, what is to be said of it, and its files
_CONNECTING = Lock()
_LOOK = 1.0  # seconds between two looks at what came back
_NOT_SENT = [".git", ".venv", "results", "wandb", "tests", "docs", "**/__pycache__"]


@dataclass(frozen=True)
class Ray:
    """A Ray cluster that this machine belongs to, or can reach. conf/launcher/ray.yaml explains the options."""

    address: str
    cpus: int
    gpus: int
    minutes: float
    retries: int
    data_root: str | None
    working_dir: bool

    def __post_init__(self) -> None:
        """Raises ValueError where an option is out of its range."""
        for name in ("cpus", "minutes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} has to be above 0")
        for name in ("gpus", "retries"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)} has to be 0 or more")

    def check(self, wait: bool) -> None:
        """Raise ConfigError where the command is not to stay, or Ray is not installed."""
        if not wait:
            raise ConfigError("WAIT=no is not for the launcher ray, whose records come back to this command.")
        if find_spec("ray") is None:
            raise ConfigError("The launcher ray needs Ray: pip install -e '.[ray]'.")

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`."""
        folder, name = notes.folder_of(work.root), notes.new_name()
        note = Note(name, NAME, "", tuple(job.run_id for job in work.jobs))
        ray = self._connected()
        notes.write(folder, note)
        try:
            with notes.Beat(folder, name) as beat:
                return self._carry_out(ray, work, line, beat)
        finally:
            notes.remove(folder, name)

    def _connected(self) -> Any:
        """Return Ray, connected to the cluster until the process ends, which several requests may use at a time.

        Raises:
            ConfigError: there is no cluster at the address.
        """
        import ray

        environment = {"working_dir": str(REPOSITORY), "excludes": _NOT_SENT} if self.working_dir else {}
        with _CONNECTING:
            if ray.is_initialized():
                return ray
            try:
                ray.init(self.address, runtime_env=environment, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                said = " ".join(str(error).split())
                raise ConfigError(
                    f"There is no Ray cluster at {self.address} (ray start --head starts one): {said}"
                ) from error
        return ray

    def _remote(self, ray: Any, function: Any) -> Any:
        """A function as Ray starts it: again, on another node, where its node or process is lost."""
        return ray.remote(function).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.retries, retry_exceptions=False
        )

    def _carry_out(self, ray: Any, work: Work, line: Line, beat: notes.Beat) -> Tally:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        # Started again it has forgotten what it was told; but tasks bring that with them, too, when they are over.
        lasting = {"max_restarts": -1, "max_task_retries": -1}
        desk = ray.remote(Desk).options(num_cpus=0, scheduling_strategy=here, **lasting).remote()
        at_once = self.gpus or max(1, self.cpus // (work.threads or self.cpus))
        tasks = [
            tuple(job for group in task for job in group)
            for task in packed(grouped(work.jobs), work.estimates, self.minutes, at_once, unknown=self.minutes)
        ]
        jobs, following = {job.run_id: job for job in work.jobs}, Following(Path(), work.jobs, line)
        remote, end, waiting = self._remote(ray, _carry_out_away), until(work.deadline), list(reversed(tasks))
        running: dict[Any, tuple[Job, ...]] = {}
        line.keep(f"{len(jobs)} runs in {len(tasks)} tasks handed to Ray")
        while waiting or running:
            while waiting and (work.at_once is None or len(running) < work.at_once):
                task = waiting.pop()
                running[remote.remote(desk, task, at_once, work.threads, work.estimates, end, self.data_root)] = task
            over, _ = ray.wait(list(running), timeout=_LOOK)
            texts, came = ray.get(desk.taken.remote())
            for run_id, text in texts.items():
                beat.epoch(run_id, text)
            why = {reference: _brought(ray, reference, came) for reference in over}
            for run_id, outcome, text, sent_back in came:
                if following.knows(run_id):
                    continue
                outcome, text = delivered(sent_back, jobs[run_id], outcome, text)
                beat.ended(jobs[run_id], outcome, text)
                following.ended(run_id, outcome, text)
            for reference in over:
                for job in running.pop(reference):
                    following.failed(job, why[reference])
            following.show(len(waiting), texts)
        return following.tally


def _brought(ray: Any, reference: Any, came: list[Ended]) -> str:
    """Add what a task that is over brings with it. Returns why runs of it that are not among that did not come back."""
    try:
        came += ray.get(reference)
    except Exception as error:  # Ray's own kinds, and what the task raised
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return "its task did not say what became of it"


class Desk:
    """Files from the nodes, sent at once to an actor next to the command, which outlives them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._came: list[Ended] = []
        self._done: set[str] = set()

    def epoch(self, run_id: str, text: str) -> None:
        """An epoch of a run is done."""
        self._texts[run_id] = text

    def ended(self, run_id: str, outcome: str, text: str, came: list[Parcel]) -> None:
        """A run is over. Said twice, by a node that was thought to be lost, it is over once."""
        if run_id not in self._done:
            self._done.add(run_id)
            self._texts.pop(run_id, None)
            self._came.append((run_id, outcome, text, came))

    def done(self) -> set[str]:
        """The runs that are over."""
        return self._done

    def taken(self) -> tuple[dict[str, str], list[Ended]]:
        """The last epochs of what is computed, and what ended since the last call."""
        came, self._came = self._came, []
        return self._texts, came


class _Messenger:
    """Watches runs on a node, and hands in what they say."""

    def __init__(self, ray: Any, desk: Any) -> None:
        self._ray, self._desk = ray, desk
        self.every: list[Ended] = []

    def began(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._desk.epoch.remote(job.run_id, "")

    def epoch(self, run_id: str, text: str) -> None:
        self._desk.epoch.remote(run_id, text)

    def ended(self, job: Job, outcome: str, text: str) -> None:
        self.every.append((job.run_id, outcome, text, parcels(job)))
        self._ray.get(self._desk.ended.remote(*self.every[-1]))


def _carry_out_away(
    desk: Any,
    jobs: tuple[Job, ...],
    at_once: int,
    threads: int | None,
    estimates: dict[str, float],
    end: float | None,
    data_root: str | None,
) -> list[Ended]:
    """On a node: make the runs that have not come back yet."""
    import ray

    done = ray.get(desk.done.remote())
    with tempfile.TemporaryDirectory(prefix="dp-repro-") as folder:
        here = tuple(sent(job, Path(folder), data_root) for job in jobs if job.run_id not in done)
        messenger = _Messenger(ray, desk)
        carry_out(here, at_once, threads, estimates, end, messenger)
        return messenger.every

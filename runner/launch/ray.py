"""Ray as a launcher: each run is a task, on a disk that all nodes share.

If a node or a process is lost, Ray starts its run again elsewhere, a few times. A long run resumes from its checkpoint.
"""

import logging
from collections import deque
from dataclasses import replace
from importlib.util import find_spec
from threading import Lock
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from runner.config import ConfigError
from runner.launch.processes import Tally, Work, run_on_node
from runner.records.jobs import Job
from runner.terminal import Line, one_line

_CONNECTING = Lock()


@dataclass(frozen=True, config={"extra": "forbid"})
class Ray:
    """A Ray cluster that this machine belongs to or can reach. conf/launcher/ray.yaml explains the options."""

    address: str
    cpus: PositiveInt
    gpus: NonNegativeFloat
    retries: NonNegativeInt

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise ConfigError("it needs Ray: pip install -e '.[ray]'.")

    def carry_out(self, work: Work, line: Line) -> Tally:
        """See `Launcher`. At most `work.at_once` runs are at Ray at a time."""
        import ray

        with _CONNECTING:  # until the process ends; several requests may use it at a time
            try:
                ray.init(self.address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
            except (ConnectionError, ValueError, RuntimeError) as error:
                absent = f"There is no Ray cluster at {self.address} (ray start --head starts one)"
                raise ConfigError(f"{absent}: {one_line(str(error))}") from error
        remote = ray.remote(run_on_node).options(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.retries, retry_exceptions=False
        )
        line.keep(f"{len(work.jobs)} runs handed to Ray")
        tally, waiting, running = Tally(), deque(work.jobs), dict[Any, Job]()
        while waiting or running:
            while waiting and len(running) < (work.at_once or len(work.jobs)):
                job = waiting.popleft()
                running[remote.remote(replace(work, jobs=[job], at_once=1))] = job
            over, _ = ray.wait(list(running))
            for reference in over:
                job = running.pop(reference)
                try:
                    result: Tally = ray.get(reference)
                except Exception as error:  # errors of Ray and of the task
                    result = Tally(failed=[(job, f"{type(error).__name__}: {one_line(str(error))[:300]}")])
                tally.add(result, {job.run_id})
                outcome = "recorded" if result.recorded else result.failed[0][1] if result.failed else "not started"
                left = len(waiting) + len(running)
                line.keep(f"{left} of {len(work.jobs)} runs left · {job.sweep} {job.label} · {outcome}")
        return tally

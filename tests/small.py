"""What makes the runs of tests small: overrides, and a way without processes."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from runner.accounting import accountants, sound_epsilon
from runner.launch.processes import Tally, Work
from runner.runs.execute import execute
from runner.terminal import one_line

NETWORK = ("architecture.filters=[3,4]", "architecture.units=5")
FEW_STEPS = (*NETWORK, "batch_size=240", "scale.batch_size=240", "epochs=2")
LIPSCHITZ = ("architecture=lipschitz_mlp", "architecture.units=[6]", "activation=group_sort", "features=bounded")


@contextmanager
def coarse_grid() -> Iterator[None]:
    """Compute sound ε on a grid that takes an eighth of the time. It is a bound, too, and less than 0.1% larger."""
    with patch.multiple(accountants, _RELEASE_POINTS=5_000, ANSWERS={}):
        sound_epsilon.cache_clear()
        yield
    sound_epsilon.cache_clear()


def run_here(work: Work, line: object = None, devices: Sequence[str] = ()) -> Tally:
    """Do what `run_processes` does, in this process: a process of its own takes seconds to begin."""
    tally = Tally()
    for job in work.jobs:
        if work.deadline is not None and time.time() + work.estimates.get(job.run_id, 0.0) > work.deadline:
            tally.not_started.append(job)
            continue
        job.config.runtime.threads = job.config.runtime.threads or work.threads
        try:
            execute(job.config, lambda row, run: None)
            tally.recorded.append(job)
        except Exception as error:
            tally.failed.append((job, one_line(f"{type(error).__name__}: {error}")))
    return tally

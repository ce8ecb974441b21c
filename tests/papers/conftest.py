"""Records of Losing Less."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.records.jobs import Job


@pytest.fixture
def record(tmp_path, fabricate, jobs) -> Callable[..., Path]:
    """`record("fig_3", "mnist_ours", [90.0, 98.0], seed=1, ...)`: fabricate one run's record."""

    def write(sweep: str, experiment: str, accuracy=(90.0,), seed: int = 0, only=None, **given) -> Path:
        def matches(job: Job) -> bool:
            return job.config.seed == seed and (only is None or job.overrides[only[0]] == only[1])

        return fabricate(next(filter(matches, jobs(sweep, experiment, paper="losing_less"))), list(accuracy), **given)

    return write

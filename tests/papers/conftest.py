"""Records of Losing Less."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def record(tmp_path, fabricate, jobs) -> Callable[..., Path]:
    """`record("fig_3", "mnist_ours", [90.0, 98.0], seed=1, ...)`: fabricate one run's record."""

    def write(sweep: str, experiment: str, accuracy=(90.0,), seed: int = 0, **given) -> Path:
        (job,) = (job for job in jobs(sweep, experiment, paper="losing_less") if job.config.seed == seed)
        return fabricate(job, list(accuracy), **given)

    return write

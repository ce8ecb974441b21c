"""Sweeps list runs. `make current` checks that the committed tables are those that the committed records give."""

from __future__ import annotations

import pytest

from runner.config import REPOSITORY
from runner.records.jobs import sweep_jobs

SWEEPS = sorted(
    path.relative_to(REPOSITORY / "sweeps").with_suffix("").as_posix()
    for path in (REPOSITORY / "sweeps").rglob("*.yaml")
)


def test_there_are_sweeps() -> None:
    assert len(SWEEPS) >= 97


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_sweep_lists_runs(sweep: str) -> None:
    jobs = sweep_jobs(sweep)
    assert len({job.run_id for job in jobs}) == len(jobs) >= 1
    for name in {job.experiment for job in jobs}:
        assert (REPOSITORY / f"conf/experiment/{name}.yaml").exists()
        assert "/base_" not in name

"""Jobs of the smoke scale, and a line to say things on."""

import copy
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.records.identity import resolved
from runner.records.jobs import Job, sweep_jobs
from runner.terminal import Line

Jobs = Callable[..., list[Job]]


@pytest.fixture
def smoke_jobs(tmp_path: Path) -> Jobs:
    """`smoke_jobs(3)`: short runs with results in the test's folder; `smoke_jobs(3, r1="a.Loss")`: one with a loss."""
    small = ("scale=smoke", "scale.epochs=1", "scale.batch_size=240", "tracking=disabled")

    def make(count: int, device: str = "cpu", **losses: str) -> list[Job]:
        listed = sweep_jobs("tempered_sigmoid/text_sgd", small)[:count]
        jobs = []
        for place, job in enumerate(listed):
            config = copy.deepcopy(job.config)
            config.runtime.results_root, config.runtime.device = str(tmp_path), device
            config.loss._target_ = losses.get(f"r{place}", config.loss._target_)
            jobs.append(Job.of(job.sweep, job.overrides, resolved(config)))
        return jobs

    return make


@pytest.fixture
def output() -> io.StringIO:
    """The stream that the progress line writes to."""
    return io.StringIO()


@pytest.fixture
def line(output: io.StringIO) -> Line:
    return Line(output)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`commands(squeue="exit 1")`: scripts in the place of programs; what they were asked is kept in a file."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()

    def make(**scripts: str) -> Path:
        for name, script in scripts.items():
            path = tmp_path / "bin" / name
            path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{script}\n')
            path.chmod(0o755)
        return tmp_path / "asked"

    return make

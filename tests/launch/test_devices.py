"""This machine as a launcher: which worker sees which GPU, all of them faked, and what another terminal is told."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.launch import devices, notes, run_jobs
from runner.launch import processes as local
from runner.launch.devices import to_share, visible, workers
from runner.launch.local import Local
from runner.launch.notes import Heartbeat, Note
from runner.launch.processes import Tally, Work
from runner.launch.status import states
from runner.terminal import Line


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`gpus(2)`: PyTorch finds two; `gpus(2, "3,5")`: these."""

    def fake(count: int, named: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        if named is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)

    return fake


def test_the_gpus_are_those_that_this_process_may_see(gpus, smoke_jobs) -> None:
    gpus(2, "3, GPU-8a1b")
    assert visible() == ["3", "GPU-8a1b"]
    assert to_share(smoke_jobs(4, "cuda")) == ["3", "GPU-8a1b"]


@pytest.mark.parametrize("device", ["cuda:1", "cpu"])
def test_a_device_that_is_named_is_the_one_that_all_see(gpus, smoke_jobs, device: str) -> None:
    gpus(2)
    assert to_share(smoke_jobs(4, device)) == []
    assert workers(smoke_jobs(4, device)) == 1


def test_one_gpu_or_none_is_not_shared_out(gpus, smoke_jobs, monkeypatch) -> None:
    gpus(1)
    assert (to_share(smoke_jobs(4, "auto")), workers(smoke_jobs(4, "auto"))) == ([], 1)
    gpus(0)
    monkeypatch.setattr(devices.os, "cpu_count", lambda: 64)
    assert (to_share(smoke_jobs(4, "auto")), workers(smoke_jobs(4, "auto"))) == ([], 8)


def test_workers_at_the_same_time_have_different_devices(smoke_jobs, monkeypatch) -> None:
    """Two at a time over two devices: never twice the same, and one that is given back is used again."""
    there: list[str | None] = []
    used: list[str | None] = []

    def start(job: Any, threads: Any, number: int, *, device: str | None) -> Any:
        there.append(device)
        used.append(device)
        assert len(set(there)) == len(there)
        started = real(job, threads, number, device=device)
        ended = started.process.join
        started.process.join = lambda: (ended(), there.remove(device))
        return started

    real = local.start
    monkeypatch.setattr(local, "start", start)
    jobs = smoke_jobs(3)
    tally = local.run_processes(Work(jobs, 2), Line(io.StringIO()), devices=["5", "7"])
    assert len(tally.recorded) == 3
    assert set(used) == {"5", "7"}


def test_a_worker_sees_its_device_alone(smoke_jobs) -> None:
    """Its process is asked: by a loss that raises what the environment says."""
    (job,) = smoke_jobs(1, r0="tests.failing.SaysItsDevice")
    tally = local.run_processes(Work([job], 1), Line(io.StringIO()), devices=["7"])
    assert tally.failed[0][1] == "RuntimeError: CUDA_VISIBLE_DEVICES=7"


@pytest.fixture
def asked(monkeypatch) -> dict[str, Any]:
    """Arguments of `runner.launch.processes.run_processes`, which runs nothing here."""
    found: dict[str, Any] = {}

    def fake(work: Work, line: Line, *, devices: Any, watch: Heartbeat) -> Tally:
        jobs = work.jobs
        found.update(at_once=work.at_once, devices=devices, threads=work.threads)
        watch.began(jobs[:1])
        watch.epoch(jobs[0].run_id, "epoch 2/3")
        watch.write()
        found["states"] = states(jobs)
        return Tally(recorded=list(jobs))

    monkeypatch.setattr(local, "run_processes", fake)
    return found


def test_three_gpus_have_three_workers_and_jobs_may_say_otherwise(asked, smoke_jobs, line, gpus) -> None:
    gpus(3)
    run_jobs(Local(), Work(smoke_jobs(2, "auto")), line)
    assert (asked["at_once"], asked["devices"], asked["threads"]) == (3, ["0", "1", "2"], 1)
    run_jobs(Local(), Work(smoke_jobs(2, "auto"), at_once=6), line)
    assert (asked["at_once"], asked["devices"]) == (6, ["0", "1", "2"])


def test_another_command_is_told_how_far_it_is(asked, smoke_jobs, line, tmp_path: Path) -> None:
    first, second = smoke_jobs(2)
    run_jobs(Local(), Work([first, second]), line)
    assert asked["states"][first.run_id].text == "epoch 2/3"
    assert asked["states"][second.run_id].kind == "queued"
    assert not list(notes.folder_of(tmp_path).glob("*.*-*"))
    assert notes.notes(notes.folder_of(tmp_path)) == []


def test_where_notes_cannot_be_written_runs_are_made_all_the_same(asked, smoke_jobs, line, tmp_path: Path) -> None:
    notes.folder_of(tmp_path).write_text("no folder")
    assert len(run_jobs(Local(), Work(smoke_jobs(1)), line).recorded) == 1


def test_what_a_command_that_was_killed_left_behind_is_forgotten(asked, smoke_jobs, line, tmp_path: Path) -> None:
    (job,) = smoke_jobs(1)
    folder = notes.folder_of(tmp_path)
    notes.write(folder, Note("1", "local", "", (job.run_id,)))
    with suppress(SystemExit), Heartbeat(folder, "1") as heartbeat:
        heartbeat.began([job])
        raise SystemExit
    os.utime(folder / "1.beat", (0, (folder / "1.beat").stat().st_mtime - 2 * notes.SILENT))
    assert states([job])[job.run_id].kind == "lost"
    run_jobs(Local(), Work([job]), line)
    assert notes.notes(folder) == []

"""This machine as a launcher: each GPU has its worker, and another terminal can ask how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from runner.launch import notes, run_jobs
from runner.launch import processes as local
from runner.launch.local import Local
from runner.launch.notes import Heartbeat
from runner.launch.processes import Tally, Work
from runner.launch.status import states
from runner.terminal import Line


@pytest.fixture
def asked(monkeypatch) -> dict[str, Any]:
    """Arguments of `runner.launch.processes.run_jobs`, which runs nothing here."""
    found: dict[str, Any] = {}

    def fake(work: Work, line: Line, *, devices: Any, watch: Heartbeat) -> Tally:
        jobs = work.jobs
        found.update(at_once=work.at_once, devices=devices, threads=work.threads)
        watch.began(jobs[:1])
        watch.epoch(jobs[0].run_id, "epoch 2/3")
        watch.write()
        found["states"] = states(jobs)
        return Tally(recorded=list(jobs))

    monkeypatch.setattr(local, "run_jobs", fake)
    return found


def test_three_gpus_have_three_workers_and_jobs_may_say_otherwise(asked, smoke_jobs, line, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
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

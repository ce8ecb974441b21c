"""Output of Slurm's commands is read. A cluster without accounting, or out of reach, is no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.launch import queue


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch):
    """`slurm(squeue="...")`: commands of these names that print this; None: that fail."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(**said: str | None) -> Path:
        for name in ("squeue", "sacct", "scancel"):
            text = said.get(name)
            ends = "exit 1" if text is None else f"printf '%s' '{text}'"
            path = tmp_path / name
            path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{ends}\n')
            path.chmod(0o755)
        return tmp_path / "asked"

    return make


def test_states_are_by_task_of_an_array(slurm) -> None:
    asked = slurm(squeue="12_0|RUNNING\n12_1|PENDING\n9|COMPLETING\n")
    assert queue.states() == {"12_0": "RUNNING", "12_1": "PENDING", "9": "COMPLETING"}
    assert "--array" in asked.read_text()
    slurm(squeue="")
    assert queue.states() == {}


def test_no_answer_is_not_an_empty_queue(slurm, monkeypatch) -> None:
    slurm(squeue=None)
    assert queue.states() is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert queue.states() is None


@pytest.mark.parametrize(
    ("said", "ended"),
    [("NODE_FAIL|0:0\n", "NODE_FAIL"), ("FAILED|0:9\n", "FAILED 0:9"), ("", ""), (None, "")],
)
def test_how_a_job_ended_where_there_are_accounts(slurm, said: str | None, ended: str) -> None:
    slurm(sacct=said)
    assert queue.how_it_ended("12_0") == ended


def test_nothing_is_cancelled_where_nothing_is_named(slurm) -> None:
    asked = slurm(scancel="")
    queue.cancel([])
    assert not asked.exists(), "without a name, scancel may mean all"
    queue.cancel(["12_0", "12_1"])
    assert asked.read_text() == "12_0 12_1\n"

"""Output of Slurm's commands is read. A cluster without accounting, or out of reach, is no error."""

from __future__ import annotations

import pytest

from runner.launch import queue


def test_states_are_by_task_of_an_array(commands) -> None:
    asked = commands(squeue="echo '12_0|RUNNING'; echo '12_1|PENDING'; echo '9|COMPLETING'")
    assert queue.states() == {"12_0": "RUNNING", "12_1": "PENDING", "9": "COMPLETING"}
    assert "--array" in asked.read_text()
    commands(squeue="")
    assert queue.states() == {}


def test_no_answer_is_not_an_empty_queue(commands, monkeypatch) -> None:
    commands(squeue="exit 1")
    assert queue.states() is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert queue.states() is None


@pytest.mark.parametrize(
    ("said", "ended"),
    [("echo 'NODE_FAIL|0:0'", "NODE_FAIL"), ("echo 'FAILED|0:9'", "FAILED 0:9"), ("", ""), ("exit 1", "")],
)
def test_how_a_job_ended_where_there_are_accounts(commands, said: str, ended: str) -> None:
    commands(sacct=said)
    assert queue.how_it_ended("12_0") == ended


def test_nothing_is_cancelled_where_nothing_is_named(commands) -> None:
    asked = commands(scancel="")
    queue.cancel([])
    assert not asked.exists(), "without a name, scancel may mean all"
    queue.cancel(["12_0", "12_1"])
    assert asked.read_text() == "12_0 12_1\n"

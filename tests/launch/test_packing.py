"""Tasks: not too short for a scheduler, not longer than they may be, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.launch.packing import packed


def jobs(count: int) -> list[Any]:
    return [SimpleNamespace(run_id=f"{number}") for number in range(count)]


def ids(tasks: Any) -> list[list[str]]:
    return [[job.run_id for job in task] for task in tasks]


DEAR = {"0": 600.0, "1": 7200.0, "2": 600.0, "3": 600.0}


@pytest.mark.parametrize(
    ("count", "seconds", "minutes", "at_once", "unknown", "tasks"),
    [
        (14, dict.fromkeys(map(str, range(14)), 600.0), 60, 1, 240, ["0-5", "6-11", "12-13"]),
        (12, dict.fromkeys(map(str, range(12)), 600.0), 60, 2, 240, ["0-11"]),
        (4, DEAR, 60, 1, 240, ["0-0", "1-1", "2-3"]),
        (4, {"0": 600.0, "2": 600.0, "3": 600.0}, 60, 1, 240, ["0-0", "1-1", "2-3"]),
        (3, {}, 60, 4, 240, ["0-0", "1-1", "2-2"]),
        (3, {}, 30, 2, 30, ["0-1", "2-2"]),
    ],
    ids=["six of ten minutes", "two at a time", "a dear one", "unknown", "all unknown", "the longest"],
)
def test_tasks_by_hand(count, seconds, minutes, at_once, unknown, tasks) -> None:
    found = ids(packed(jobs(count), seconds, minutes, at_once=at_once, unknown=unknown))
    assert [f"{task[0]}-{task[-1]}" for task in found] == tasks
    assert [run_id for task in found for run_id in task] == [f"{n}" for n in range(count)]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # for a loaded machine
@given(st.lists(st.floats(0, 1800), max_size=40))
def test_of_cheap_runs_all_tasks_but_the_last_take_half_an_hour_to_an_hour(costs: list[float]) -> None:
    seconds = {f"{n}": cost for n, cost in enumerate(costs)}
    tasks = ids(packed(jobs(len(costs)), seconds, 60, unknown=240))
    totals = [sum(seconds[run_id] for run_id in task) for task in tasks]
    assert all(total <= 3600 for total in totals)
    assert all(total >= 1800 for total in totals[:-1])
    assert [run_id for task in tasks for run_id in task] == list(seconds)

"""Tasks: not too short for a scheduler, not longer than they may be, in order, and no group apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runner.launch.packing import packed


def groups_of(*sizes: int) -> list[Any]:
    numbers = iter(range(sum(sizes)))
    return [tuple(SimpleNamespace(run_id=f"{next(numbers)}") for _ in range(size)) for size in sizes]


def ids(tasks: Any) -> list[list[str]]:
    return [[job.run_id for job in task] for task in tasks]


def test_an_hour_holds_six_runs_of_ten_minutes() -> None:
    tasks = packed(groups_of(*[1] * 14), {f"{n}": 600.0 for n in range(14)}, 60, unknown=240)
    assert [len(task) for task in tasks] == [6, 6, 2]


def test_a_dear_run_is_alone_and_nothing_is_out_of_order() -> None:
    seconds = {"0": 600.0, "1": 7200.0, "2": 600.0, "3": 600.0}
    assert ids(packed(groups_of(1, 1, 1, 1), seconds, 60, unknown=240)) == [["0"], ["1"], ["2", "3"]]


def test_a_lockstep_is_not_torn_and_counts_whole() -> None:
    seconds = {f"{n}": 1000.0 for n in range(6)}
    assert ids(packed(groups_of(3, 3), seconds, 60, unknown=240)) == [["0", "1", "2"], ["3", "4", "5"]]


def test_two_at_a_time_take_twice_as_many() -> None:
    assert len(packed(groups_of(*[1] * 12), {f"{n}": 600.0 for n in range(12)}, 60, at_once=2, unknown=240)) == 1


def test_runs_of_unknown_time_count_as_the_longest_that_a_task_may_take() -> None:
    assert ids(packed(groups_of(1, 1, 2, 1), {"0": 600.0, "2": 600.0, "4": 600.0}, 60, unknown=240)) == [
        ["0"], ["1"], ["2", "3"], ["4"],
    ]  # fmt: skip
    assert ids(packed(groups_of(1, 1, 1), {}, 60, at_once=4, unknown=240)) == [["0"], ["1"], ["2"]]
    assert ids(packed(groups_of(1, 1, 1), {}, 30, at_once=2, unknown=30)) == [["0", "1"], ["2"]]


@given(st.lists(st.floats(0, 1800), max_size=40))
def test_of_cheap_runs_all_tasks_but_the_last_take_half_an_hour_to_an_hour(costs: list[float]) -> None:
    seconds = {f"{n}": cost for n, cost in enumerate(costs)}
    tasks = ids(packed(groups_of(*[1] * len(costs)), seconds, 60, unknown=240))
    totals = [sum(seconds[run_id] for run_id in task) for task in tasks]
    assert all(total <= 3600 for total in totals)
    assert all(total >= 1800 for total in totals[:-1])
    assert [run_id for task in tasks for run_id in task] == list(seconds)

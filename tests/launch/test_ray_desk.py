"""What nodes of a Ray cluster hand in, and what is asked of Ray. (The real one: `make cluster`.)"""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from runner.cli.commands import carry_out
from runner.launch.away import delivered, parcels
from runner.launch.ray import Desk
from runner.launch.task import NOT_STARTED
from tests.conftest import Fabricate


def test_a_run_that_two_nodes_hand_in_is_over_once() -> None:
    desk = Desk()
    desk.epoch("a", "epoch 1/3")
    assert desk.taken() == ({"a": "epoch 1/3"}, [])
    for _ in range(2):
        desk.ended("a", "finished", "", [])
    assert desk.done() == {"a"}
    assert desk.taken() == ({}, [("a", "finished", "", [])])
    desk.ended("a", "finished", "", [])
    assert desk.taken() == ({}, [])


def test_what_came_back_broken_is_a_failed_run(smoke_jobs, fabricate: Fabricate) -> None:
    (job,) = smoke_jobs(1)
    path = fabricate(job, [50.0])
    (parcel,) = parcels(job)
    path.unlink()
    assert delivered([], job, "finished", "") == ("failed", "no record came back")
    assert delivered([], job, NOT_STARTED, "") == (NOT_STARTED, "")
    outcome, why = delivered([replace(parcel, content=parcel.content.replace("50.0", "60.0", 1))], job, "finished", "")
    assert outcome == "failed"
    assert why.startswith("what came back is no record")
    assert not path.exists()
    assert delivered([parcel], job, "finished", "well") == ("finished", "well")
    assert path.exists()


@pytest.mark.slow
def test_an_address_where_no_cluster_is_gives_one_sentence(tmp_path, capsys) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no Ray")
    request = ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-4", "--launcher", "ray", "launcher.address=auto"]
    assert carry_out("reproduce", [*request, f"runtime.results_root={tmp_path}"]) == 2
    assert "There is no Ray cluster at auto" in capsys.readouterr().err.splitlines()[-1]

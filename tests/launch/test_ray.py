"""Reports of a Ray cluster's nodes, and requests to Ray. `make cluster` tests a real cluster."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from runner.cli.commands import carry_out
from runner.launch.away import files_of, write_returned_files
from runner.launch.ray import Collector
from runner.launch.task import NOT_STARTED


def test_a_run_that_two_nodes_report_is_over_once() -> None:
    collector = Collector()
    collector.epoch("a", "epoch 1/3")
    assert collector.take() == ({"a": "epoch 1/3"}, [])
    for _ in range(2):
        collector.ended("a", "finished", "", [])
    assert collector.done() == {"a"}
    assert collector.take() == ({}, [("a", "finished", "", [])])
    collector.ended("a", "finished", "", [])
    assert collector.take() == ({}, [])


def test_a_run_with_a_damaged_record_fails(smoke_jobs, fabricate) -> None:
    (job,) = smoke_jobs(1)
    path = fabricate(job, [50.0])
    (file,) = files_of(job)
    path.unlink()
    assert write_returned_files([], job, "finished", "") == ("failed", "it sent no record back")
    assert write_returned_files([], job, NOT_STARTED, "") == (NOT_STARTED, "")
    outcome, why = write_returned_files(
        [replace(file, content=file.content.replace("50.0", "60.0", 1))], job, "finished", ""
    )
    assert outcome == "failed"
    assert why.startswith("its record is not valid")
    assert not path.exists()
    assert write_returned_files([file], job, "finished", "well") == ("finished", "well")
    assert path.exists()


def test_an_address_where_no_cluster_is_gives_one_sentence(tmp_path, capsys) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no Ray")
    request = ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-4", "--launcher", "ray", "launcher.address=auto"]
    assert carry_out("reproduce", [*request, f"runtime.results_root={tmp_path}"]) == 2
    assert "There is no Ray cluster at auto" in capsys.readouterr().err.splitlines()[-1]

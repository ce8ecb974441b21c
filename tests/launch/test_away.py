"""Records that nodes send back, and reports of a Ray cluster. `make cluster` tests a real one."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli.commands import carry_out
from runner.launch.away import RunFile, files_of, relocated, write_returned_file, write_returned_files
from runner.launch.processes import NOT_STARTED
from runner.launch.ray import Collector
from runner.records.files import dumps, failure_path, read_record, record_path, recorded, results_folder
from runner.records.provenance import LOADED_REVISION
from runner.runs.execute import execute


@pytest.fixture
def returned(smoke_jobs, fabricate):
    """A job, and the files that it sent back."""
    (job,) = smoke_jobs(1)
    path = fabricate(job, [50.0])
    found = files_of(job)
    path.unlink()
    return job, found


def test_a_record_comes_back_byte_for_byte_and_is_written_once(smoke_jobs, tmp_path: Path) -> None:
    (job,) = smoke_jobs(1)
    away = relocated(job, tmp_path / "node", "/somewhere/else")
    assert away.run_id == job.run_id
    assert execute(away.config, lambda row, run: None) == "finished"
    (file,) = files_of(away)
    path = record_path(results_folder(job.config), job.run_id)
    assert not path.exists(), "a node writes nothing here"
    failed = failure_path(results_folder(job.config), job.run_id)
    failed.parent.mkdir(parents=True)
    failed.write_text("{}")
    write_returned_file(file, job)
    assert path.read_text() == file.content
    assert recorded(job.config)
    assert not failed.exists()
    before = path.stat()
    write_returned_file(file, job)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [('"status": "finished"', '"status": "diverged"', 0), ("}\n", "\n", 0), ("", "", 1)],
    ids=["edited", "cut off", "of another run"],
)
def test_what_is_no_whole_record_of_the_run_is_refused(returned, smoke_jobs, old: str, new: str, place: int) -> None:
    _, (file,) = returned
    job = smoke_jobs(2)[place]
    assert old in file.content
    with pytest.raises(ValueError, match=r"not a whole record|delimiter"):
        write_returned_file(replace(file, content=file.content.replace(old, new)), job)
    assert not recorded(job.config)


def test_a_node_without_git_history_records_the_revision_of_this_machine(returned) -> None:
    job, (file,) = returned
    if LOADED_REVISION is None:
        pytest.skip("no git checkout")
    record = json.loads(file.content)
    record["provenance"]["git_revision"] = None
    write_returned_file(RunFile("runs", dumps(record)), job)
    assert read_record(record_path(results_folder(job.config), job.run_id))["provenance"]["git_revision"] == (
        LOADED_REVISION
    )


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

"""Records that come back as values: written once, by whoever has the results folder, and only if they are whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runner.launch.away import Parcel, deliver, parcels, sent
from runner.records.files import dumps, failure_path, read_record, record_path, recorded, results_folder
from runner.records.provenance import LOADED_REVISION
from runner.runs.execute import execute
from tests.conftest import Fabricate


@pytest.fixture
def came(smoke_jobs, fabricate: Fabricate):
    """A job, and what came back of it."""
    (job,) = smoke_jobs(1)
    path = fabricate(job, [50.0])
    found = parcels(job)
    path.unlink()
    return job, found


def test_a_record_comes_back_byte_for_byte_and_is_written_once(smoke_jobs, tmp_path: Path) -> None:
    (job,) = smoke_jobs(1)
    away = sent(job, tmp_path / "node", "/somewhere/else")
    assert away.run_id == job.run_id
    assert execute(away.config, lambda row, run: None) == "finished"
    (parcel,) = parcels(away)
    path = record_path(results_folder(job.config), job.run_id)
    assert not path.exists(), "a node writes nothing here"
    failed = failure_path(results_folder(job.config), job.run_id)
    failed.parent.mkdir(parents=True)
    failed.write_text("{}")
    deliver(parcel, job)
    assert path.read_text() == parcel.content
    assert recorded(job.config)
    assert not failed.exists()
    before = path.stat()
    deliver(parcel, job)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(("old", "new"), [('"status": "finished"', '"status": "diverged"'), ("}\n", "\n")])
def test_what_is_no_whole_record_is_refused(came, old: str, new: str) -> None:
    job, (parcel,) = came
    assert old in parcel.content
    with pytest.raises(ValueError, match=r"not a whole record|delimiter"):
        deliver(replace(parcel, content=parcel.content.replace(old, new)), job)
    assert not recorded(job.config)


def test_a_record_is_not_filed_as_another_run(came, smoke_jobs) -> None:
    _, (parcel,) = came
    other = smoke_jobs(2)[1]
    with pytest.raises(ValueError, match="its run_id is not its file's name"):
        deliver(parcel, other)


def test_code_that_was_sent_is_of_the_revision_here(came) -> None:
    job, (parcel,) = came
    if LOADED_REVISION is None:
        pytest.skip("no git checkout")
    record = json.loads(parcel.content)
    record["provenance"]["git_revision"] = None
    deliver(Parcel("runs", dumps(record)), job)
    assert read_record(record_path(results_folder(job.config), job.run_id))["provenance"]["git_revision"] == (
        LOADED_REVISION
    )

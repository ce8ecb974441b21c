"""`make status-PAPER` counts runs recorded, running, failed, queued or left, by files, claims and Slurm's queue."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli import reproduce
from runner.cli.commands import carry_out
from runner.cli.reproduce import states, status_text
from runner.config import REPOSITORY, RESULTS
from runner.records.files import claim, failure_path, progress, results_folder, write_progress
from runner.records.jobs import Job


def test_every_kind_of_run_is_counted(tmp_path: Path, smoke_jobs, fabricate, monkeypatch) -> None:
    done, running, failed, queued = jobs = smoke_jobs(4)
    fabricate(done, [50.0])
    path = failure_path(results_folder(failed.config), failed.run_id)
    path.parent.mkdir(parents=True)
    path.write_text('{"error": "RuntimeError: no\\nluck"}')
    assert states([queued]) == {queued.run_id: ("left", "")}
    monkeypatch.setattr(reproduce, "queued_runs", lambda root: {job.run_id: "8_1" for job in (done, running, queued)})
    with claim(tmp_path, running.run_id):
        assert states([running])[running.run_id] == ("running", "before its first epoch")
        write_progress(tmp_path, running.run_id, "epoch 2/3 · ε 1.1")
        assert list(states(jobs).values()) == [
            ("recorded", ""), ("running", "epoch 2/3 · ε 1.1"), ("failed", "RuntimeError: no luck"),
            ("queued", "Slurm job 8_1"),
        ]  # fmt: skip
        again = replace(running, sweep="tempered_sigmoid/another")
        table = status_text({"fig-1": jobs, "fig-2": [again], "table-1": []}).splitlines()
    assert table[1].split() == ["fig-1", "4", "1", "1", "1", "1", "0"]
    assert [line.split()[0] for line in table[2:4]] == ["fig-2", "in"], "of table-1 nothing is trained"
    assert table[4] == f"running: {running.sweep} {running.label} · epoch 2/3 · ε 1.1"
    assert states([running])[running.run_id][0] == "queued", "its process has ended"


def test_a_run_whose_process_is_killed_is_left_at_once(tmp_path: Path, smoke_jobs) -> None:
    (job,) = smoke_jobs(1)
    code = f"""
import time
from runner.records.files import claim
with claim({str(tmp_path)!r}, {job.run_id!r}):
    print(flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert process.stdout is not None
    process.stdout.readline()
    assert states([job])[job.run_id][0] == "running"
    process.kill()
    process.communicate()
    assert states([job])[job.run_id] == ("left", "")


def test_a_look_at_a_run_takes_no_claim_from_it(tmp_path: Path) -> None:
    with claim(tmp_path, "a"):
        pass
    assert progress(tmp_path, "a") is None
    assert progress(tmp_path, "b") is None, "there is no file"
    assert not (tmp_path / ".locks" / "b").exists()
    with claim(tmp_path, "a") as first, claim(tmp_path, "a") as second:
        assert (first, second, progress(tmp_path, "a")) == (True, False, "")


def test_a_full_disk_stops_no_run(tmp_path: Path) -> None:
    (tmp_path / ".locks").write_text("no folder")
    write_progress(tmp_path, "a", "epoch 1/3")


def test_the_command_counts_and_runs_nothing(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(reproduce, "run_jobs", lambda *_: pytest.fail("a run was started"))
    request = ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-4", f"runtime.results_root={tmp_path}"]
    assert reproduce.main([*request, "--status"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["fig-4", "8", "0", "0", "0", "0", "8"]
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("options", "folder"),
    [([], "yours"), (["--record"], "."), (["--fresh"], "fresh"), (["runtime.results_root=/again"], "/again")],
)
def test_new_records_leave_tracked_files_alone_unless_asked(options: list[str], folder: str, monkeypatch) -> None:
    shown: dict[str, list[Job]] = {}
    monkeypatch.setattr(reproduce, "status_text", lambda jobs: shown.update(jobs) or "")
    assert reproduce.main(["tempered-sigmoid", "--items", "text-std", "--seeds", "2", "--status", *options]) == 0
    (jobs,) = shown.values()
    assert {Path(job.values["runtime"]["results_root"]) for job in jobs} == {RESULTS / folder}
    assert {job.values["seed"] for job in jobs} == {0, 1}


def test_two_places_for_records_are_refused(capsys) -> None:
    assert carry_out("reproduce", ["tempered-sigmoid", "--items", "text-std", "--record", "--fresh"]) == 2
    assert "Choose one of --record (RECORD=1), --fresh (FRESH=1)" in capsys.readouterr().err

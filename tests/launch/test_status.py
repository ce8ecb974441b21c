"""`make status-PAPER` counts runs recorded, under way, failed or lost, by files and by Slurm's queue."""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli import reproduce
from runner.config import REPOSITORY
from runner.launch import notes, queue
from runner.launch.notes import Heartbeat, Note
from runner.launch.status import State, states, status_text
from runner.records.files import failure_path, results_folder


@pytest.fixture
def in_queue(monkeypatch) -> dict[str, str]:
    """States of jobs in Slurm's queue."""
    states_in_queue: dict[str, str] = {}
    monkeypatch.setattr(queue, "states", lambda: states_in_queue)
    return states_in_queue


def post(tmp_path: Path, name: str, job: str, *jobs: object, launcher: str = "slurm") -> Path:
    folder = notes.folder_of(tmp_path)
    notes.write(folder, Note(name, launcher, job, tuple(each.run_id for each in jobs)))
    return folder


def silent(folder: Path, name: str, seconds: float) -> None:
    path = folder / f"{name}.beat"
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - seconds))


def test_every_kind_of_run_is_told(tmp_path: Path, smoke_jobs, fabricate, in_queue) -> None:
    done, computed, waits, pending = smoke_jobs(4)
    fabricate(done, [50.0])
    folder = post(tmp_path, "1", "8_0", done, computed, waits)
    post(tmp_path, "2", "8_1", pending)
    in_queue |= {"8_0": "RUNNING", "8_1": "PENDING"}
    with Heartbeat(folder, "1") as heartbeat:
        heartbeat.began([computed])
        heartbeat.epoch(computed.run_id, "epoch 2/3 · ε 1.1")
        heartbeat.write()
        found = states([done, computed, waits, pending])
        assert [found[job.run_id] for job in (done, computed, waits, pending)] == [
            State("recorded"), State("running", "epoch 2/3 · ε 1.1"), State("queued"), State("queued"),
        ]  # fmt: skip
        again = replace(computed, sweep="tempered_sigmoid/another")
        table = status_text({"fig-1": [done, computed, waits, pending], "fig-2": [again], "table-1": []})
    assert table.splitlines()[1].split() == ["fig-1", "4", "1", "1", "2", "0", "0", "0"]
    assert [line.split()[0] for line in table.splitlines()[2:4]] == ["fig-2", "in"], "of table-1 nothing is trained"
    assert table.splitlines()[-1] == f"running: {computed.sweep} {computed.label} · epoch 2/3 · ε 1.1"


def test_a_run_fails_with_why_by_its_file_or_by_its_task(tmp_path: Path, smoke_jobs, in_queue) -> None:
    by_file, by_task = smoke_jobs(2)
    path = failure_path(results_folder(by_file.config), by_file.run_id)
    path.parent.mkdir(parents=True)
    path.write_text('{"error": "RuntimeError: no\\nluck"}')
    folder = post(tmp_path, "1", "8_0", by_task)
    with Heartbeat(folder, "1") as heartbeat:
        heartbeat.ended(by_task, "failed", "its process ended with exit code -9")
    found = states([by_file, by_task])
    assert found[by_file.run_id] == State("failed", "RuntimeError: no luck")
    assert found[by_task.run_id] == State("failed", "its process ended with exit code -9")


def test_a_run_whose_task_left_the_queue_without_a_word_is_lost(tmp_path, smoke_jobs, in_queue, monkeypatch) -> None:
    """Signs of life count where Slurm does not answer."""
    begun, not_begun = smoke_jobs(2)
    folder = post(tmp_path, "1", "8_0", begun)
    post(tmp_path, "2", "8_1", not_begun)
    with suppress(SystemExit), Heartbeat(folder, "1") as heartbeat:
        heartbeat.began([begun])
        heartbeat.write()
        with monkeypatch.context() as silence:
            silence.setattr(queue, "states", lambda: None)
            assert states([begun])[begun.run_id].kind == "running"
        raise SystemExit
    silent(folder, "1", 240)
    found = states([begun, not_begun])
    assert {state.kind for state in found.values()} == {"lost"}
    assert "Slurm job 8_0 is gone without a report, 4m" in found[begun.run_id].text
    in_queue["8_0"] = "PENDING"
    assert states([begun])[begun.run_id] == State("queued"), "queued again after its time limit"
    in_queue["8_0"] = "RUNNING"
    assert states([begun])[begun.run_id].text.startswith("silent for 4m")


@pytest.mark.parametrize("launcher", ["local", "ray"])
def test_without_a_scheduler_a_silent_task_is_lost(tmp_path: Path, smoke_jobs, launcher: str, monkeypatch) -> None:
    """The run that it computed is lost. The run that it had not begun is left to be done."""
    monkeypatch.setattr(queue, "states", lambda: pytest.fail("Slurm was asked"))
    job, not_begun = smoke_jobs(2)
    folder = post(tmp_path, "1", "", job, not_begun, launcher=launcher)
    heartbeat = Heartbeat(folder, "1")
    with heartbeat:
        heartbeat.began([job])
        heartbeat.write()
        assert [state.kind for state in states([job, not_begun]).values()] == ["running", "queued"]
        silent(folder, "1", 2 * notes.SILENT)
        assert [state.kind for state in states([job, not_begun]).values()] == ["lost", "left"]


def test_a_command_of_this_machine_that_is_killed_is_lost_at_once(tmp_path: Path, smoke_jobs) -> None:
    job, not_begun = smoke_jobs(2)
    folder = notes.folder_of(tmp_path)
    notes.write(folder, Note("1", "local", "", (job.run_id, not_begun.run_id), host=platform.node()))
    code = f"""
import sys, time
from pathlib import Path
from types import SimpleNamespace
from runner.launch.notes import Heartbeat
with Heartbeat(Path({str(folder)!r}), "1") as heartbeat:
    heartbeat.began([SimpleNamespace(run_id={job.run_id!r})])
    heartbeat.write()
    print(flush=True)
    time.sleep(600)
"""
    command = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert command.stdout is not None
    command.stdout.readline()
    assert [state.kind for state in states([job, not_begun]).values()] == ["running", "queued"]
    command.kill()
    command.communicate()
    assert [state.kind for state in states([job, not_begun]).values()] == ["lost", "left"]
    notes.tidy(folder)
    assert list(folder.glob("1.*")) == []


def test_a_live_command_of_this_machine_may_be_silent(tmp_path: Path, smoke_jobs) -> None:
    """A computer that slept, say, or a disk that is full. A later command that looks, or tidies, takes nothing."""
    job, waits = smoke_jobs(2)
    folder = notes.folder_of(tmp_path)
    notes.write(folder, Note("1", "local", "", (job.run_id, waits.run_id), host=platform.node()))
    notes.tidy(folder)  # before it has said anything
    with (folder / "1.alive").open("wb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with Heartbeat(folder, "1") as heartbeat:
            heartbeat.began([job])
            heartbeat.write()
            silent(folder, "1", 2 * notes.SILENT)
            notes.tidy(folder)
            found = states([job, waits])
    assert found[job.run_id].kind == "running"
    assert found[job.run_id].text.startswith("silent for 2m")
    assert found[waits.run_id] == State("queued")


def test_the_command_tells_and_runs_nothing(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(reproduce, "run_jobs", lambda *_: pytest.fail("a run was started"))
    request = ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-4", f"runtime.results_root={tmp_path}"]
    assert reproduce.main([*request, "--status"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["fig-4", "8", "0", "0", "0", "0", "0", "8"]
    assert not list(tmp_path.rglob("*.json"))


def test_a_note_is_read_as_it_was_written_and_litter_is_passed_over(tmp_path: Path) -> None:
    first, second = (Note(notes.new_name(), "slurm", f"12_{n}", ("a" * 12, "b" * 12), n + 1) for n in range(2))
    for note in (second, first):
        notes.write(tmp_path, note)
    (tmp_path / "0.task").write_text("half a no")
    (tmp_path / "1.task").write_text("[]")
    assert notes.notes(tmp_path) == [first, second]
    notes.remove(tmp_path, first.name)
    assert notes.notes(tmp_path) == [second]


def test_a_task_says_again_and_again_what_it_computes(tmp_path: Path, smoke_jobs, monkeypatch) -> None:
    monkeypatch.setattr(notes, "HEARTBEAT", 0.01)
    (job,) = smoke_jobs(1)
    assert notes.last_report(tmp_path, "task") is None
    with Heartbeat(tmp_path, "task") as heartbeat:
        heartbeat.began([job])
        heartbeat.epoch(job.run_id, "epoch 1/3")
        until = time.monotonic() + 5
        while not (report := notes.last_report(tmp_path, "task")).running and time.monotonic() < until:
            time.sleep(0.01)
        assert (report.running, report.over) == ({job.run_id: "epoch 1/3"}, False)
        heartbeat.ended(job, "finished", "")
    last = notes.last_report(tmp_path, "task")
    assert (last.running, last.ended, last.over) == ({}, {job.run_id: ("finished", "")}, True)


def test_age_is_by_the_clock_of_the_disk(tmp_path: Path, monkeypatch) -> None:
    """The clock of this machine does not matter."""
    with Heartbeat(tmp_path, "task"):
        pass
    path = tmp_path / "task.beat"
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 100 <= notes.last_report(tmp_path, "task").age < 110


def test_a_full_disk_stops_no_run(tmp_path: Path, smoke_jobs) -> None:
    (tmp_path / "file").write_text("no folder")
    with Heartbeat(tmp_path / "file", "task") as heartbeat:
        heartbeat.ended(smoke_jobs(1)[0], "finished", "")


def test_a_run_under_way_stays_so_whatever_a_later_command_that_died_says(tmp_path: Path, smoke_jobs) -> None:
    computed, waits = smoke_jobs(2)
    folder = post(tmp_path, "1", "", computed, waits, launcher="local")
    post(tmp_path, "2", "", computed, waits, launcher="local")
    with suppress(SystemExit), Heartbeat(folder, "2") as heartbeat:
        heartbeat.began([waits])
        raise SystemExit
    silent(folder, "2", 2 * notes.SILENT)
    with Heartbeat(folder, "1") as heartbeat:
        heartbeat.began([computed])
        heartbeat.write()
        assert [state.kind for state in states([computed, waits]).values()] == ["running", "queued"]

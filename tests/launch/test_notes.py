"""Notes and heartbeats of tasks: whole files, ages by the clock of their disk, and no error that stops a run."""

from __future__ import annotations

import os
import time
from pathlib import Path

from runner.launch import notes
from runner.launch.notes import Heartbeat, Note


def test_a_note_is_read_as_it_was_written_and_litter_is_passed_over(tmp_path: Path) -> None:
    first, second = (Note(notes.new_name(), "slurm", f"12_{n}", ("a" * 12, "b" * 12), n + 1) for n in range(2))
    for note in (second, first):
        notes.write(tmp_path, note)
    (tmp_path / "0.task").write_text("half a no")
    (tmp_path / "1.task").write_text("[]")
    assert notes.notes(tmp_path) == [first, second]
    notes.remove(tmp_path, first.name)
    assert notes.notes(tmp_path) == [second]


def test_a_task_says_what_it_computes_and_what_ended(tmp_path: Path, smoke_jobs, monkeypatch) -> None:
    monkeypatch.setattr(notes, "HEARTBEAT", 0.01)
    one, two = smoke_jobs(2)
    assert notes.last_report(tmp_path, "task") is None
    with Heartbeat(tmp_path, "task") as heartbeat:
        heartbeat.began([one, two])
        heartbeat.epoch(one.run_id, "epoch 1/3")
        heartbeat.ended(two, "failed", "why")
        until = time.monotonic() + 5
        while not (report := notes.last_report(tmp_path, "task")).ended and time.monotonic() < until:
            time.sleep(0.01)
        assert report.running == {one.run_id: "epoch 1/3"}
        assert report.ended == {two.run_id: ("failed", "why")}
        assert not report.over
        heartbeat.ended(one, "finished", "")
    last = notes.last_report(tmp_path, "task")
    assert last.over
    assert set(last.ended) == {one.run_id, two.run_id}
    assert last.running == {}


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

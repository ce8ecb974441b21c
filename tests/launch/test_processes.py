"""Many runs at once: failures stop no other run, a killed sweep goes on where it was."""

from __future__ import annotations

import copy
import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from runner.cli import reproduce
from runner.cli.commands import carry_out
from runner.cli.reproduce import check_data, parse_duration
from runner.config import REPOSITORY
from runner.data import DataError
from runner.launch.processes import Work, _Clock, run_jobs
from runner.records.files import failure_path, read_record, results_folder
from runner.records.identity import resolved
from runner.records.jobs import Job, sweep_jobs
from runner.terminal import Line, duration
from tests.conftest import Refusal


def small_jobs(tmp_path: Path, **losses: str) -> list[Job]:
    """Four short runs on the digits; `losses` replaces the loss of a run, by its place (`r1="tests.failing.Dies"`)."""
    extra = ("scale=smoke", "scale.epochs=1", "tracking=disabled")
    jobs = []
    for place, job in enumerate(sweep_jobs("tempered_sigmoid/text_sgd", extra)):
        config = copy.deepcopy(job.config)
        config.runtime.results_root = str(tmp_path)
        config.loss._target_ = losses.get(f"r{place}", config.loss._target_)
        config = resolved(config)
        jobs.append(Job.of(job.sweep, job.overrides, config))
    return jobs


def run(jobs: list[Job], deadline: float | None = None, estimate: float = 0.0):
    said = io.StringIO()
    estimates = {job.run_id: estimate for job in jobs}
    return run_jobs(Work(jobs, 2, 1, estimates, deadline), Line(said)), said.getvalue()


@pytest.mark.slow
def test_a_failing_and_a_dying_job_stop_no_other_and_recorded_runs_are_skipped(tmp_path: Path) -> None:
    jobs = small_jobs(tmp_path, r0="tests.failing.Dies", r1="tests.failing.RaisesInTraining")
    folder = results_folder(jobs[0].config)
    failed_before = failure_path(folder, jobs[2].run_id)
    failed_before.parent.mkdir(parents=True)
    failed_before.write_text("{}")
    tally, said = run(jobs)
    assert {job.run_id for job in tally.recorded} == {job.run_id for job in jobs[2:]}
    why = {job.run_id: text for job, text in tally.failed}
    assert why[jobs[0].run_id] == "its process ended with exit code 7"
    assert why[jobs[1].run_id] == "RuntimeError: made to fail"
    assert {path.stem for path in (folder / "runs").iterdir()} == {job.run_id for job in jobs[2:]}
    failure = json.loads(failure_path(folder, jobs[1].run_id).read_text())
    assert failure["status"] == "failed"
    assert "made to fail" in failure["traceback"]
    assert not failed_before.exists()
    assert "run 4 of 4" in said
    assert "accuracy" in said
    assert "\r" not in said, "a log file is read line by line"

    before = _records(tmp_path)
    tally, said = run(jobs[2:])
    assert "skipped" in said
    assert len(tally.recorded) == 2
    assert _records(tmp_path) == before


def test_no_run_starts_that_would_end_after_the_deadline(tmp_path: Path) -> None:
    jobs = small_jobs(tmp_path)[:2]
    tally, _ = run(jobs, deadline=time.monotonic() + 60, estimate=61.0)
    assert [job.run_id for job in tally.not_started] == [job.run_id for job in jobs]
    assert not tally.recorded
    assert not list(tmp_path.rglob("*.json"))


def test_time_left_goes_by_what_is_done_of_runs_that_are_not_over(tmp_path: Path, monkeypatch) -> None:
    """Four runs, two at a time, were estimated at 10 s each. Half of two are done after 20 s, so a run takes 40 s."""
    now = 100.0
    monkeypatch.setattr("runner.launch.processes.time.monotonic", lambda: now)
    jobs = small_jobs(tmp_path)
    clock = _Clock(jobs, {job.run_id: 10.0 for job in jobs}, workers=2)
    assert clock.left() == 20.0
    now += 20.0
    for job in jobs[:2]:
        clock.at(job.run_id, 0.5)
    assert clock.left() == 60.0
    clock.at(jobs[0].run_id, 1.0)
    clock.drop(jobs[3:])
    assert clock.left() == pytest.approx(15 * (40 / 15) / 2)


def _reproduce(tmp_path: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "runner",
        "reproduce",
        "tempered-sigmoid",
        *("--scale", "smoke", "--items", "fig-4", "--jobs", "2"),
        *(f"runtime.results_root={tmp_path}", "tracking=disabled"),
    ]


def _records(tmp_path: Path) -> dict[str, int]:
    return {path.stem: path.stat().st_mtime_ns for path in tmp_path.glob("smoke/runs/*.json")}


@pytest.mark.slow
def test_a_sweep_killed_halfway_is_finished_by_the_same_command(tmp_path: Path) -> None:
    """SIGKILL to the driver: nothing half-written, nothing left running, and afterwards nothing run twice."""
    killed = subprocess.Popen(_reproduce(tmp_path), cwd=REPOSITORY, stderr=subprocess.PIPE, start_new_session=True)
    waited = time.monotonic() + 120
    while not _records(tmp_path) and time.monotonic() < waited:
        assert killed.poll() is None, killed.stderr.read() if killed.stderr else ""
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    group_gone = time.monotonic() + 20
    while _group_members(killed.pid) and time.monotonic() < group_gone:
        time.sleep(0.1)
    assert not _group_members(killed.pid), "its workers ended with it"

    before = _records(tmp_path)
    assert 1 <= len(before) < 8
    for path in tmp_path.glob("smoke/runs/*.json"):
        assert read_record(path)["status"] == "finished"

    resumed = subprocess.run(_reproduce(tmp_path), cwd=REPOSITORY, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    after = _records(tmp_path)
    assert len(after) == 8
    assert {run_id: after[run_id] for run_id in before} == before, "recorded runs were not run again"
    assert f"of {8 - len(before)} ·" in resumed.stderr
    assert {path.name for path in tmp_path.glob("smoke/runs/*")} == {f"{run_id}.json" for run_id in after}


def _group_members(group: int) -> list[int]:
    """Processes of a process group that are still running."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):  # empty where there is no /proc
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            members.append(int(stat.parent.name))
    return members


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400)])
def test_budgets(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "half an hour", "-5m", "5m3h", "0m", "0h0m0s"])
def test_budgets_that_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match="is no time to run in"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["papered-sigmoid"], "tempered"),
        (["tempered-sigmoid", "--items", "fig-33"], "fig-33"),
        (["tempered-sigmoid", "--jobs", "0"], "JOBS"),
        (["tempered-sigmoid", "--jobs", "two"], "two"),
        ([], "paper"),
        (["tempered-sigmoid", "--budget", "soon"], "BUDGET"),
        (["tempered-sigmoid", "--scale", "large"], "large"),
        (["tempered-sigmoid", "--scale", "large", "--items", "fig-1"], "Unknown scale 'large'"),
        (["tempered-sigmoid", "--items", "fig-4", "optimizer.lr=1"], "optimizer.lr=1"),
        (["tempered-sigmoid", "--items", "fig-4", "runtime.threads=0"], "runtime.threads=0"),
        (["tempered-sigmoid", "--items", "fig-4", "scale=paper"], "scale=paper"),
    ],
)
def test_wrong_requests_are_one_sentence_and_exit_code_2(arguments: list[str], said: str, refusal: Refusal) -> None:
    from runner.cli.reproduce import main

    assert said in refusal(main, arguments)


@pytest.mark.slow
def test_a_wrong_setting_among_many_is_refused_before_any_runs(tmp_path, monkeypatch, capsys) -> None:
    """One of a setting of its own."""
    right, *_ = sweep_jobs("tempered_sigmoid/fig_3", ("scale=smoke", f"runtime.results_root={tmp_path}"))
    config = copy.deepcopy(right.config)
    config.clipping.norm = -1.0
    wrong = Job.of(right.sweep, right.overrides, config)
    monkeypatch.setattr(reproduce, "sweep_jobs", lambda *_: [right, wrong])
    monkeypatch.setattr(reproduce, "run_jobs", lambda *_: pytest.fail("a run was started"))
    assert carry_out("reproduce", ["tempered-sigmoid", "--scale", "smoke", "--items", "fig-3"]) == 2
    assert "norm" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "3s"), (725, "12m05s"), (12_060, "3h21m")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_images_that_are_not_there_are_missed_once_and_before_any_run(tmp_path: Path, monkeypatch, capsys) -> None:
    """Not by each of the runs for itself, as a failure of its own."""
    (job, *_) = small_jobs(tmp_path)
    config = copy.deepcopy(job.config)
    config.dataset.bundled, config.runtime.data_root = False, str(tmp_path / "empty")
    pending = [Job.of(job.sweep, job.overrides, config)] * 3

    def no_network(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(
        DataError, match=r"is missing, and it could not be downloaded .*: put the original files of MNIST into"
    ):
        check_data(pending)

"""Many runs at once: failures stop no other run, and a record is the same by any process."""

from __future__ import annotations

import copy
import io
import json
import multiprocessing
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runner.cli import reproduce
from runner.cli.commands import carry_out
from runner.cli.reproduce import check_data, parse_duration
from runner.data import DataError
from runner.data.datasets import ImageDataset
from runner.launch import launcher_of, processes, run_jobs
from runner.launch.processes import Tally, Work, _Clock, gpus_of, run_processes, workers
from runner.launch.worker import Worker
from runner.records.files import failure_path, progress, results_folder
from runner.records.jobs import Job, sweep_jobs
from runner.runs.execute import execute
from runner.terminal import Line
from tests.conftest import quietly, record_of

MEASURED = ("run_id", "status", "config", "history", "final", "diagnostics")


def run(jobs: list[Job], deadline: float | None = None, estimate: float = 0.0, line: type[Line] = Line):
    output = io.StringIO()
    estimates = {job.run_id: estimate for job in jobs}
    return run_processes(Work(jobs, 2, 1, estimates, deadline), line(output), ["7"]), output.getvalue()


def test_a_slow_start_does_not_decide_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch, smoke_jobs) -> None:
    jobs, now = smoke_jobs(4), 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = _Clock(jobs, {job.run_id: 100.0 for job in jobs[:2]}, 2)  # and two of unknown time
    clock.done[jobs[0].run_id] = 0.05
    now = 50.0  # twenty times the estimate, over two workers
    assert clock.left() == "6m16s left for all 4"  # 395 s at (100 + 100) / (5 + 100), by two
    for job in jobs[:3]:
        clock.done[job.run_id] = 1.0
    now = 350.0
    assert clock.left() == "1m40s left for all 4"  # the last 100 s at (700 + 100) / (300 + 100), by two


def test_a_budget_says_how_many_runs_fit(monkeypatch: pytest.MonkeyPatch, smoke_jobs) -> None:
    """Two processes, 250 s: of three runs of 200 s, one of them half done, the half one and one more fit."""
    jobs = smoke_jobs(3)
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    clock = _Clock(jobs, {job.run_id: 200.0 for job in jobs}, 2, deadline=1150.0)
    clock.done[jobs[0].run_id] = 0.5
    assert clock.left() == "2m30s of the budget left, 2 of 3 runs fit"


def test_failed_jobs_stop_no_other_and_recorded_runs_are_skipped(tmp_path: Path, smoke_jobs) -> None:
    """Each process sees its device alone, and says in the claim of its run how far it is."""
    jobs = smoke_jobs(4, r0="tests.failing.Dies", r1="tests.failing.SaysItsDevice")
    claims: list[str] = []

    class Looks(Line):
        def show(self, text: str) -> None:
            claims.extend(path.read_text() for path in (tmp_path / ".locks").iterdir())
            super().show(text)

    folder = results_folder(jobs[0].config)
    failed_before = failure_path(folder, jobs[2].run_id)
    failed_before.parent.mkdir(parents=True)
    failed_before.write_text("{}")
    tally, output = run(jobs, line=Looks)
    assert any(claim.startswith("epoch 1/1") for claim in claims)
    assert all(progress(tmp_path, job.run_id) is None for job in jobs)
    assert {job.run_id for job in tally.recorded} == {job.run_id for job in jobs[2:]}
    why = {job.run_id: text for job, text in tally.failed}
    assert why[jobs[0].run_id] == "its process ended with exit code 7"
    assert why[jobs[1].run_id] == "RuntimeError: CUDA_VISIBLE_DEVICES=7"
    assert {path.stem for path in (folder / "runs").iterdir()} == {job.run_id for job in jobs[2:]}
    failure = json.loads(failure_path(folder, jobs[1].run_id).read_text())
    assert failure["status"] == "failed"
    assert "CUDA_VISIBLE_DEVICES=7" in failure["traceback"]
    assert not failed_before.exists()
    assert "run 4 of 4" in output
    assert "accuracy" in output
    assert "\r" not in output, "a log file is read line by line"

    before = _records(tmp_path)
    tally, output = run(jobs[2:])
    assert "skipped" in output
    assert len(tally.recorded) == 2
    assert _records(tmp_path) == before

    alone = copy.deepcopy(jobs[2].config)
    alone.runtime.results_root, alone.runtime.threads = f"{tmp_path}/alone", 1
    assert execute(alone, quietly) == "finished"
    ours, theirs = record_of(alone), record_of(jobs[2].config)
    assert {name: ours[name] for name in MEASURED} == {name: theirs[name] for name in MEASURED}


def test_no_run_starts_that_would_end_after_the_deadline(tmp_path: Path, smoke_jobs) -> None:
    jobs = smoke_jobs(2)
    tally, _ = run(jobs, deadline=time.time() + 60, estimate=61.0)
    assert [job.run_id for job in tally.not_started] == [job.run_id for job in jobs]
    assert not tally.recorded
    assert not list(tmp_path.rglob("*.json"))


def _records(tmp_path: Path) -> dict[str, int]:
    return {path.stem: path.stat().st_mtime_ns for path in tmp_path.glob("smoke/runs/*.json")}


def test_budgets() -> None:
    assert [parse_duration(text) for text in ("90s", "30m", "2h", "1h30m")] == [90, 1800, 7200, 5400]
    for text in ("", "30", "half an hour", "-5m", "5m3h", "0m", "0h0m0s"):
        with pytest.raises(ValueError, match="is no time to run in"):
            parse_duration(text)


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


def test_missing_images_are_reported_once_before_any_run(tmp_path: Path, smoke_jobs, monkeypatch) -> None:
    """Not by each of the runs for itself, as a failure of its own."""
    (job, *_) = smoke_jobs(4)
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
    read: list[str] = []
    monkeypatch.setattr(ImageDataset, "load", lambda _, root: read.append(root))
    check_data(pending)
    assert len(read) == 1


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`gpus(2)`: PyTorch finds two; `gpus(2, "3,5")`: these."""

    def fake(count: int, name: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        if name is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", name)

    return fake


def test_the_gpus_are_those_that_this_process_may_see(gpus, smoke_jobs) -> None:
    gpus(2, "3, GPU-8a1b")
    assert gpus_of(smoke_jobs(4, "cuda")) == ["3", "GPU-8a1b"]


@pytest.mark.parametrize("device", ["cuda:1", "cpu"])
def test_a_device_that_is_named_is_the_one_that_all_see(gpus, smoke_jobs, device: str) -> None:
    gpus(2)
    assert gpus_of(smoke_jobs(4, device)) == []
    assert workers(smoke_jobs(4, device)) == 1


def test_one_gpu_or_none_is_not_shared_out(gpus, smoke_jobs, monkeypatch) -> None:
    gpus(1)
    assert (gpus_of(smoke_jobs(4, "auto")), workers(smoke_jobs(4, "auto"))) == ([], 1)
    gpus(0)
    for cores, gib, expected in ((64, 64, 8), (3, 64, 3), (8, 7, 3), (8, 1, 1)):
        monkeypatch.setattr(processes, "cores", lambda: cores)  # noqa: B023
        monkeypatch.setattr(processes, "memory", lambda: gib * 2**30)  # noqa: B023
        assert (gpus_of(smoke_jobs(4, "auto")), workers(smoke_jobs(4, "auto"))) == ([], expected)


def test_workers_at_the_same_time_have_different_devices(smoke_jobs, monkeypatch) -> None:
    """Two at a time over two devices: never twice the same, and one that is given back is used again."""
    held: list[str] = []
    used: list[str] = []

    def start(job: Job, threads: int | None, number: int, *, device: str) -> Worker:
        assert device not in held
        held.append(device)
        used.append(device)
        ours, theirs = multiprocessing.Pipe()
        theirs.send(("ended", ("finished", "")))
        return Worker(job, SimpleNamespace(join=lambda: held.remove(device)), ours, number, device)

    monkeypatch.setattr(processes, "start", start)
    tally = run_processes(Work(smoke_jobs(3), 2), Line(io.StringIO()), devices=["5", "7"])
    assert len(tally.recorded) == 3
    assert set(used) == {"5", "7"}


def test_this_machine_uses_all_its_gpus(gpus, smoke_jobs, line, monkeypatch) -> None:
    """Three GPUs have three workers, and more runs at a time share them."""
    calls: list[tuple[int | None, list[str]]] = []
    monkeypatch.setattr(
        processes, "run_processes", lambda work, line, devices: calls.append((work.at_once, devices)) or Tally()
    )
    gpus(3)
    for at_once in (None, 6):
        run_jobs(launcher_of("local"), Work(smoke_jobs(2, "auto"), at_once), line)
    assert calls == [(3, ["0", "1", "2"]), (6, ["0", "1", "2"])]

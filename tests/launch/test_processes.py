"""Many runs at once: launchers by name, processes that stop no other, and how far the runs are."""

import copy
import io
import json
import multiprocessing
import shutil
import sys
import time
import urllib.request
from dataclasses import replace
from multiprocessing import spawn
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runner.cli import reproduce
from runner.cli.commands import carry_out
from runner.cli.reproduce import check_data, parse_duration, states, status_text
from runner.config import RESULTS, ConfigError, options_of
from runner.data import DataError
from runner.data.datasets import ImageDataset
from runner.launch import launcher_of, processes, run_jobs
from runner.launch.processes import Tally, Work, Worker, _Clock, gpus_of, run_processes, workers
from runner.records.disk import claim, failure_path, progress, results_folder, write_progress
from runner.records.jobs import Job
from runner.runs.execute import execute
from runner.terminal import Line
from tests.conftest import quietly, record_of

MEASURED = ("run_id", "status", "config", "history", "final", "diagnostics")


def run(jobs: list[Job], deadline: float | None = None, estimate: float = 0.0, line: type[Line] = Line):
    output = io.StringIO()
    estimates = {job.run_id: estimate for job in jobs}
    return run_processes(Work(jobs, 2, 1, estimates, deadline), line(output), ["7"]), output.getvalue()


def test_the_time_left_and_how_many_runs_fit_into_a_budget(monkeypatch: pytest.MonkeyPatch, smoke_jobs) -> None:
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
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    budget = _Clock(jobs[:3], {job.run_id: 200.0 for job in jobs}, 2, deadline=1150.0)
    budget.done[jobs[0].run_id] = 0.5  # so half a run and one more fit into two times 150 s
    assert budget.left() == "2m30s of the budget left, 2 of 3 runs fit"


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

    def records() -> dict[str, int]:
        return {path.stem: path.stat().st_mtime_ns for path in tmp_path.glob("smoke/runs/*.json")}

    before = records()
    tally, output = run(jobs[2:])
    assert "skipped" in output
    assert len(tally.recorded) == 2
    assert records() == before

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


def test_budgets() -> None:
    assert [parse_duration(text) for text in ("90s", "30m", "2h", "1h30m")] == [90, 1800, 7200, 5400]
    for text in ("", "30", "half an hour", "-5m", "5m3h", "0m", "0h0m0s"):
        with pytest.raises(ValueError, match="is no time to run in"):
            parse_duration(text)


def test_a_wrong_setting_among_many_is_refused_before_any_runs(smoke_jobs, monkeypatch, capsys) -> None:
    """One of a setting of its own."""
    (right,) = smoke_jobs(1)
    config = copy.deepcopy(right.config)
    config.batch_size = 10**6
    wrong = Job.of(right.sweep, right.overrides, config)
    monkeypatch.setattr(reproduce, "sweep_jobs", lambda *_: [right, wrong])
    monkeypatch.setattr(reproduce, "run_jobs", lambda *_: pytest.fail("a run was started"))
    assert carry_out("reproduce", ["tempered-sigmoid", "--scale", "smoke", "--items", "text"]) == 2
    assert "batch_size" in capsys.readouterr().err.splitlines()[-1]


def test_missing_images_are_reported_once_before_any_run(tmp_path: Path, smoke_jobs, monkeypatch) -> None:
    """Not by each of the runs for itself, as a failure of its own."""
    (job,) = smoke_jobs(1)
    config = copy.deepcopy(job.config)
    config.dataset.bundled, config.runtime.data_root = False, str(tmp_path / "empty")
    pending = [Job.of(job.sweep, job.overrides, config)] * 3

    def no_network(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(DataError, match="it could not be downloaded"):
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


def test_gpus_are_shared_out_where_a_job_names_none(gpus, smoke_jobs) -> None:
    for count, visible, device, names in (
        (2, "3, GPU-8a1b", "cuda", ["3", "GPU-8a1b"]),
        (2, None, "cuda:1", []),
        (2, None, "cpu", []),
        (1, None, "auto", []),
    ):
        gpus(count, visible)
        jobs = smoke_jobs(4, device)
        assert (gpus_of(jobs), workers(jobs)) == (names, max(1, len(names)))


def test_without_a_gpu_cores_and_memory_limit_the_runs(gpus, smoke_jobs, monkeypatch) -> None:
    gpus(0)
    jobs = smoke_jobs(4, "auto")
    for cores, gib, expected in ((64, 64, 8), (3, 64, 3), (8, 7, 3), (8, 1, 1)):
        monkeypatch.setattr(processes, "cores", lambda: cores)  # noqa: B023
        monkeypatch.setattr(processes, "memory", lambda: gib * 2**30)  # noqa: B023
        assert (gpus_of(jobs), workers(jobs)) == ([], expected)


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


def test_every_file_of_the_group_makes_a_launcher(monkeypatch) -> None:
    for module in ("slurm", "ray"):
        monkeypatch.setattr(f"runner.launch.{module}.find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert options_of("launcher") == ["local", "ray", "slurm"]
    launchers = [launcher_of(name) for name in options_of("launcher")]
    assert [type(launcher).__name__.lower() for launcher in launchers] == options_of("launcher")
    slurm = launcher_of("slurm", ["gpus=2", "sbatch.account=12", "sbatch.mem=8G", "setup=[module load x]"])
    assert (slurm.gpus, slurm.sbatch, slurm.setup) == (2, {"account": 12, "mem": "8G"}, ["module load x"])
    assert launcher_of("ray", ["gpus=0.25"]).gpus == 0.25


def test_a_missing_package_or_program_is_named(monkeypatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for name, module, sentence in (
        ("slurm", None, r"pip install -e '\.\[slurm\]'"),
        ("ray", None, r"pip install -e '\.\[ray\]'"),
        ("slurm", object(), "sbatch and srun, which are not on this machine"),
    ):
        monkeypatch.setattr(f"runner.launch.{name}.find_spec", lambda _: module)  # noqa: B023
        with pytest.raises(ConfigError, match=sentence):
            launcher_of(name)


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


def test_a_look_at_a_run_takes_no_claim_from_it(tmp_path: Path) -> None:
    with claim(tmp_path, "a"):
        pass
    assert progress(tmp_path, "a") is None
    assert progress(tmp_path, "b") is None, "there is no file"
    assert not (tmp_path / ".locks" / "b").exists()
    with claim(tmp_path, "a") as first, claim(tmp_path, "a") as second:
        assert (first, second, progress(tmp_path, "a")) == (True, False, "")
    write_progress(tmp_path / ".locks" / "a", "a", "epoch 1/3")  # a place where no file can be stops no run


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


def test_a_process_does_not_run_the_users_script_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without the usual guard would begin its study anew in each process."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
    before = {"main_path", "init_main_from_path", "init_main_from_name"} & spawn.get_preparation_data("").keys()
    assert before
    with processes.without_script():
        assert not before & spawn.get_preparation_data("").keys()
    assert before <= spawn.get_preparation_data("").keys()

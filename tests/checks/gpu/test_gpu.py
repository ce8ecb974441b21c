"""A lent GPU: what a call does, in which order, and that it starts nothing that cannot end in time."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from checks.benchmarks.own import padded_length
from checks.gpu import command, pace, run, runs
from checks.gpu.pace import Measured, Pace, kind_of
from checks.gpu.runs import LIST, Entry, Lease, Progress, read_list
from checks.rehearsal import made_up_cuda
from runner.config import REPOSITORY
from runner.data import DataError
from runner.launch.processes import Tally
from runner.records import provenance
from runner.records.jobs import Job
from runner.runs.checkpoints import code_digest
from runner.runs.durations import Durations
from runner.terminal import Line

Jobs = Callable[..., list[Job]]


def test_every_entry_of_the_list_has_runs() -> None:
    """And backpropagation clipping on CIFAR-10 is worth most."""
    entries = read_list(LIST)
    overrides = ("scale=paper",)
    assert str(entries[0]) == "backprop_clipping/table_1 dataset.name=CIFAR10"
    assert len(entries[0].jobs(overrides)) == 70
    assert [str(entry) for entry in entries if not entry.jobs(overrides)] == []


def test_missing_packages_are_one_sentence(monkeypatch: pytest.MonkeyPatch, refusal) -> None:
    """Also what another package requires, but not what its extras do."""
    needs = {"hydra-core": ["antlr4==4.9", "pytest; extra == 'test'"], "torch": ["nvidia-cublas"]}

    def requires(name: str) -> list[str]:
        if name in ("antlr4", "pydantic"):
            raise PackageNotFoundError(name)
        return needs.get(name, [])

    monkeypatch.setattr(command, "requires", requires)
    assert refusal(command.main, []).startswith("gpu: pydantic, antlr4 are not installed here: bring wheels")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "PyTorch finds no CUDA device here"),
        (["--device", "cpu"], "--rehearse makes one up"),
        (["--minutes", "0"], "expected minutes above 0"),
        (["--jobs", "0"], "--jobs >= 1"),
    ],
)
def test_a_wrong_request_is_one_sentence(arguments: list[str], sentence: str, refusal, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert sentence in refusal(command.main, arguments)


def test_missing_images_are_one_sentence_at_once(jobs: Jobs, tmp_path: Path) -> None:
    (job, *_) = jobs("fig_3", "cifar10_tanh")
    job.config.runtime.data_root = str(tmp_path)
    with pytest.raises(DataError, match=r"batches.meta and 6 more files are missing: put cifar-10-batches-py of"):
        runs.check_data([job])
    runs.check_data(jobs("fig_3", "mnist_tanh", "smoke"))


def test_a_run_that_cannot_end_stops_after_two_epochs(jobs: Jobs, tmp_path: Path, monkeypatch) -> None:
    """Its clock starts in its own process. A run that can end goes on."""
    job, file = jobs("fig_3", "mnist_tanh")[0], tmp_path / "pace.jsonl"
    epochs = job.values["epochs"]
    for seconds_left, goes_on in ((20 + 3 * epochs + 1, True), (20 + 3 * epochs - 1, False)):
        monkeypatch.setattr(pace, "time", SimpleNamespace(time=lambda: 100.0))
        sent = pickle.dumps(Pace(job, 1000.0 + seconds_left, file, "code"))
        monkeypatch.setattr(pace, "time", SimpleNamespace(time=lambda: 1000.0))
        judge = pickle.loads(sent)
        answers = []
        for epoch, now in ((1, 1023.0), (2, 1026.0)):  # 20 s to start, 3 s an epoch
            monkeypatch.setattr(pace, "time", SimpleNamespace(time=lambda now=now: now))
            answers.append(judge([{"epoch": epoch}]))
        assert answers == [True, goes_on]
        assert file.exists() is not goes_on
    (slow,) = pace.measured(file, "code").values()
    assert (slow.kind, slow.seconds(epochs)) == (kind_of(job), 20 + 3 * epochs)
    assert pace.measured(file, "other code") == {}


class Lent:
    """A launcher that records what it is given, with a clock of its own and runs of `seconds` each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Callable[[Job], float]) -> None:
        self.batches, self.done, self.now, self._seconds = list[list[str]](), dict[str, float](), 0.0, seconds
        monkeypatch.setattr(runs, "time", SimpleNamespace(time=lambda: self.now))
        monkeypatch.setattr(runs, "run_jobs", self.run)
        monkeypatch.setattr(runs, "is_recorded", lambda folder, run_id: run_id in self.done)
        monkeypatch.setattr(runs.durations, "recorded", lambda config: None)
        monkeypatch.setattr(runs.durations, "estimated", self.estimated)

    def run(self, launcher: object, work: runs.Work, line: object) -> Tally:
        self.batches.append([job.run_id for job in work.jobs])
        for job in work.jobs:
            seconds = self._seconds(job)
            if self.now + seconds <= work.deadline:
                self.done[job.run_id] = seconds
            elif job.goes_on is not None:
                measured = Measured(kind_of(job), "code", 0.0, seconds / job.values["epochs"])
                pace.append(job.goes_on._file, measured)  # type: ignore[attr-defined]
        self.now += max(map(self._seconds, work.jobs)) * len(work.jobs) / (work.at_once or 1)
        return Tally()

    def estimated(self, jobs: list[Job], _: object) -> dict[str, float]:
        return {job.run_id: self._seconds(job) for job in jobs} if self.done else {}


def test_a_few_runs_measure_before_the_rest_starts(jobs: Jobs, tmp_path: Path, monkeypatch) -> None:
    """Two at a time, 100 s each, in 450 s: two to measure, six more, and the eighth and ninth cannot end."""
    lent = Lent(monkeypatch, lambda job: 100.0)
    entries = jobs("fig_3", "mnist_tanh")[:10]
    progress = Progress(Entry("fig_3"), list(entries))
    for _ in Lease(450.0, 2, tmp_path / "pace.jsonl", "code").carry_out(progress, None):  # type: ignore[arg-type]
        pass
    assert [len(batch) for batch in lent.batches] == [2, 8]
    assert set(progress.estimates.values()) == {100.0}
    assert {job.run_id for job in progress.recorded} == lent.done.keys()


def test_a_run_too_slow_is_not_started_again(jobs: Jobs, tmp_path: Path, monkeypatch) -> None:
    """Neither in this call nor in a later one that is as short, but in a longer one."""
    lent = Lent(monkeypatch, lambda job: 500.0)
    entries = jobs("fig_3", "mnist_tanh")[:4]
    for deadline, batches in ((400.0, 1), (400.0, 1), (600.0, 2)):
        lent.now = 0.0
        progress = Progress(Entry("fig_3"), list(entries))
        for _ in Lease(deadline, 2, tmp_path / "pace.jsonl", "code").carry_out(progress, None):  # type: ignore[arg-type]
            pass
        assert len(lent.batches) == batches
    assert len(progress.recorded) == 4


def test_a_stopped_run_leaves_its_pace_alone(jobs: Jobs, tmp_path: Path, monkeypatch) -> None:
    """In a real process, which is too slow for a deadline that is over after its first epoch."""
    monkeypatch.setattr(runs, "LEAST", 0.0)
    monkeypatch.setattr(runs.durations, "recorded", lambda config: Durations([]))
    listed = Entry("tempered_sigmoid/fig_3").jobs(
        ("scale=smoke", f"runtime.results_root={tmp_path}", "tracking=disabled")
    )
    progress = Progress(Entry("fig_3"), listed[:1])
    for _ in Lease(time.time() + 1, 1, tmp_path / "pace.jsonl", "code").carry_out(progress, Line()):
        pass
    assert (len(progress.left), progress.recorded, progress.failed) == (1, [], [])
    assert pace.measured(tmp_path / "pace.jsonl", "code")[kind_of(listed[0])].epoch > 0
    assert not list(tmp_path.rglob("stopped/*.json"))


def test_archives_are_below_the_limit(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(run, "LIMIT", 10_000)
    root = tmp_path / "elsewhere"
    files = [root / "runs" / f"{number}.json" for number in range(5)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(3_500))
    archives = run.pack(files, root, tmp_path / "out", "gpu-x")
    assert [path.name for path in archives] == [f"gpu-x-{number}.tar.gz" for number in (1, 2, 3)]
    assert all(path.stat().st_size < 10_000 for path in archives)
    for path in archives:
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path, filter="data")
    for file in files:
        assert (tmp_path / "results" / "runs" / file.name).read_bytes() == file.read_bytes()


def test_a_batch_is_padded_as_in_training() -> None:
    """By a third at 256, by a tenth at 2,048: see `runner.training.graph.batches.enough`."""
    assert [padded_length(batch) for batch in (256, 2048)] == [352, 2272]


def test_a_part_under_way_is_stopped_in_time() -> None:
    """With its process, wherever it is."""
    began = time.monotonic()
    with pytest.raises(run.OutOfTime), run._alarm(0.5):
        run._printed([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"])
    assert time.monotonic() - began < 30


def test_runs_need_a_parity_without_differences(tmp_path: Path, capsys) -> None:
    """A result of this code counts, also where it is that the GPU differs."""
    folder = tmp_path / "benchmark" / "made-up-gpu"
    folder.mkdir(parents=True)
    (folder / "benchmark.txt").write_text(f"code {code_digest()[:16]}\n")
    (folder / "parity.txt").write_text(f"code {code_digest()[:16]}\nDIFFERS  loss=sse\n1 differ\n")
    with made_up_cuda():
        (tmp_path / "none.yaml").write_text("[]")
        options = ["--rehearse", "--results", str(tmp_path), "--list", str(tmp_path / "none.yaml")]
        assert run._Call(run._arguments(options), time.time()).carry_out() == 1
    assert "there already: 1 differ" in (printed := capsys.readouterr().out)
    assert "none, as the GPU differs from the CPU" in printed


def test_a_record_made_without_git_names_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_REPRO_REVISION", "3d201ebe")
    assert provenance.git_revision() != "3d201ebe", "the checkout's own commit comes first"
    monkeypatch.setattr(provenance, "git", lambda *_: None)
    assert provenance.git_revision() == "3d201ebe"


def test_a_rehearsal_does_all_and_the_next_goes_on(tmp_path: Path) -> None:
    """In processes of its own, with a made-up GPU in each of them."""
    chosen = tmp_path / "runs.yaml"
    chosen.write_text("- {sweep: tempered_sigmoid/fig_3, where: {dataset.name: MNIST, seed: 0}}\n")
    arguments = ["--rehearse", "--minutes", "9", "--list", str(chosen), "--results", str(tmp_path / "all")]

    def call() -> str:
        output = tmp_path / f"out-{time.time_ns()}"
        done = subprocess.run(
            [sys.executable, "-m", "checks", "gpu", *arguments, "--jobs", "2"],
            cwd=REPOSITORY,
            env=os.environ | {"OUT": str(output)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.rpartition("\n\n")[2]

    first = call()
    assert "0 differ, " in first
    assert "fig_3 dataset.name=MNIST seed=0" in first
    assert "2 runs recorded" in first
    (archive,) = tmp_path.glob("out-*/*.tar.gz")
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    assert {"results/benchmark/made-up-gpu/parity.txt", "results/benchmark/made-up-gpu/engines.csv"} < set(names)
    records = [name for name in names if name.startswith("results/smoke/runs/")]
    assert len(records) == 2
    record = json.loads((tmp_path / "all" / records[0].removeprefix("results/")).read_text())
    assert (record["provenance"]["device"], record["provenance"]["step"]) == ("made-up GPU", "graph")
    second = call()
    assert second.count("there already: ") == 2
    assert "0 new files" in second

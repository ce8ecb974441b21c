"""Jobs that are trained together: which, and that each is recorded as if it had been alone."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path

import pytest

from runner.launch.lockstep import grouped
from runner.launch.processes import Work, run_jobs
from runner.records.files import claim, failure_path, results_folder
from runner.records.identity import identify
from runner.records.jobs import Job, sweep_jobs
from runner.runs.execute import execute, execute_together
from runner.terminal import Line
from runner.training.stacked import NotStackableError
from tests.conftest import quietly, record_of


def jobs_of(tmp_path: Path, *overrides: str, sweep: str = "tempered_sigmoid/text_sgd", seeds: int = 3) -> list[Job]:
    """Short runs on the digits: MNIST's and FashionMNIST's settings, with `seeds` seeds each."""
    extra = ("scale=smoke", "scale.epochs=1", f"scale.seeds={seeds}", "tracking=disabled", "diagnostics=[]", *overrides)
    jobs = copy.deepcopy(sweep_jobs(sweep, extra))  # listed once for all folders
    for job in jobs:
        job.config.runtime.results_root = str(tmp_path)
    return jobs


def test_runs_that_differ_in_seed_and_numbers_are_grouped(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "runtime.lockstep=2")
    groups = grouped(jobs)
    assert sorted(len(group) for group in groups) == [1, 1, 2, 2]
    assert sorted(job.run_id for group in groups for job in group) == sorted(job.run_id for job in jobs)
    assert all(len({job.config.dataset.name for job in group}) == 1 for group in groups)
    assert groups[0][0] == jobs[0]
    assert [len(group) for group in grouped(jobs_of(tmp_path))] == [1] * len(jobs)


def test_each_run_of_a_group_has_the_record_it_has_alone(tmp_path: Path) -> None:
    alone, together = (jobs_of(tmp_path / name, f"runtime.lockstep={n}") for name, n in (("alone", 1), ("group", 3)))
    alone, together = ([job for job in jobs if job.config.dataset.name == "MNIST"] for jobs in (alone, together))
    for job in alone:
        assert execute(job.config, quietly) == "finished"
    said = io.StringIO()
    assert len(run_jobs(Work(together, 1), Line(said)).recorded) == len(together) == 3
    assert said.getvalue().count("finished") == 3
    found = [[record_of(job.config) for job in jobs] for jobs in (alone, together)]
    for one, other in zip(*found, strict=True):
        assert {name: one[name] for name in ("run_id", "setting_id", "status", "config")} == {
            name: other[name] for name in ("run_id", "setting_id", "status", "config")
        }
        assert one["history"]["test_loss"] == pytest.approx(other["history"]["test_loss"], rel=1e-3)
        assert one["history"]["epsilon_sound"] == other["history"]["epsilon_sound"]
        assert (one["provenance"]["lockstep"], other["provenance"]["lockstep"]) == (1, 3)
        assert (one["provenance"]["step"], other["provenance"]["step"]) == ("eager", "graph")


def test_recorded_and_busy_runs_leave_a_group_and_the_others_are_trained(tmp_path: Path) -> None:
    configs = [job.config for job in jobs_of(tmp_path, seeds=4) if job.config.dataset.name == "MNIST"]
    assert execute(configs[0], quietly) == "finished"
    with claim(tmp_path, identify(configs[1])[0]) as claimed:
        assert claimed
        outcomes = execute_together(configs, quietly)
    assert outcomes == ["skipped", "busy", "finished", "finished"]
    recorded = {path.stem for path in tmp_path.rglob("runs/*.json")}
    assert recorded == {identify(configs[i])[0] for i in (0, 2, 3)}


def test_what_stops_a_group_is_written_for_each_of_its_runs(tmp_path: Path) -> None:
    configs = [copy.deepcopy(job.config) for job in jobs_of(tmp_path, seeds=2)][:2]

    def stop(row: dict[str, float], run: object) -> None:
        raise RuntimeError("made to stop")

    with pytest.raises(RuntimeError, match="made to stop"):
        execute_together(configs, stop)
    for config in configs:
        failure = json.loads(failure_path(results_folder(config), identify(config)[0]).read_text())
        assert failure["error"] == "RuntimeError: made to stop"
    assert not list(tmp_path.rglob("runs/*.json"))


def test_runs_that_cannot_be_stacked_are_trained_one_after_the_other(tmp_path: Path) -> None:
    """Random leaky units draw numbers, which a fixed sequence of calls would repeat."""
    jobs = []
    for job in [job for job in jobs_of(tmp_path, "runtime.lockstep=2", seeds=2) if job.config.dataset.name == "MNIST"]:
        config = copy.deepcopy(job.config)
        config.activation._target_ = "torch.nn.RReLU"
        jobs.append(Job.of(job.sweep, job.overrides, config))
    with pytest.raises(NotStackableError, match="RReLU is not a module"):
        execute_together([job.config for job in jobs], quietly)
    tally = run_jobs(Work(jobs, 1), Line(io.StringIO()))
    assert len(tally.recorded) == 2
    records = [record_of(job.config) for job in jobs]
    assert [record["provenance"]["lockstep"] for record in records] == [1, 1]


def test_a_search_over_numbers_is_one_group_a_data_set(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "runtime.lockstep=100", sweep="tempered_sigmoid/fig_2")
    assert len({job.config.activation.scale for job in jobs}) > 1
    assert len(grouped(jobs)) == len({job.config.dataset.name for job in jobs}) == 3

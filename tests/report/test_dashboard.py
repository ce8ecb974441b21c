"""Dashboards: the workspace for W&B, and the page and picture made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from checks.wandb_server import serving
from runner.claims.blocks import DATASETS
from runner.claims.runs import PlannedRun
from runner.config import REPOSITORY
from runner.records.files import read_record, record_path
from runner.records.jobs import sweep_jobs
from runner.report.dashboard import command as command
from runner.report.dashboard import local
from runner.report.dashboard.definition import TABLE, Panel, datasets, groups
from runner.report.papers import Paper, load
from runner.report.served import served
from tests.tracked import tracked_papers

RESULTS = REPOSITORY / "results"


@pytest.fixture
def paper() -> Paper:
    return load("tempered_sigmoid")


@pytest.fixture
def runs() -> dict[str, list[PlannedRun]]:
    """Read the recorded runs of one seed of a figure."""
    jobs = [job for job in sweep_jobs("tempered_sigmoid/fig_3") if job.config.seed == 0]
    found = [job for job in jobs if record_path(RESULTS, job.run_id).exists()]
    return {"fig-3": [PlannedRun(job, read_record(record_path(RESULTS, job.run_id))) for job in found]}


def test_every_paper_charts_items_of_its_own() -> None:
    for paper in map(load, tracked_papers()):
        assert {group.partition("/")[0] for group in groups(paper)} == {paper.name}
        assert set(datasets(paper)) == set(DATASETS)
    assert datasets(replace(load("lipschitz"), charted=("fig-5a",))) == ["MNIST"]


def test_the_frontier_is_what_no_point_at_or_below_beats() -> None:
    points = [(1.0, 80.0), (1.0, 82.0), (2.0, 81.0), (3.0, 90.0), (4.0, 85.0)]
    found = local.frontier([{"x": x, "y": y} for x, y in points])
    assert [(each["x"], each["y"]) for each in found] == [(1.0, 82.0), (3.0, 90.0), (4.0, 90.0)]


def test_points_are_runs_as_they_ended_and_a_sound_epsilon_is_one_that_holds(runs) -> None:
    (run,) = (run for run in runs["fig-3"] if run.name == "mnist_tanh")
    assert run.record is not None
    run.record["final"] |= {"epsilon_sound": 7.0, "epsilon_spent": 2.0}
    (row,) = local._rows(Panel("pareto", "epsilon_sound", "test_accuracy"), [run])
    assert (row["x"], row["y"]) == (7.0, run.final("test_accuracy"))
    curve = list(local._rows(Panel("curve", "epoch", "test_loss"), [run]))
    assert [each["y"] for each in curve] == run.history("test_loss")


def test_page_and_picture(paper, runs, tmp_path: Path) -> None:
    for module in ("altair", "itables", "vl_convert"):
        pytest.importorskip(module)
    text = local.page(paper, runs, RESULTS)
    assert text.count("fig-3, MNIST: Accuracy and its price") == 1
    assert runs["fig-3"][0].job.run_id in text
    header, rows = local.table(runs, RESULTS)
    (run_id,) = (run.job.run_id for run in runs["fig-3"] if run.name == "mnist_tanh")
    (tanh,) = (dict(zip(header, row, strict=True)) for row in rows if row[3] == run_id)
    assert "tempered_sigmoid/fig-3: MNIST" in tanh["claims"]
    assert tanh["verdicts"]
    local.chart(paper, runs).save(str(tmp_path / "picture.png"))
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_no_text_of_a_run_is_markup_on_the_page(paper, runs) -> None:
    """A sweep's overrides and a record's metrics: in the table, and in the chart's data, which are in a script."""
    run, evil = runs["fig-3"][0], "</script><img src=x onerror=alert(1)>"
    assert run.record is not None
    job = replace(run.job, overrides=dict(run.job.overrides) | {"loss.beta": evil})
    record = run.record | {"final": run.record["final"] | {TABLE[-1]: evil}}
    text = local.page(paper, {evil: [PlannedRun(job, record)]}, RESULTS)
    assert "onerror=alert(1)" in text
    assert "<img src=x" not in text
    assert evil not in text


def test_the_workspace_has_the_panels_and_the_groups(paper) -> None:
    pytest.importorskip("wandb_workspaces")
    from runner.report.dashboard.workspace import specification, workspace

    section = json.loads(specification(workspace(paper, "MNIST", "us", "ours")))["section"]
    panels = [panel for each in section["panelBankConfig"]["sections"] for panel in each["panels"]]
    axes = [(panel["config"]["xAxis"], panel["config"].get("showMaxYAxisLine")) for panel in panels]
    assert axes[:3] == [("summary:epsilon", True), ("summary:epsilon_sound", True), ("epsilon", None)]
    (runset,) = section["runSets"]
    assert [each["name"] for each in runset["grouping"]] == ["group", "jobType"]
    conditions = {each["key"]["name"]: each["value"] for each in runset["filters"]["filters"]}
    assert "tempered_sigmoid/fig-3" in conditions["group"]
    assert "MNIST" in conditions.values()
    assert "summary:verdicts" in runset["runFeed"]["columnOrder"]


def test_with_a_login_it_is_saved(paper, tmp_path: Path) -> None:
    """To a local server, by W&B's own package."""
    pytest.importorskip("wandb_workspaces")
    main = "import runner.report.dashboard.command as command; command._write_page = print; command.main({})"
    code = main.format(["tempered-sigmoid", "--output", str(tmp_path)])
    with serving() as server:
        environment = os.environ | {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, cwd=REPOSITORY)
    titles = [f"{paper.title} ({name})" for name in DATASETS]
    assert [view["displayName"] for view in server.views] == titles
    assert {(view["entityName"], view["projectName"]) for view in server.views} == {("me", "dp-repro-bench")}


def test_without_a_login_it_is_written_and_said(paper, tmp_path, monkeypatch, capsys, refusal) -> None:
    monkeypatch.setattr(command, "_write_page", lambda *_: None)
    monkeypatch.setattr("wandb.login", lambda prompt: False)
    monkeypatch.setattr(command, "workspace", lambda *of: of)
    monkeypatch.setattr(command, "specification", str)
    arguments = ["tempered-sigmoid", "--output", str(tmp_path)]
    assert command.main(arguments) == 0
    names = {f"tempered_sigmoid-{name}.json" for name in DATASETS}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert "needs a W&B login" in capsys.readouterr().err

    def absent(*_: object) -> None:
        raise ImportError(name="wandb_workspaces")

    monkeypatch.setattr(command, "workspace", absent)
    assert "pip install -e '.[dashboard]'" in refusal(command.main, arguments)


def test_the_claims_of_a_run_are_named() -> None:
    found = served(RESULTS, "tempered_sigmoid/fig_3", "tempered_sigmoid/mnist_tanh")
    assert any("fig-3: MNIST" in claim and "98.0%" in claim and "at ε 2.93" in claim for claim in found)
    assert served(RESULTS, "mine/sweep", "mine/experiment") == {}

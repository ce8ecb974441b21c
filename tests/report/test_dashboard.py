"""Dashboards: their definitions, the workspace for W&B, and the page and picture made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from checks.wandb_server import serving
from runner.claims.runs import PlannedRun
from runner.config import REPOSITORY
from runner.records.files import read_record, record_path
from runner.records.jobs import sweep_jobs
from runner.report.dashboard import command as command
from runner.report.dashboard import definition, local
from runner.report.dashboard.definition import Dashboard, Panel, read
from runner.report.papers import known
from runner.report.served import served, tell

RESULTS = REPOSITORY / "results"


@pytest.fixture
def dashboard() -> Dashboard:
    """Read the first paper's dashboard."""
    return read("tempered_sigmoid")


@pytest.fixture
def runs() -> dict[str, list[PlannedRun]]:
    """Read the recorded runs of one seed of a figure."""
    jobs = [job for job in sweep_jobs("tempered_sigmoid/fig_3") if job.config.seed == 0]
    found = [job for job in jobs if record_path(RESULTS, job.run_id).exists()]
    return {"fig-3": [PlannedRun(job, read_record(record_path(RESULTS, job.run_id))) for job in found]}


@pytest.mark.parametrize("paper", known())
def test_every_paper_shows_accuracy_against_both_epsilons(paper: str) -> None:
    found = read(paper)
    paretos = {panel.x for panels in found.sections.values() for panel in panels if panel.kind == "pareto"}
    assert paretos == {"epsilon", "epsilon_sound_guaranteed"}
    assert {"claims", "verdicts", "epsilon", "epsilon_sound_guaranteed"} <= set(found.table)
    assert all(group.startswith(f"{paper}/") for group in found.groups)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("items: [fig-99]", "fig-99"),
        ("colour: red", "colour"),
        ("sections: {a: [{kind: pie, x: epsilon, y: loss}]}", r"sections\.a\.0\.kind"),
        ("sections: {a: [{kind: curve, x: steps, y: loss}]}", r"sections\.a\.0\.x"),
        ("title: [", "dashboard.yaml"),
    ],
)
def test_a_wrong_definition_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, said: str) -> None:
    lines = ["title: x", "items: [fig-3]", "datasets: [MNIST]", "sections: {}", "table: [epsilon]"]
    name = wrong.partition(":")[0]
    path = tmp_path / "papers" / "tempered_sigmoid" / "dashboard.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([line for line in lines if not line.startswith(name)] + [wrong]))
    monkeypatch.setattr(definition, "PACKAGE", tmp_path)
    with pytest.raises(ValueError, match=said) as refused:
        read("tempered_sigmoid")
    assert "\n" not in str(refused.value)


def test_the_frontier_is_what_no_point_at_or_below_beats() -> None:
    points = [(1.0, 80.0), (1.0, 82.0), (2.0, 81.0), (3.0, 90.0), (4.0, 85.0)]
    found = local.frontier([{"x": x, "y": y} for x, y in points])
    assert [(each["x"], each["y"]) for each in found] == [(1.0, 82.0), (3.0, 90.0), (4.0, 90.0)]


def test_points_are_runs_as_they_ended_and_a_sound_epsilon_is_one_that_holds(runs) -> None:
    (run,) = (run for run in runs["fig-3"] if run.name == "mnist_tanh")
    assert run.record is not None
    run.record["final"]["epsilon_sound_at_max_tries"] = 7.0
    (row,) = local._rows(Panel(kind="pareto", x="epsilon_sound_guaranteed", y="test_accuracy"), [run])
    assert (row["x"], row["y"]) == (7.0, run.final("test_accuracy"))
    curve = list(local._rows(Panel(kind="curve", x="epoch", y="test_loss"), [run]))
    assert [each["y"] for each in curve] == run.history("test_loss")


def test_page_and_picture(dashboard, runs, tmp_path: Path) -> None:
    for module in ("altair", "itables", "vl_convert"):
        pytest.importorskip(module)
    text = local.page(dashboard, runs, RESULTS)
    assert text.count("fig-3, MNIST: Accuracy and its price") == 1
    assert runs["fig-3"][0].job.run_id in text
    header, rows = local.table(dashboard, runs, RESULTS)
    (run_id,) = (run.job.run_id for run in runs["fig-3"] if run.name == "mnist_tanh")
    (tanh,) = (dict(zip(header, row, strict=True)) for row in rows if row[3] == run_id)
    assert "tempered_sigmoid/fig-3: MNIST" in tanh["claims"]
    assert tanh["verdicts"]
    local.chart(dashboard, runs).save(str(tmp_path / "picture.png"))
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_no_text_of_a_run_is_markup_on_the_page(dashboard, runs) -> None:
    """A sweep's overrides and a record's metrics: in the table, and in the chart's data, which are in a script."""
    run, evil = runs["fig-3"][0], "</script><img src=x onerror=alert(1)>"
    assert run.record is not None
    job = replace(run.job, overrides=dict(run.job.overrides) | {"loss.beta": evil})
    record = run.record | {"final": run.record["final"] | {dashboard.table[-1]: evil}}
    text = local.page(dashboard, {evil: [PlannedRun(job, record)]}, RESULTS)
    assert "onerror=alert(1)" in text
    assert "<img src=x" not in text
    assert evil not in text


def test_the_workspace_has_the_panels_and_the_groups(dashboard) -> None:
    pytest.importorskip("wandb_workspaces")
    from runner.report.dashboard.workspace import specification, workspace

    section = json.loads(specification(workspace(dashboard, "MNIST", "us", "ours")))["section"]
    panels = [panel for each in section["panelBankConfig"]["sections"] for panel in each["panels"]]
    axes = [(panel["config"]["xAxis"], panel["config"].get("showMaxYAxisLine")) for panel in panels]
    assert axes[:3] == [("summary:epsilon", True), ("summary:epsilon_sound_guaranteed", True), ("epsilon", None)]
    assert {panel["config"]["xAxis"] for panel in panels[-3:]} == {"by_step/step"}, "beside both accuracies"
    (runset,) = section["runSets"]
    assert [each["name"] for each in runset["grouping"]] == ["group", "jobType"]
    conditions = {each["key"]["name"]: each["value"] for each in runset["filters"]["filters"]}
    assert "tempered_sigmoid/fig-3" in conditions["group"]
    assert "MNIST" in conditions.values()
    assert "summary:verdicts" in runset["runFeed"]["columnOrder"]


def test_with_a_login_it_is_saved(dashboard, tmp_path: Path) -> None:
    """To a local server, by W&B's own package."""
    pytest.importorskip("wandb_workspaces")
    main = "import runner.report.dashboard.command as command; command._write_page = print; command.main({})"
    code = main.format(["tempered-sigmoid", "--output", str(tmp_path)])
    with serving() as server:
        environment = os.environ | {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "0" * 40}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, cwd=REPOSITORY)
    titles = [f"{dashboard.title} ({name})" for name in dashboard.datasets]
    assert [view["displayName"] for view in server.views] == titles
    assert {(view["entityName"], view["projectName"]) for view in server.views} == {("me", "dp-repro-bench")}


def test_without_a_login_it_is_written_and_said(dashboard, tmp_path, monkeypatch, capsys, refusal) -> None:
    monkeypatch.setattr(command, "_write_page", lambda *_: None)
    monkeypatch.setattr("wandb.login", lambda prompt: False)
    monkeypatch.setattr(command, "workspace", lambda *of: of)
    monkeypatch.setattr(command, "specification", str)
    arguments = ["tempered-sigmoid", "--output", str(tmp_path)]
    assert command.main(arguments) == 0
    names = {f"tempered_sigmoid-{name}.json" for name in dashboard.datasets}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert "needs a W&B login" in capsys.readouterr().err

    def absent(*_: object) -> None:
        raise ImportError(name="wandb_workspaces")

    monkeypatch.setattr(command, "workspace", absent)
    assert "pip install -e '.[dashboard]'" in refusal(command.main, arguments)


def test_a_run_is_told_what_it_serves() -> None:
    found = served(RESULTS, "tempered_sigmoid/fig_3", "tempered_sigmoid/mnist_tanh")
    assert any("fig-3: MNIST" in claim and "98.0%" in claim and "at ε 2.93" in claim for claim in found)
    assert served(RESULTS, "mine/sweep", "mine/experiment") == {}
    extra = ("scale=paper", "tracking.mode=offline", f"runtime.results_root={RESULTS}")
    job = next(job for job in sweep_jobs("tempered_sigmoid/fig_3", extra) if job.field("seed") == 0)
    tell([job], [job])
    assert job.config.tracking.serves == served(RESULTS, job.sweep, job.experiment)

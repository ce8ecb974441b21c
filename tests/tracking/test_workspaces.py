"""Workspaces, saved by W&B's own package on a server of the test's own."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from checks.wandb_server import serving
from runner.claims.claim import DATASETS
from runner.cli.dashboard import COLUMNS, main, values_of
from runner.report.papers import load
from runner.tracking import runs as tracking
from tests.tracked import tracked_papers


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the workspaces that the command sends for one paper."""
    pytest.importorskip("wandb_workspaces")
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        assert main(["tempered-sigmoid"]) == 0
    tracking.check_login.cache_clear()
    return server.views


def test_every_paper_charts_items_of_its_own() -> None:
    for paper in map(load, tracked_papers()):
        assert {group.partition("/")[0] for group in values_of(paper, "tracking.group")} == {paper.name}
        assert set(values_of(paper, "dataset.name")) == set(DATASETS)
    assert values_of(replace(load("lipschitz"), charted=("fig-5a",)), "dataset.name") == ["MNIST"]


def test_a_view_for_each_data_set_is_saved(views: list[dict[str, Any]]) -> None:
    title = load("tempered_sigmoid").title
    assert [view["displayName"] for view in views] == [f"{title} ({name})" for name in DATASETS]
    assert {(view["entityName"], view["projectName"]) for view in views} == {("me", "dp-repro-bench")}

    section = json.loads(views[0]["spec"])["section"]
    bank = section["panelBankConfig"]["sections"]
    panels = {part["name"]: [panel["config"] for panel in part["panels"]] for part in bank if part["panels"]}
    points, curves = panels["Accuracy and its price"], panels["By epoch"]
    assert [(panel["xAxis"], panel["yAxis"], panel["showMaxYAxisLine"]) for panel in points] == [
        ("summary:epsilon", "summary:test_accuracy", True),
        ("summary:epsilon_sound", "summary:test_accuracy", True),
    ]
    assert [(panel["xAxis"], panel["metrics"]) for panel in curves] == [
        ("epsilon", ["test_accuracy"]),
        ("epsilon_sound", ["test_accuracy"]),
        ("epoch", ["test_loss"]),
    ]


def test_a_view_shows_its_papers_runs_by_setting(views: list[dict[str, Any]]) -> None:
    """Smoke runs have the same groups and data sets, and are left out."""
    for view, dataset in zip(views, DATASETS, strict=True):
        (runset,) = json.loads(view["spec"])["section"]["runSets"]
        filters = {(part["key"]["section"], part["key"]["name"]): part for part in runset["filters"]["filters"]}
        assert {part["op"] for part in filters.values()} == {"IN"}
        assert "tempered_sigmoid/fig-3" in filters["run", "group"]["value"]
        assert filters["config", "dataset.value.name"]["value"] == [dataset]
        assert filters["config", "scale.value.name"]["value"] == ["paper"]
        assert [part["name"] for part in runset["grouping"]] == ["group", "jobType"]
        assert runset["runFeed"]["columnOrder"][-len(COLUMNS) :] == list(COLUMNS)


def test_without_a_login_two_lines_say_what_helps(monkeypatch, tmp_path, capsys) -> None:
    (tmp_path / "wandb.py").write_text("def login(prompt):\n    return False\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main(["tempered-sigmoid"]) == 2
    login, without = capsys.readouterr().err.splitlines()
    assert "`wandb login`" in login
    assert "--host=URL" in login
    assert "`wandb leet run" in without


def test_without_the_extra_its_name_is_given(monkeypatch, refusal) -> None:
    monkeypatch.setattr("runner.cli.dashboard.check_login", lambda what: None)
    monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
    assert "pip install -e '.[dashboard]'" in refusal(main, ["tempered-sigmoid", "--entity", "me"])

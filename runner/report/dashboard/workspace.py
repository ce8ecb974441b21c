"""The dashboard as a workspace of W&B: panels by section, runs grouped by item and experiment."""

from __future__ import annotations

from typing import Any

from runner.report.dashboard.definition import SECTIONS, TABLE, Panel, groups
from runner.report.items import Paper
from runner.runs.tracking import AXES

_MOST_RUNS = 100  # of a panel


def workspace(of: Paper, dataset: str, entity: str, project: str) -> Any:
    """Make a `wandb_workspaces.workspaces.Workspace` of the runs on one data set, without saving it.

    Raises:
        ImportError: the extra is not installed.
    """
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces import expr

    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"{of.title} ({dataset})",
        sections=[
            ws.Section(name=name, panels=[_panel(wr, panel) for panel in panels], is_open=True)
            for name, panels in SECTIONS.items()
        ],
        settings=ws.WorkspaceSettings(x_axis=AXES[0], max_runs=_MOST_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(expr.Metric("Group").isin(groups(of)), expr.Config("dataset.name") == dataset),
            groupby=[expr.Metric("Group"), expr.Metric("JobType")],
            pinned_columns=[f"summary:{name}" for name in TABLE],
        ),
    )


def specification(made: Any) -> str:
    """Return the JSON that W&B would be sent. The package has no public method for this."""
    text: str = made._to_model().spec.model_dump_json(by_alias=True, exclude_none=True, indent=1)
    return text


def _panel(wr: Any, panel: Panel) -> Any:
    if panel.kind == "curve":
        return wr.LinePlot(title=panel.title, x=panel.x, y=[panel.y], max_runs_to_show=_MOST_RUNS)
    metrics = wr.SummaryMetric(panel.x), wr.SummaryMetric(panel.y)
    return wr.ScatterPlot(title=panel.title, x=metrics[0], y=metrics[1], running_ymax=True)

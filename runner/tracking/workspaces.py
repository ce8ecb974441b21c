"""Workspaces of W&B: panels by section, and runs of one data set grouped by item and experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.config import PAPER, ConfigError
from runner.terminal import one_line
from runner.tracking.runs import AXES

_AXIS_TITLES = {
    "epsilon": "ε as the paper counts",
    "epsilon_sound": "sound ε",
    "epoch": "epoch",
}
_CURVES = "By epoch"
SECTIONS = {  # x and y of each panel: a point for each run and the best so far, or a line for each run
    "Accuracy and its price": (("epsilon", "test_accuracy"), ("epsilon_sound", "test_accuracy")),
    _CURVES: (("epsilon", "test_accuracy"), ("epsilon_sound", "test_accuracy"), ("epoch", "test_loss")),
}
COLUMNS = (  # of the table of runs
    *("summary:test_accuracy", "summary:best_test_accuracy", "summary:epsilon", "summary:epsilon_sound"),
    *("config:seed.value", "config:optimizer.value.lr", "config:noise_multiplier.value"),
)
_MOST_RUNS = 100  # of a panel


def default_entity() -> str:
    """Return whose projects a login is for.

    Raises:
        ConfigError: W&B does not say.
    """
    import wandb

    try:
        return str(wandb.Api().default_entity)
    except Exception as error:  # several classes, not all of them W&B's
        raise ConfigError(f"{type(error).__name__} {one_line(str(error))}") from error


def save_workspace(title: str, groups: Sequence[str], dataset: str, entity: str, project: str) -> str:
    """Save a new view of the runs of some groups on one data set, at the paper's scale. Return its address.

    Raises:
        ConfigError: W&B does not take it.
        ImportError: the extra is not installed.
    """
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces import expr

    sections = [
        ws.Section(name=name, panels=[_panel(wr, name, x, y) for x, y in panels], is_open=True)
        for name, panels in SECTIONS.items()
    ]
    fields = {"dataset.value.name": dataset, "scale.value.name": PAPER}  # W&B stores a group below `value`
    made: Any = ws.Workspace(
        entity=entity,
        project=project,
        name=f"{title} ({dataset})",
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis=AXES[0], max_runs=_MOST_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(
                expr.Metric("Group").isin(list(groups)),
                *(expr.Config(name).isin([value]) for name, value in fields.items()),
            ),
            groupby=[expr.Metric("Group"), expr.Metric("JobType")],
            pinned_columns=list(COLUMNS),
        ),
    )
    try:
        made.save_as_new_view()
    except Exception as error:
        raise ConfigError(f"W&B did not take the workspace: {type(error).__name__} {one_line(str(error))}") from error
    return str(made.url)


def _panel(wr: Any, section: str, x: str, y: str) -> Any:
    title = f"{y.replace('_', ' ')} against {_AXIS_TITLES[x]}"
    if section == _CURVES:
        return wr.LinePlot(title=title, x=x, y=[y], max_runs_to_show=_MOST_RUNS)
    return wr.ScatterPlot(title=title, x=wr.SummaryMetric(x), y=wr.SummaryMetric(y), running_ymax=True)

"""`python -m runner dashboard`: workspaces in W&B for each paper, one for each data set of its charted items.

Exit codes: 0 saved, 2 bad input, no login, a missing library, or a refusal by W&B.
"""

import sys
from collections.abc import Sequence
from typing import Any

from runner.config import PAPER, ConfigError
from runner.records.jobs import sweep_jobs
from runner.report.papers import Paper, every_paper, load
from runner.terminal import Line, Parser, one_line
from runner.tracking.writer import AXES, check_login

PROJECT = "dp-repro-bench"  # as conf/tracking names it
_WITHOUT = "Without an account, `wandb leet run FOLDER` draws the curves of a run in wandb/ in the terminal."
_AXIS_TITLES = {"epsilon": "ε as the paper counts", "epsilon_sound": "sound ε", "epoch": "epoch"}
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


def main(arguments: Sequence[str]) -> int:
    parser = Parser(prog="python -m runner dashboard", description=__doc__.partition("\n")[0])
    parser.add_argument("papers", nargs="*", help="default: all")
    parser.add_argument("--project", default=PROJECT, help=f"of W&B (default: {PROJECT})")
    parser.add_argument("--entity", help="of W&B (default: the login's)")
    options = parser.parse_args(arguments)
    papers = [load(name) for name in options.papers] or every_paper()
    try:
        check_login("A workspace")
    except ConfigError as error:
        print(f"dashboard: {error}\n{_WITHOUT}", file=sys.stderr)
        return 2
    import wandb

    try:
        entity = options.entity or str(wandb.Api().default_entity)
    except Exception as error:  # several classes, not all of them W&B's
        raise ConfigError(f"{type(error).__name__} {one_line(str(error))}") from error
    line = Line(at_once=False)
    for number, paper in enumerate(papers, 1):
        line.show(f"{paper.name}: its workspaces, paper {number} of {len(papers)} ...")
        groups = values_of(paper, "tracking.group")
        saved = [
            save_workspace(paper.title, groups, dataset, entity, options.project)
            for dataset in values_of(paper, "dataset.name")
        ]
        line.clear()
        print("\n".join(saved))
    return 0


def values_of(paper: Paper, field: str) -> list[str]:
    """Return the values of a config field in the runs of a paper's charted items."""
    sweeps = [sweep for name in paper.charted for sweep in paper.needs(paper.item(name))]
    return list(dict.fromkeys(str(job.field(field)) for sweep in sweeps for job in sweep_jobs(sweep)))


def save_workspace(title: str, groups: Sequence[str], dataset: str, entity: str, project: str) -> str:
    """Save a new view of the runs of some groups on one data set, at the paper's scale. Return its address.

    Raises:
        ConfigError: W&B does not take it.
        ImportError: the extra is not installed.
    """
    import wandb_workspaces.reports.v2 as reports
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces import expr

    wr: Any = reports

    def panel_of(section: str, x: str, y: str) -> Any:
        title = f"{y.replace('_', ' ')} against {_AXIS_TITLES[x]}"
        if section == _CURVES:
            return wr.LinePlot(title=title, x=x, y=[y], max_runs_to_show=_MOST_RUNS)
        return wr.ScatterPlot(title=title, x=wr.SummaryMetric(x), y=wr.SummaryMetric(y), running_ymax=True)

    sections = [
        ws.Section(name=name, panels=[panel_of(name, x, y) for x, y in panels], is_open=True)
        for name, panels in SECTIONS.items()
    ]
    fields = {"dataset.value.name": dataset, "scale.value.name": PAPER}  # W&B stores a group below `value`
    workspace: Any = ws.Workspace(
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
        workspace.save_as_new_view()
    except Exception as error:
        raise ConfigError(f"W&B did not take the workspace: {type(error).__name__} {one_line(str(error))}") from error
    return str(workspace.url)

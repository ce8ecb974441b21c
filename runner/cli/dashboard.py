"""`python -m runner dashboard`: workspaces in W&B for each paper, one for each data set of its charted items.

Exit codes: 0 saved, 2 bad input, no login, a missing library, or a refusal by W&B.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from runner.config import ConfigError
from runner.records.jobs import sweep_jobs
from runner.report.items import Paper
from runner.report.papers import every_paper, load
from runner.terminal import Line, Parser
from runner.tracking.runs import check_login
from runner.tracking.workspaces import default_entity, save_workspace

PROJECT = "dp-repro-bench"  # as conf/tracking names it
_WITHOUT = "Without an account, `wandb leet run FOLDER` draws the curves of a run in wandb/ in the terminal."


def main(arguments: Sequence[str]) -> int:
    """Save the workspaces, print their addresses, and return the exit code."""
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
    entity, line = options.entity or default_entity(), Line(at_once=False)
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

"""`python -m runner dashboard`: each paper's dashboard, for a browser and, with a login, for W&B.

For every paper, or the papers named, it writes `<paper>.html` and `<paper>.png` into results/dashboard, which git
ignores. With the extra `dashboard` it also writes `<paper>-<data set>.json`, the workspace in W&B's format.

Exit codes: 0 written (and saved, with a login), 2 bad input, a missing library, or a refusal by W&B, with one sentence.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.config import RESULTS, ConfigError
from runner.report.dashboard import local
from runner.report.dashboard.definition import datasets
from runner.report.dashboard.workspace import specification, workspace
from runner.report.files import write_text
from runner.report.papers import Paper, every_paper, load
from runner.runs.tracking import check_login, default_entity, within
from runner.terminal import Line, Parser

PROJECT = "dp-repro-bench"  # as conf/tracking names it
_SCALE = 1.5  # pixels of the picture for one of the page
_NOBODY = "ENTITY"


def main(arguments: Sequence[str]) -> int:
    """Write the dashboards, and return the exit code."""
    parser = Parser(prog="python -m runner dashboard", description=__doc__.partition("\n")[0])
    parser.add_argument("papers", nargs="*", help="default: all")
    parser.add_argument("--output", type=Path, default=RESULTS / "dashboard")
    parser.add_argument("--project", default=PROJECT, help=f"of W&B (default: {PROJECT})")
    parser.add_argument("--entity", help="of W&B (default: the login's)")
    parser.add_argument("--local", action="store_true", help="leave W&B alone, login or not")
    chosen = parser.parse_args(arguments)
    papers, line = [load(name) for name in chosen.papers] or every_paper(), Line(at_once=False)
    for number, each in enumerate(papers, 1):
        line.show(f"{each.name}: its runs and charts, dashboard {number} of {len(papers)} ...")
        _write_page(each, chosen.output, line)
    print(f"To look at, in a browser: {chosen.output}/*.html")
    _for_wandb(papers, chosen)
    return 0


def _write_page(of: Paper, folder: Path, line: Line) -> None:
    runs = local.recorded(of)
    line.clear()
    if not runs:
        print(f"{of.name}: no run of its charted items is recorded, so there is nothing to draw.")
        return
    picture = folder / f"{of.name}.png"
    print(write_text(folder / f"{of.name}.html", local.page(of, runs, RESULTS)))
    local.chart(of, runs).save(str(picture), scale_factor=_SCALE)
    print(picture)


def _for_wandb(papers: Sequence[Paper], chosen: Any) -> None:
    entity, why = chosen.entity, "--local was asked for"
    if not chosen.local:
        try:
            check_login("a workspace in W&B")
            entity, why = entity or default_entity(), ""
        except ConfigError as error:
            why = str(error).rstrip(".")
    for each, dataset in [(paper, name) for paper in papers for name in datasets(paper)]:
        made = workspace(each, dataset, entity or _NOBODY, chosen.project)
        print(write_text(chosen.output / f"{each.name}-{dataset}.json", specification(made)))
        if not why:
            _save(made)
    if why:
        print(f"dashboard: nothing was sent to W&B: {why}.", file=sys.stderr)


def _save(made: Any) -> None:
    """Save a workspace in W&B, or raise a ConfigError with W&B's error."""
    try:
        within(made.save_as_new_view)
    except Exception as error:
        raise ConfigError(f"W&B did not take the workspace: {type(error).__name__} {error}") from error
    print(made.url)

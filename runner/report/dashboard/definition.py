"""Panels of a dashboard, for each charted item and data set of a paper, and the columns of its table of runs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from runner.records.jobs import sweep_jobs
from runner.report.items import Paper

AXIS_TITLES = {
    "epsilon": "ε as the paper counts",
    "epsilon_sound": "sound ε",
    "epoch": "epoch",
}


class Panel(NamedTuple):
    """A panel: `pareto`, a point for each run and the best at or below each x; `curve`, a line for each run by epoch.

    x: of `AXIS_TITLES`.
    y: a metric of the history; for `pareto` one of the final metrics.
    """

    kind: Literal["pareto", "curve"]
    x: str
    y: str

    @property
    def title(self) -> str:
        """`test accuracy against sound ε`."""
        return f"{self.y.replace('_', ' ')} against {AXIS_TITLES[self.x]}"


SECTIONS = {
    "Accuracy and its price": (
        Panel("pareto", "epsilon", "test_accuracy"),
        Panel("pareto", "epsilon_sound", "test_accuracy"),
    ),
    "By epoch": (
        Panel("curve", "epsilon", "test_accuracy"),
        Panel("curve", "epsilon_sound", "test_accuracy"),
        Panel("curve", "epoch", "test_loss"),
    ),
}
TABLE = ("test_accuracy", "best_test_accuracy", "epsilon", "epsilon_sound", "claims", "verdicts")


def groups(paper: Paper) -> list[str]:
    """Return the `tracking.group` of the sweeps of the paper's charted items, their names in W&B."""
    return _values(paper, "tracking.group")


def datasets(paper: Paper) -> list[str]:
    """Return the names of the data sets of the runs of the paper's charted items."""
    return _values(paper, "dataset.name")


def _values(paper: Paper, field: str) -> list[str]:
    sweeps = [sweep for name in paper.charted for sweep in paper.needs(paper.item(name))]
    return list(dict.fromkeys(str(job.field(field)) for sweep in sweeps for job in sweep_jobs(sweep)))

"""The definition of a dashboard: runner/papers/<paper>/dashboard.yaml."""

from __future__ import annotations

from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.config import PACKAGE
from runner.records.jobs import sweep_jobs
from runner.report.papers import load

Axis = Literal["epsilon", "epsilon_sound", "epsilon_sound_guaranteed", "epoch"]

AXIS_TITLES: dict[str, str] = {
    "epsilon": "ε as the paper counts",
    "epsilon_sound": "sound ε",
    "epsilon_sound_guaranteed": "sound ε, guaranteed",
    "epoch": "epoch",
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Panel(_Strict):
    """A panel: `pareto`, a point for each run and the best at or below each x; `curve`, a line for each run by epoch.

    y: a metric of the history; for `pareto` one of the final metrics.
    """

    kind: Literal["pareto", "curve"]
    x: Axis
    y: str

    @property
    def title(self) -> str:
        """`test accuracy against sound ε`."""
        return f"{self.y.replace('_', ' ')} against {AXIS_TITLES[self.x]}"


_SECTIONS = {
    "Accuracy and its price": (
        Panel(kind="pareto", x="epsilon", y="test_accuracy"),
        Panel(kind="pareto", x="epsilon_sound_guaranteed", y="test_accuracy"),
    ),
    "By epoch": (
        Panel(kind="curve", x="epsilon", y="test_accuracy"),
        Panel(kind="curve", x="epsilon_sound", y="test_accuracy"),
        Panel(kind="curve", x="epoch", y="test_loss"),
    ),
}
_TABLE = ("test_accuracy", "best_test_accuracy", "epsilon", "epsilon_sound_guaranteed", "claims", "verdicts")


class Dashboard(_Strict):
    """Sections of panels, separately for each of the `items` and `datasets`, and the columns of a table of runs."""

    paper: str
    title: str
    items: tuple[str, ...] = Field(min_length=1)
    datasets: tuple[str, ...] = Field(("MNIST", "FashionMNIST", "CIFAR10"), min_length=1)
    sections: dict[str, tuple[Panel, ...]] = _SECTIONS
    table: tuple[str, ...] = _TABLE

    @property
    def groups(self) -> list[str]:
        """The `tracking.group` of these items' sweeps, their names in W&B."""
        paper = load(self.paper)
        sweeps = [sweep for item in self.items for sweep in paper.item(item).sweeps]
        return list(dict.fromkeys(str(sweep_jobs(sweep)[0].field("tracking.group")) for sweep in sweeps))


def read(paper: str) -> Dashboard:
    """Read the dashboard of a paper.

    Raises:
        ValueError: the file is not a dashboard, or names an item that the paper does not have.
    """
    path = PACKAGE / "papers" / paper / "dashboard.yaml"
    try:
        found = Dashboard(paper=paper, **yaml.safe_load(path.read_text(encoding="utf-8")))
        for item in found.items:
            load(paper).item(item)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from error
    except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    return found

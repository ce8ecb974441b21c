"""What a dashboard shows: runner/papers/<paper>/dashboard.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.config import REPOSITORY
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
    """`pareto`: a point a run, as it ended, and the best there is at or below each x; `curve`: a line a run, by epoch.

    y: a number of the history, or, of a pareto, of what a run ended with.
    """

    kind: Literal["pareto", "curve"]
    x: Axis
    y: str

    @property
    def title(self) -> str:
        """`test accuracy against sound ε`."""
        return f"{self.y.replace('_', ' ')} against {AXIS_TITLES[self.x]}"


class Dashboard(_Strict):
    """Sections of panels, over the runs of a paper's `items` on each of the `datasets` by itself, and the columns of a
    table of them.
    """

    paper: str
    title: str
    items: tuple[str, ...] = Field(min_length=1)
    datasets: tuple[str, ...] = Field(min_length=1)
    sections: dict[str, tuple[Panel, ...]]
    table: tuple[str, ...]

    @property
    def groups(self) -> list[str]:
        """What the sweeps of these items call themselves in W&B: their `tracking.group`."""
        paper = load(self.paper)
        sweeps = [sweep for item in self.items for sweep in paper.item(item).sweeps]
        said = [
            yaml.safe_load((REPOSITORY / "sweeps" / f"{sweep}.yaml").read_text(encoding="utf-8")) for sweep in sweeps
        ]
        return list(dict.fromkeys(each["tracking"]["group"] for each in said))


def path_of(paper: str) -> Path:
    """Where a paper's definition is."""
    return REPOSITORY / "runner" / "papers" / paper / "dashboard.yaml"


def read(paper: str) -> Dashboard:
    """The dashboard of a paper.

    Raises:
        ValueError: in one sentence, where it is not one, or names an item that the paper has not.
    """
    path = path_of(paper)
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

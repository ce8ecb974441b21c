"""Methods of the leaderboard and the settings that belong to them (methods.yaml)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from runner.records.jobs import Job
from runner.report.files import plus_minus

ADDED = "add-or-remove-one"  # the neighbouring data sets of most methods
HELD_OUT = "held-out"  # a tag of experiments whose settings were chosen on held-out training images
SEARCHED = "searched on held-out images"
_PATH = Path(__file__).with_name("methods.yaml")


@dataclass(frozen=True)
class Methods:
    """Methods in order, studies on the leaderboard, and how settings were chosen, by the folder of an experiment."""

    methods: Sequence[Mapping[str, Any]]
    studies: Sequence[str]
    chosen: Mapping[str, str]

    @classmethod
    def read(cls, path: Path = _PATH) -> Methods:
        """Read the file."""
        return cls(**yaml.safe_load(path.read_text(encoding="utf-8")))

    @property
    def names(self) -> list[str]:
        """The names of the methods. The first is the baseline."""
        return [method["name"] for method in self.methods]

    @cached_property
    def looks(self) -> dict[str, str]:
        """The name of each method in `LOOKS` of `runner.report.plots`, by its name here."""
        return {method["name"]: method["look"] for method in self.methods}

    @cached_property
    def ideas(self) -> dict[str, str]:
        """The idea that a method is named after, by its name, if there is one."""
        return {method["name"]: method["idea"] for method in self.methods if "idea" in method}

    def of(self, job: Job) -> str:
        """Return the first method with a pattern of the experiment and overrides of a job, or ""."""
        has = {f"{name}={value}" for name, value in job.overrides.items()}

        def is_of(setting: str) -> bool:
            pattern, *told = setting.split()
            return fnmatchcase(job.experiment, pattern) and has.issuperset(told)

        return next((method["name"] for method in self.methods if any(map(is_of, method["settings"]))), "")

    def first(self, *names: str) -> str:
        """Return which of some methods comes first in the file; "" is none, and comes last."""
        return min(names, key=[*self.names, ""].index)

    def how_chosen(self, job: Job, held_out: bool) -> str:
        """Return in words how the setting of a job was chosen."""
        return SEARCHED if held_out else self.chosen.get(job.experiment.partition("/")[0], "not recorded")


def accuracy_text(row: Mapping[str, str]) -> str:
    """Format the accuracy in a row of leaderboard.csv: `98.02 ± 0.11 (5)`."""
    mean, std = (float(row[name]) if row[name] else None for name in ("mean", "std"))
    return f"{plus_minus(mean, std, '%')} ({row['n']})"

"""Methods of the leaderboard and the settings that belong to them (methods.yaml)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from runner.config import REPOSITORY, ConfigError
from runner.config.checkout import scan
from runner.config.yaml_file import is_line, read_yaml
from runner.records.jobs import Job
from runner.report.formats import plus_minus

ADDED = "add-or-remove-one"  # the neighbouring data sets of most methods
HELD_OUT = "held-out"  # a tag of experiments whose settings were chosen on held-out training images
SEARCHED = "searched on held-out images"

ENTRY = "entry/"  # the beginning of the sweep of an entry's runs, before its folder
_KEYS = ("method", "arm", "class", "by", "link", "summary")  # of entry.yaml
CLASSES = ("from scratch", "synthetic pre-training", "public data")  # of methods, by the data that their networks saw


def entered_folders() -> list[Path]:
    """Return the folders of entries that have records (docs/enter.md), by name."""
    return [path.parent for path in scan(REPOSITORY / "entries", "*/runs.csv")]


@dataclass(frozen=True)
class Entrant:
    """What entry.yaml says."""

    folder: Path
    method: str
    arm: str  # the arm of the study that is entered; the others are what it is compared with
    data: str  # one of CLASSES
    author: str  # who entered it
    link: str  # where the method is published, or ""
    summary: str  # a sentence

    @property
    def study(self) -> Path:
        """The file of the study."""
        return self.folder / f"{self.folder.resolve().name}.yaml"

    @property
    def listed_as(self) -> str:
        """The name on the leaderboard, of which a class other than the first is a part."""
        return self.method + ("" if self.data == CLASSES[0] else f", {self.data}")


def read_entrant(folder: Path) -> Entrant:
    """Read entry.yaml of a folder.

    Raises:
        ConfigError: it is not there, a key is missing or unknown, or the method is no line.
    """
    path = folder / "entry.yaml"
    if not path.is_file():
        raise ConfigError(f"{folder} is no entry: it has no entry.yaml (docs/enter.md).")
    content = read_yaml(path)
    for name in content.entries:
        if name not in _KEYS:
            raise content.entries[name].wrong(f"there is no such key: expected {', '.join(_KEYS)}")
    texts = {name: entry.text.strip() for name, entry in content.entries.items()}
    for name in _KEYS:
        if name != "link" and not texts.get(name):
            raise content.wrong(f"{name} is missing")
    if not is_line(texts["method"]):
        raise content.entries["method"].wrong("expected a name in one line, without | < > [ ]")
    if texts["class"] not in CLASSES:
        raise content.entries["class"].wrong(f"expected one of {', '.join(CLASSES)}")
    return Entrant(
        folder, texts["method"], texts["arm"], texts["class"], texts["by"], texts.get("link", ""), texts["summary"]
    )


_FILE = read_yaml(Path(__file__).with_name("methods.yaml")).plain
METHODS = _FILE["methods"]
WORDS: dict[str, str] = _FILE["words"]
OPTIONS: dict[str, str] = _FILE["options"]
# Methods of entries by the sweep of their runs.
ENTERED: dict[str, str] = {f"{ENTRY}{folder.name}": read_entrant(folder).listed_as for folder in entered_folders()}
NAMES: list[str] = [*(method["name"] for method in METHODS), *ENTERED.values()]  # the first is the baseline
COMBINED = "Ideas combined"
SCREENING = "noise screening"  # an idea whose method has it with any others
LOOKS: dict[str, str] = {  # names in `runner.report.plots.LOOKS`
    **{method["name"]: method["look"] for method in METHODS},
    **dict.fromkeys(ENTERED.values(), "entry"),
}
FRONT: dict[str, dict[str, Any]] = {  # see `report.figures`
    **{method["name"]: method["front"] for method in METHODS},
    **{name: {"label": name, "colour": "#999999"} for name in ENTERED.values()},
}
IDEAS: dict[str, list[str]] = {m["name"]: m["ideas"] for m in METHODS if "ideas" in m}  # that make a setting of it
_IDEA_CLASSES = {(group, target): idea for group, ideas in _FILE["ideas"].items() for target, idea in ideas.items()}
_PLAIN_CLASSES = {  # of plain DP-SGD, by config group
    "activation": "torch.nn.ReLU",
    "loss": "torch.nn.CrossEntropyLoss",
    "clipping": "runner.clipping.Flat",
    "features": "runner.data.features.Pixels",
    "optimizer": "torch.optim.SGD",
    **dict.fromkeys(("averaging", "augmentation", "init", "screening", "mechanism", "constraint")),
}


def anchor(heading: str) -> str:
    """Return the anchor of a heading on a page, as GitHub and the site make it.

    >>> anchor("Tempered sigmoid, tanh (2021)")
    'tempered-sigmoid-tanh-2021'
    """
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def ideas_of(job: Job) -> tuple[str, ...]:
    """Return the ideas in a job's setting, in a fixed order. A linear model uses no activation."""
    linear = job.field("architecture._target_") == "runner.networks.architectures.linear"
    unused = ["activation"] * linear + ["screening"] * _keeps_every_update(job)
    used = ((key, idea) for key, idea in _IDEA_CLASSES.items() if key[0] not in unused)
    return tuple(idea for (group, target), idea in used if job.field(f"{group}._target_") == target)


def _keeps_every_update(job: Job) -> bool:
    """Return True for noise screening at a temperature of 0, which is the control of a study."""
    return bool(job.field("screening.initial_temperature") == 0)


def method_of(job: Job) -> str:
    """Return the method to which a run's setting belongs, by its entry, its experiment or the ideas in it, or ""."""
    if job.sweep in ENTERED:
        return ENTERED[job.sweep]
    if job.experiment in _FILE["by_ideas"]:
        targets = ((group, job.field(f"{group}._target_")) for group in _PLAIN_CLASSES)
        if any(pair not in _IDEA_CLASSES and pair not in _PLAIN_CLASSES.items() for pair in targets):
            return ""
        if _keeps_every_update(job):
            return ""
        ideas = ideas_of(job)
        if not ideas:
            return NAMES[0]
        own = (name for name, named in IDEAS.items() if set(named) == set(ideas) or SCREENING in {*named} & {*ideas})
        return next(own, COMBINED if len(ideas) > 1 else "")
    listed = (m["name"] for m in METHODS if any(fnmatchcase(job.experiment, pattern) for pattern in m["experiments"]))
    return next(listed, "")


def further_ideas(method: str, ideas: Sequence[str]) -> list[str]:
    """List those of a setting's ideas that are not its method's own, of combined ideas all."""
    return [idea for idea in ideas if idea not in IDEAS.get(method, ()) and idea not in method]


def trains_from_scratch(method: str) -> bool:
    """Return True unless a method's networks saw data before, which its name then says."""
    return not method.endswith(tuple(f", {data}" for data in CLASSES[1:]))


def how_chosen(job: Job, held_out: bool) -> str:
    """Return in words how the setting of a job was chosen: by its tag, else by the folder of its experiment."""
    return SEARCHED if held_out else _FILE["chosen"].get(job.experiment.partition("/")[0], "not recorded")


def standing(rows: Sequence[Mapping[str, str]], dataset: str, epsilon: float) -> dict[str, Mapping[str, str]]:
    """Return by method the row of leaderboard.csv that stands for it at a bound on epsilon on a data set."""
    bounded = [row for row in rows if row["dataset"] == dataset and float(row["sound_epsilon_at_most"]) == epsilon]
    return {row["method"]: row for row in bounded if row["stands_for_its_method"] == "yes"}


def accuracy_text(row: Mapping[str, str]) -> str:
    """Format the accuracy in a row of leaderboard.csv: `98.02 ± 0.11 (5)`."""
    mean, std = (float(row[name]) if row[name] else None for name in ("mean", "std"))
    return f"{plus_minus(mean, std, '%')} ({row['n']})"

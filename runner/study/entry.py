"""An entry to the leaderboard: a folder with one study, the options and classes that it names, and its records.

- `entry.yaml`: which arm is entered, as what, and by whom
- `falling_noise.yaml`: the study, named after the folder
- `falling.py` and `options/`: classes, and options that name them
- `runs/`: records of all trials and final runs, as `study ... --enter` packs them
- `runs.csv`: which arm, data set, epsilon and seed each record belongs to

Records alone are read for the leaderboard, so no class of an entry is imported there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.claims.runs import PlannedRun
from runner.config import PAPER, ConfigError
from runner.config.yaml_file import read_yaml
from runner.data.files import content_of, write_whole
from runner.records.files import find_record, read_record, record_path
from runner.records.identity import identify_recorded
from runner.records.jobs import Job
from runner.report.files import cell, read_csv, write_csv
from runner.report.leaderboard.methods import CLASSES, ENTRY, HELD_OUT, entered_folders
from runner.study.definition import Study
from runner.study.progress import Progress

SEEDS = 5
DELTA = 1e-5
_KEYS = ("method", "arm", "class", "by", "link", "summary")
_COLUMNS = ("run_id", "arm", "dataset", "sound_epsilon", "seed", "split")


@dataclass(frozen=True)
class Entrant:
    """What entry.yaml says.

    method: the name on the leaderboard.
    arm: the arm of the study that is entered. The others are what it is compared with.
    data: one of CLASSES.
    author: who entered it.
    link: where the method is published, or "".
    summary: a sentence.
    """

    folder: Path
    method: str
    arm: str
    data: str
    author: str
    link: str
    summary: str

    @property
    def study(self) -> Path:
        """The file of the study."""
        return self.folder / f"{self.folder.resolve().name}.yaml"


def read_entrant(folder: Path) -> Entrant:
    """Read entry.yaml of a folder.

    Raises:
        ConfigError: it is not there, or a key is missing or unknown.
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
    if texts["class"] not in CLASSES:
        raise content.entries["class"].wrong(f"expected one of {', '.join(CLASSES)}")
    return Entrant(
        folder, texts["method"], texts["arm"], texts["class"], texts["by"], texts.get("link", ""), texts["summary"]
    )


def entrants() -> list[Entrant]:
    """Return the entries of this project that have records, by name."""
    return [read_entrant(folder) for folder in entered_folders()]


def broken_rules(entrant: Entrant, study: Study, scale: str, arms: Sequence[Progress]) -> list[str]:
    """Return a sentence for each rule of entries that a study breaks."""
    names = [arm.name for arm in study.arms]
    broken = []
    if entrant.author == "My name" or entrant.method.startswith("My clipping"):
        broken.append("entry.yaml: it still has the method or the name of the template.")
    if scale != PAPER:
        broken.append("--scale: an entry is trained at the paper's scale.")
    if study.path.resolve() != entrant.study.resolve():
        broken.append(f"the study has to have the name of the entry's folder: {entrant.study.name}.")
    if entrant.arm not in names[1:]:
        broken.append(
            f"entry.yaml: arm: {entrant.arm!r} is no arm after the first one, the baseline: {', '.join(names[1:])}."
        )
    if len(study.seeds) < SEEDS:
        broken.append(f"seeds: {len(study.seeds)}, and an entry has at least {SEEDS}.")
    if not study.equal:
        broken.append("equal: an entry has the same number of trials for each arm.")
    if study.front:
        broken.append("search: an entry has a noise calibrated to each ε, and no front.")
    if study.prune:
        broken.append("prune: the trials of an entry are trained to their end.")
    if not all(arm.setting.search for arm in arms):
        broken.append("search: an entry searches its settings on held-out images, for each arm.")
    if any(arm.setting.config.delta > DELTA for arm in arms):
        broken.append(f"delta: an entry has at most {DELTA:g}.")
    return broken


def pack(entrant: Entrant, arms: Sequence[Progress], folder: Path) -> int:
    """Copy the records of all trials and final runs from a results folder into the entry, and list them in runs.csv.

    A record that is there already is left as it is. Return the number of records.

    Raises:
        ConfigError: a run has no record yet.
    """
    runs = _runs(arms)
    missing = sum(not find_record(folder, run.job.run_id).exists() for _, run in runs)
    if missing or any(arm.next for arm in arms):
        raise ConfigError(f"{entrant.study}: the study is not finished, so it cannot be entered.")
    for _, run in runs:
        content = content_of(find_record(folder, run.job.run_id))
        write_whole(record_path(entrant.folder, run.job.run_id), content, replace=False)
    write_csv(entrant.folder / "runs.csv", _COLUMNS, _rows(arms))
    return len(runs)


def differences(entrant: Entrant, arms: Sequence[Progress]) -> list[str]:
    """Return a sentence for each way in which the packed records are not those of the study."""
    planned = {run.job.run_id for _, run in _runs(arms)}
    packed = {path.stem for path in (entrant.folder / "runs").glob("*.json")}
    listed = entrant.folder / "runs.csv"
    unfinished = sum(len(arm.next) for arm in arms)
    wrong = []
    if entrant.data == CLASSES[0] and any(run.record and _is_frozen(run.record) for _, run in _runs(arms)):
        wrong.append(f"class: a network with frozen parameters is not {CLASSES[0]}: {', '.join(CLASSES[1:])}.")
    if unfinished:
        wrong.append(f"at least {unfinished} runs of the study have no record in {entrant.folder / 'runs'}.")
    if unplanned := sorted(packed - planned):
        wrong.append(f"{unplanned[0]}.json is no run of the study{_more(unplanned)}.")
    if not listed.exists() or sorted(map(str, read_csv(listed))) != sorted(map(str, _texts(_rows(arms)))):
        wrong.append("runs.csv does not list the runs of the study.")
    return wrong


def entered_runs(entrant: Entrant) -> list[PlannedRun]:
    """Return the final runs of the entered arm, from the records alone.

    Raises:
        ValueError: a record is damaged.
    """
    runs = []
    for row in read_csv(entrant.folder / "runs.csv"):
        if row["arm"] == entrant.arm and row["split"] == "test":
            record = read_record(record_path(entrant.folder, row["run_id"]))
            ids = identify_recorded(record["config"])
            overrides = {"arm": entrant.arm, "dataset": row["dataset"], "seed": row["seed"]}
            tracking = {"tags": [HELD_OUT], "command": record["provenance"]["command"]}
            values = record["config"] | {"tracking": tracking}
            runs.append(PlannedRun(Job(f"{ENTRY}{entrant.folder.name}", overrides, *ids, values), record))
    return runs


def _is_frozen(record: Mapping[str, Any]) -> bool:
    return any("frozen parameters" in text for text in record["provenance"].get("epsilon_rests_on", []))


def _runs(arms: Sequence[Progress]) -> list[tuple[Progress, PlannedRun]]:
    """Return each trial and each final run once, with the first arm that has it."""
    runs = [(arm, run) for arm in arms for run in (*arm.searched, *arm.finals)]
    return list({run.job.run_id: (arm, run) for arm, run in reversed(runs)}.values())[::-1]


def _rows(arms: Sequence[Progress]) -> list[dict[str, object]]:
    return [
        {
            "run_id": run.job.run_id,
            "arm": arm.setting.arm.name,
            "dataset": arm.setting.dataset_name,
            "sound_epsilon": arm.setting.epsilon,
            "seed": run.seed,
            "split": run.field("evaluation"),
        }
        for arm in arms
        for run in (*arm.searched, *arm.finals)
    ]


def _texts(rows: Sequence[dict[str, object]]) -> list[dict[str, str]]:
    return [{name: cell(value) for name, value in row.items()} for row in rows]


def _more(names: Sequence[str]) -> str:
    return f", nor are {len(names) - 1} others" if len(names) > 1 else ""

"""The leaderboard with the arms of studies in it, and entries to it.

An entry is a folder with one study, the options and classes that it names, and its records (docs/enter.md). Records
alone are read for the leaderboard, so no class of an entry is imported there.
"""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from runner.claims.claim import dataset_name
from runner.claims.evidence import PAPER_SCALE, Evidence, PlannedRun, Runs, grouped
from runner.config import PAPER, RESULTS, ConfigError
from runner.files import content_of, write_whole
from runner.records.disk import find_record, read_record, record_path
from runner.records.identity import identify_recorded
from runner.records.jobs import Job
from runner.report.formats import Table, csv_text, markdown, mean_text, read_csv, write_csv
from runner.report.leaderboard.entries import Entry, counts, entries, planned_jobs, standing
from runner.report.leaderboard.methods import (
    ADDED,
    CLASSES,
    ENTERED,
    ENTRY,
    HELD_OUT,
    METHODS,
    Entrant,
    entered_folders,
    read_entrant,
)
from runner.report.papers import study_files
from runner.study.definition import Study, read
from runner.study.outcome import Compared
from runner.study.progress import Progress, jobs_of

SEEDS = 5
DELTA = 1e-5
_COLUMNS = ("run_id", "arm", "dataset", "sound_epsilon", "seed", "split")


def broken_rules(entrant: Entrant, study: Study, scale: str, arms: Sequence[Progress]) -> list[str]:
    """Return a sentence for each rule of entries that a study breaks."""
    names = [arm.name for arm in study.arms]
    broken = []
    if entrant.author == "My name" or entrant.method.startswith("My clipping"):
        broken.append("entry.yaml: it still has the method or the name of the template.")
    listed = {name for sweep, name in ENTERED.items() if sweep != f"{ENTRY}{entrant.folder.resolve().name}"}
    if entrant.listed_as in listed | {method["name"] for method in METHODS}:
        broken.append(f"entry.yaml: method: {entrant.method!r} is on the leaderboard: give yours another name.")
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
    provenances = [run.record["provenance"] for _, run in _runs(arms) if run.record]
    rests_on = [text for provenance in provenances for text in provenance.get("epsilon_rests_on", ())]
    if entrant.data == CLASSES[0] and any("frozen parameters" in text for text in rests_on):
        wrong.append(f"class: a network with frozen parameters is not {CLASSES[0]}: {', '.join(CLASSES[1:])}.")
    if unfinished:
        wrong.append(f"at least {unfinished} runs of the study have no record in {entrant.folder / 'runs'}.")
    if unplanned := sorted(packed - planned):
        more = f", nor are {len(unplanned) - 1} others" if len(unplanned) > 1 else ""
        wrong.append(f"{unplanned[0]}.json is no run of the study{more}.")
    lines = csv_text(_COLUMNS, _rows(arms)).splitlines()
    if not listed.exists() or sorted(listed.read_text(encoding="utf-8").splitlines()) != sorted(lines):
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


def _runs(arms: Sequence[Progress]) -> list[tuple[Progress, PlannedRun]]:
    """Return each trial and each final run once, with the first arm that has it."""
    runs = [(arm, run) for arm in arms for run in (*arm.searched, *arm.finals)]
    return list({run.job.run_id: (arm, run) for arm, run in reversed(runs)}.values())[::-1]


def _rows(arms: Sequence[Progress]) -> list[dict[str, object]]:
    rows = []
    for arm in arms:
        labels = (arm.name, arm.setting.dataset_name, arm.setting.epsilon)
        for run in (*arm.searched, *arm.finals):
            rows.append(dict(zip(_COLUMNS, (run.job.run_id, *labels, run.seed, run.field("evaluation")), strict=True)))
    return rows


@cache
def jobs_of_board() -> list[Job]:
    """List every run that a sweep of any paper or a study of this project plans."""
    return [*planned_jobs(), *(job for path in study_files() for job in jobs_of(read(path)))]


@cache
def board_of(folder: Path) -> tuple[list[Entry], Runs]:
    """Return the entries of the leaderboard, and the runs that they are made of, with records from a folder."""
    planned = Evidence(PAPER_SCALE, {}, folder).of(job for job in jobs_of_board() if counts(job))
    runs = Runs([*planned, *(run for entrant in map(read_entrant, entered_folders()) for run in entered_runs(entrant))])
    return entries(runs), runs


def board(study: Study, arms: Sequence[Compared]) -> str:
    """Write a section that ranks the arms among the methods of the leaderboard, at each epsilon that it shows.

    A method stands there with the setting that stands on the leaderboard's page. Of a factorial, only the first arm and
    the best of each cell of the table are ranked. Arms with other neighbouring data sets are left out. A study of this
    project has no such section, because its arms are on the leaderboard.
    """
    if study.name in {path.stem for path in study_files()}:
        return ""
    if study.parts:
        groups = grouped(arms, lambda arm: arm.arm.setting.pair).values()
        best = [max(group, key=lambda arm: arm.gain.value if arm.gain else -math.inf) for group in groups]
        arms = [arm for arm in arms if arm.gain is None or any(arm is other for other in best)]
    entered = ENTERED.get(f"{ENTRY}{study.name}")  # its own arm
    settings = [entry for entry in board_of(RESULTS)[0] if entry.method != entered]
    cells = []
    by_place = grouped(arms, lambda arm: (arm.arm.setting.dataset_name, arm.arm.setting.epsilon))
    for (dataset, epsilon), group in by_place.items():
        methods = standing(settings, dataset, epsilon).values()
        lines = [(entry.mean, entry.method, entry.accuracies) for entry in methods]
        for arm in group:
            accuracies = tuple(arm.arm.accuracies().values())
            finals = [run.record["final"] for run in arm.arm.finals if run.record]
            if accuracies and all(final.get("neighbouring_relation", ADDED) == ADDED for final in finals):
                lines.append((fmean(accuracies), f"**{arm.arm.name}** (*yours*)", accuracies))
        for _, name, values in sorted(lines, reverse=True) if 0 < len(methods) < len(lines) else ():
            text = f"{mean_text(values, '%')} ({len(values)})"
            cells.append([dataset_name(dataset), f"{epsilon:g}", name, text])
    if not cells:
        return ""
    table = Table(("data set", "sound ε at most", "method", "test accuracy (%)"), cells)
    return (
        "\n## On the leaderboard\n\nThe methods of the [leaderboard](../../leaderboard/README.md), which have their "
        f"own networks and epochs, and the arms of this study.\n\n{markdown(table)}"
    )

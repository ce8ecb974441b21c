"""The leaderboard with the arms of a study in it, marked as yours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from runner.claims.claim import dataset_name
from runner.claims.runs import PAPER_SCALE, Evidence, Runs, grouped
from runner.config import RESULTS
from runner.records.jobs import Job
from runner.report.files import Table, markdown, mean_text
from runner.report.leaderboard.entries import Entry, counts, entries, planned_jobs, standing
from runner.report.leaderboard.methods import ADDED
from runner.report.papers import study_files
from runner.study.definition import Study, read
from runner.study.entry import entered_runs, entrants
from runner.study.outcome import Compared, paired
from runner.study.progress import jobs_of


@cache
def jobs_of_board() -> list[Job]:
    """List every run that a sweep of any paper or a study of this project plans."""
    return [*planned_jobs(), *(job for path in study_files() for job in jobs_of(read(path)))]


@cache
def board_of(folder: Path) -> tuple[list[Entry], Runs]:
    """Return the entries of the leaderboard, and the runs that they are made of, with records from a folder."""
    planned = Evidence(PAPER_SCALE, {}, folder).of(job for job in jobs_of_board() if counts(job))
    runs = Runs([*planned, *(run for entrant in entrants() for run in entered_runs(entrant))])
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
        best = [
            max(group, key=lambda arm: arm.gain.value if arm.gain else -math.inf) for group in paired(arms).values()
        ]
        arms = [arm for arm in arms if arm.gain is None or any(arm is other for other in best)]
    shown, _ = board_of(RESULTS)
    cells = []
    by_place = grouped(arms, lambda arm: (arm.arm.setting.dataset_name, arm.arm.setting.epsilon))
    for (dataset, epsilon), group in by_place.items():
        methods = standing(shown, dataset, epsilon).values()
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

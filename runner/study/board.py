"""The leaderboard with the arms of a study in it, marked as yours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from runner.claims.claim import dataset_name
from runner.claims.runs import PAPER_SCALE, Evidence, Runs
from runner.config import RESULTS
from runner.records.jobs import Job
from runner.report.files import Table, markdown, mean_text
from runner.report.leaderboard.comparison import standing
from runner.report.leaderboard.entries import Entry, counts, entries, planned_jobs
from runner.report.leaderboard.methods import ADDED
from runner.report.studies import study_files
from runner.study.definition import Study
from runner.study.file import read
from runner.study.outcome import Compared
from runner.study.progress import jobs_of


@cache
def jobs_of_board() -> list[Job]:
    """List every run that a sweep of any paper or a study of this project plans."""
    return [*planned_jobs(), *(job for path in study_files() for job in jobs_of(read(path)))]


@cache
def board_of(folder: Path) -> tuple[list[Entry], Runs]:
    """Return the entries of the leaderboard, and the runs that they are made of, with records from a folder."""
    runs = Evidence(PAPER_SCALE, {}, folder).of(job for job in jobs_of_board() if counts(job))
    return entries(runs), runs


def _accuracy_text(accuracies: Sequence[float]) -> str:
    return f"{mean_text(accuracies, '%')} ({len(accuracies)})"


def board(study: Study, found: Sequence[Compared]) -> str:
    """Write a section that ranks the arms among the methods of the leaderboard, at each epsilon that it shows.

    A method stands there with the setting that stands on the leaderboard's page. Arms with other neighbouring data sets
    are left out. A study of this project has no such section, because its arms are on the leaderboard.
    """
    if study.name in {path.stem for path in study_files()}:
        return ""
    shown, _ = board_of(RESULTS)
    places: list[tuple[str, str, list[tuple[float, str, str]]]] = []
    for dataset, epsilon in dict.fromkeys(map(_place, found)):
        best = standing(shown, dataset, epsilon).values()
        lines = [(entry.mean, entry.method, _accuracy_text(entry.accuracies)) for entry in best]
        for one in _shown(study, found):
            values = list(one.arm.accuracies().values())
            finals = [run.record["final"] for run in one.arm.finals if run.record]
            added = all(final.get("neighbouring_relation", ADDED) == ADDED for final in finals)
            if _place(one) == (dataset, epsilon) and values and added:
                name = f"**{one.arm.setting.arm.name}** (*yours*)"
                lines.append((fmean(values), name, _accuracy_text(values)))
        if best and len(lines) > len(best):
            places.append((dataset, f"{epsilon:g}", sorted(lines, reverse=True)))
    if not places:
        return ""
    cells = [
        [dataset_name(dataset), epsilon, name, text] for dataset, epsilon, lines in places for _, name, text in lines
    ]
    table = Table(("data set", "sound ε at most", "method", "test accuracy (%)"), cells)
    return (
        "\n## On the leaderboard\n\nThe methods of the [leaderboard](../../leaderboard/README.md), which have their "
        f"own networks and epochs, and the arms of this study.\n\n{markdown(table)}"
    )


def _shown(study: Study, found: Sequence[Compared]) -> list[Compared]:
    """Return the arms to show: all, but of a factorial only the first one and the best of each cell of the table."""
    if not study.parts:
        return list(found)
    best: dict[tuple[str, float], Compared] = {}
    for one in found:
        known = best.setdefault(one.arm.setting.pair, one)
        if one.gain and (known.gain is None or one.gain.value > known.gain.value):
            best[one.arm.setting.pair] = one
    return [one for one in found if one.gain is None or one in best.values()]


def _place(one: Compared) -> tuple[str, float]:
    return one.arm.setting.dataset_name, one.arm.setting.epsilon

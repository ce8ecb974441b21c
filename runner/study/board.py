"""The leaderboard with the arms of a study in it, marked as yours."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from runner.claims.blocks import dataset_name
from runner.config import REPOSITORY
from runner.report.files import Table, markdown, mean_text, read_csv
from runner.report.leaderboard.methods import ADDED, accuracy_text, standing
from runner.report.studies import study_files
from runner.study.definition import Study
from runner.study.outcome import Compared

_CSV = REPOSITORY / "results" / "leaderboard" / "leaderboard.csv"


def board(study: Study, found: Sequence[Compared]) -> str:
    """Write a section that ranks the arms among the methods of the leaderboard, at each epsilon that it shows.

    A method stands there with the setting that stands on the leaderboard's page. Arms with other neighbouring data sets
    are left out. A study of this project has no such section, because its arms are on the leaderboard.
    """
    rows = read_csv(_CSV) if _CSV.exists() and study.name not in {path.stem for path in study_files()} else []
    places: list[tuple[str, str, list[tuple[float, str, str]]]] = []
    for dataset, epsilon in dict.fromkeys(map(_place, found)):
        best = standing(rows, dataset, epsilon).values()
        lines = [(float(row["mean"]), row["method"], accuracy_text(row)) for row in best]
        for one in _shown(study, found):
            values = list(one.arm.accuracies().values())
            finals = [run.record["final"] for run in one.arm.finals if run.record]
            added = all(final.get("neighbouring_relation", ADDED) == ADDED for final in finals)
            if _place(one) == (dataset, epsilon) and values and added:
                name = f"**{one.arm.setting.arm.name}** (*yours*)"
                lines.append((fmean(values), name, f"{mean_text(values, '%')} ({len(values)})"))
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

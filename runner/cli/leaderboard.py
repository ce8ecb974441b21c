"""`python -m runner leaderboard`: test accuracy of every paper's methods at the same sound epsilons.

Nothing is trained: the numbers come from the records. A setting counts if its delta is at most the board's and its runs
report on test images. A run counts with the accuracy after its last epoch within the sound epsilon. Epochs are not
chosen by accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.claims.evidence import PAPER_SCALE, Evidence, folder_of
from runner.report import front_figure, plots
from runner.report.files import write_csv, write_text
from runner.report.leaderboard.comparison import comparisons
from runner.report.leaderboard.entries import Entry, counts, entries, planned_jobs, trials
from runner.report.leaderboard.figure import draw
from runner.report.leaderboard.page import page
from runner.report.leaderboard.published import published
from runner.report.leaderboard.tables import COLUMNS, rows
from runner.report.studies import study_files
from runner.study.file import read
from runner.study.progress import jobs_of
from runner.terminal import Line, Parser


def write(folder: Path, found: Sequence[Entry], searched: int) -> list[Path]:
    """Write leaderboard/README.md, leaderboard.csv, their figure and that of the front page, and return the files.

    `searched` is the number of recorded runs of searches.
    """
    place, known = folder / "leaderboard", published()
    compared = comparisons(found)
    written = [
        write_text(place / "README.md", page(found, compared, known, searched)),
        write_csv(place / "leaderboard.csv", COLUMNS, rows(found)),
    ]
    with plots.style():
        written += plots.save(draw(compared, known), place)
    return [*written, front_figure.write(folder)]


def main(arguments: Sequence[str]) -> int:
    Parser(prog="python -m runner leaderboard", description=__doc__).parse_args(arguments)
    folder, line = folder_of(PAPER_SCALE), Line()
    line.show("leaderboard: the runs of all sweeps and studies, and their records ...")
    jobs = [*planned_jobs(), *(job for path in study_files() for job in jobs_of(read(path)))]
    found = entries(Evidence(PAPER_SCALE, {}, folder).of(job for job in jobs if counts(job)))
    if not found:
        raise ValueError("no run is recorded that a leaderboard could show.")
    written = write(folder, found, trials(jobs))
    line.clear()
    for path in written:
        print(path)
    return 0

"""`python -m runner leaderboard`: test accuracy of every paper's methods at the same sound epsilons.

Nothing is trained: the numbers come from the records. A setting counts if its delta is at most the board's and its runs
report on test images. A run counts with the accuracy after its last epoch within the sound epsilon. Epochs are not
chosen by accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.claims.claim import DATASETS, dataset_name
from runner.claims.runs import PAPER_SCALE, Runs, folder_of
from runner.config import REPOSITORY, RESULTS
from runner.report import figures
from runner.report.files import Table, aligned, read_csv, write_csv, write_text
from runner.report.leaderboard.entries import COLUMNS, SHOWN, Entry, comparisons, csv_rows, trials
from runner.report.leaderboard.methods import NAMES, accuracy_text, standing
from runner.report.leaderboard.page import matrix_page, page, read_published, settings_page
from runner.study.board import board_of, jobs_of_board
from runner.terminal import Line, Parser


def write(folder: Path, shown: Sequence[Entry], runs: Runs, searched: int) -> list[Path]:
    """Write the pages and the table in leaderboard/, and the figure of the front page. Return the files."""
    place = folder / "leaderboard"
    return [
        write_text(place / "README.md", page(shown, comparisons(shown), read_published(), searched)),
        write_text(place / "matrix.md", matrix_page(comparisons(shown))),
        write_text(place / "settings.md", settings_page(comparisons(shown))),
        write_csv(place / "leaderboard.csv", COLUMNS, csv_rows(shown)),
        figures.write_front(folder, shown, runs),
    ]


def main(arguments: Sequence[str]) -> int:
    Parser(prog="python -m runner leaderboard", description=__doc__).parse_args(arguments)
    if not (RESULTS / "runs").is_dir():  # an installed package has the table and no records
        recorded = read_csv(REPOSITORY / "results" / "leaderboard" / "leaderboard.csv")
        places = [(dataset, bound) for dataset in DATASETS for bound in SHOWN]
        best = [standing(recorded, *place) for place in places]
        cells = [[name, *(accuracy_text(row[name]) if name in row else "–" for row in best)] for name in NAMES]
        headings = [f"{dataset_name(dataset)} ε ≤ {bound:g}" for dataset, bound in places]
        print(aligned(Table(("method", *headings), cells)))
        return 0
    folder, line = folder_of(PAPER_SCALE), Line()
    line.show("leaderboard: the runs of all sweeps and studies, and their records ...")
    shown, runs = board_of(folder)
    if not shown:
        raise ValueError("no run is recorded that a leaderboard could show.")
    written = write(folder, shown, runs, trials(jobs_of_board()))
    line.clear()
    for path in written:
        print(path)
    return 0

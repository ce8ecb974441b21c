"""Tables, figures, claims and pages from the records of a paper: `python -m runner aggregate tempered_sigmoid`.

It reads records and configs, and trains nothing. With `studies` it writes the pages of this project's studies.

Exit codes: 0 done, 2 bad input (an unknown name, a damaged record) with one sentence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runner.claims.claim import DATASETS, dataset_name
from runner.claims.evidence import PAPER_SCALE, Evidence, Runs, collect, folder_of
from runner.claims.measure import measure
from runner.claims.verdicts import ClaimRow, judge
from runner.config import REPOSITORY, RESULTS, ConfigError
from runner.report import figures, pages, plots
from runner.report.claim_rows import cells_of, item_page, write_rows
from runner.report.formats import Table, aligned, markdown, read_csv, write_csv, write_table_csv, write_text
from runner.report.leaderboard.entries import COLUMNS, SHOWN, Entry, comparisons, csv_rows, trials
from runner.report.leaderboard.methods import NAMES, accuracy_text, standing
from runner.report.leaderboard.page import matrix_page, page, read_published, settings_page
from runner.report.papers import Item, Paper, load, names_of, paper_names, study_files
from runner.report.statements import write_readme
from runner.report.tables import runs_table, settings_table
from runner.study.board import board_of, jobs_of_board
from runner.study.definition import read
from runner.study.page import Known, sources_of, write
from runner.study.progress import progress_of, settings_of
from runner.terminal import Line, Parser, command

STUDIES = "studies"  # in the place of a paper's name
_BANNER = "\n> **{scale}: not a reproduction.** Shrunk runs on stand-in data.\n\n"


def aggregate(
    paper: str,
    scale: str = PAPER_SCALE,
    items: Sequence[str] | None = None,
    results_root: Path | None = None,
    *,
    pages_too: bool = True,
) -> list[Path]:
    """Aggregate the records of a paper, and return the files.

    Without `items`, it also writes the pages on all claims and, for the repository's own results, the findings of the
    README, unless `pages_too` is false. With `items`, it writes only their folders, because the pages would mix new and
    old items. Unchanged records give byte-identical files. An item with too few records gets no figure, and an old one
    is removed.

    Raises:
        ValueError: an unknown paper, scale or item, a damaged record or a claim that cannot be read.
    """
    loaded = load(paper)
    chosen = loaded.items if items is None else tuple(loaded.item(name) for name in items)
    folder = folder_of(scale, results_root)
    evidence = collect(_sweeps(loaded), scale, results_root)
    written: list[Path] = []
    line = Line()
    for number, item in enumerate(chosen, 1):
        line.show(f"{loaded.name}: tables and figures of {item.name}, item {number} of {len(chosen)} ...")
        measured = [(c, measure(c, evidence, loaded.formulas)) for c in loaded.claims if c.item == item.name]
        shown = loaded.evidence_of(item, evidence)
        runs = Runs(run for sweep in loaded.needs(item) for run in shown.sweeps[sweep])
        judged = [judge(claim, measurement, scale) for claim, measurement in measured]
        written += _write_item(folder / loaded.name / item.name, loaded, item, shown, runs, judged)
    line.clear()
    if items is None:
        label = scale if scale != PAPER_SCALE else ""
        runs = figures.priced_runs(loaded, evidence)
        written += _draw(folder / loaded.name / figures.PRICE, figures.PRICE_TITLE, figures.draw_price, runs, label)
        written += _write_index(folder, scale) if pages_too else []
    return written


def compared_text(paper: str, items: Sequence[str], folder: Path) -> str:
    """Tabulate each claim of some items as measured by the runs in `folder`, by this repository's, and as claimed."""
    loaded = load(paper)
    claims = [claim for claim in loaded.claims if claim.item in items]
    recorded = collect(_sweeps(loaded))
    rows = []
    for claim in claims:
        measured = [measure(claim, runs, loaded.formulas) for runs in (recorded.only_in(folder), recorded)]
        yours, ours = (cells_of(judge(claim, measurement, PAPER_SCALE)) for measurement in measured)
        rows.append([claim.item, yours.what, yours.measured_of, ours.measured_of, ours.claimed])
    return aligned(Table(("item", "what", "yours", "recorded here", "the paper's"), rows))


def _sweeps(paper: Paper) -> list[str]:
    """List the sweeps of all items and claims, because the interval of few runs has the spread of all settings."""
    needed = [sweep for item in paper.items for sweep in paper.needs(item)]
    claimed = [sweep for claim in paper.claims for sweep in (*claim.sweeps, *claim.searches)]
    return [*needed, *claimed, *(sweep for item in paper.items for sweep in item.also)]


def aggregate_studies() -> list[Path]:
    """Write the pages of this project's studies anew, of those that have one, and of the results. Return the files.

    A mistake in any file of a study is refused before any page is written.
    """
    written: list[Path] = []
    studies = [(study, progress_of(study, settings_of(study))) for study in map(read, study_files())]
    for study, progress in studies:
        if (RESULTS / "studies" / study.name).exists():
            repeated = command("study", study.path.relative_to(REPOSITORY).as_posix())
            written += write(study, progress, RESULTS, PAPER_SCALE, repeated)
    return written + _write_index(RESULTS, PAPER_SCALE, {study.name: (study, arms) for study, arms in studies})


def _write_index(folder: Path, scale: str, studies: Mapping[str, Known] = MappingProxyType({})) -> list[Path]:
    sources = sources_of(folder, studies, scale)
    written = pages.write_report(scale, sources)
    return [*written, write_readme(sources)] if folder == RESULTS else written


def shown(paths: Sequence[Path]) -> str:
    """List files for people: a line for each folder, relative to the current directory if it is inside."""
    names: dict[Path, list[str]] = {}
    for path in paths:
        names.setdefault(path.parent, []).append(path.name)
    current = Path.cwd()
    folders = {folder: folder.relative_to(current) if folder.is_relative_to(current) else folder for folder in names}
    return "\n".join(f"{folders[folder]}: {', '.join(files)}" for folder, files in names.items())


def _write_item(
    folder: Path, paper: Paper, item: Item, evidence: Evidence, runs: Runs, judged: Sequence[ClaimRow]
) -> list[Path]:
    written = []
    label = evidence.scale if runs and evidence.scale != PAPER_SCALE else ""  # marks an item made of such runs
    if runs:
        written.append(write_csv(folder / "runs.csv", *runs_table(runs, item.fields)))
        written.append(write_csv(folder / "settings.csv", *settings_table(runs, item.fields)))
    if judged:
        written.append(write_rows(folder, judged))
    shown = ""
    if item.table:
        table = item.table(evidence, judged)
        table = replace(table, notes=(*table.notes, *item.notes))
        shown = markdown(table) + ("\n[All columns](table.csv)\n" if table.shown else "")
        written.append(write_table_csv(folder / "table.csv", table))
    if item.draw:
        drawable = not item.sweeps or Runs(run for run in runs if run.job.sweep in item.sweeps).recorded
        written += _draw(folder, item.title, item.draw if drawable else lambda _: None, evidence, label)
    mark = _BANNER.format(scale=label.upper()) if label else ""
    text = item_page(paper, item, judged, shown, mark, [path.name for path in written])
    return [*written, write_text(folder / "README.md", text)]


def _draw(folder: Path, title: str, draw: Callable[..., Any], evidence: Evidence | Runs, label: str) -> list[Path]:
    """Draw a figure, or remove an old one where there is nothing to draw."""
    with plots.style():
        figure = draw(evidence)
        if figure is None:
            (folder / plots.FILE).unlink(missing_ok=True)
            return []
        figure.suptitle(figure.get_suptitle() or title, fontsize=10)
        return plots.save(figure, folder, label)


def main(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="python -m runner aggregate",
        description="Turn the records of a paper into tables, figures, claims and pages.",
    )
    parser.add_argument("paper", help=f"{', '.join(paper_names())}, or {STUDIES}")
    parser.add_argument("--scale", default=PAPER_SCALE, help="whose records: paper (default) or smoke")
    folders = parser.add_mutually_exclusive_group()
    folders.add_argument("--items", help="rewrite the folders of these only, not the pages: fig-3,table-3")
    folders.add_argument("--folders", action="store_true", help="rewrite the folders of all items, not the pages")
    parser.add_argument("--results", type=Path, help="the runs' runtime.results_root")
    chosen = parser.parse_args(arguments)
    if chosen.paper == STUDIES:
        if chosen.items or chosen.folders or chosen.results or chosen.scale != PAPER_SCALE:
            raise ValueError("The pages of the studies are made at the paper's scale, in this repository: no options.")
        print(shown(aggregate_studies()))
        return 0
    items = None if chosen.items is None else names_of(chosen.items)
    root = chosen.results.expanduser() if chosen.results else None
    if root is not None and not root.is_dir():
        raise ConfigError(f"{root} is no folder.")
    written = aggregate(chosen.paper, chosen.scale, items, root, pages_too=not chosen.folders)
    print(pages.headline(chosen.paper, chosen.scale, folder_of(chosen.scale, root), items))
    print(shown(written))
    return 0


def write_leaderboard(folder: Path, shown: Sequence[Entry], runs: Runs, searched: int) -> list[Path]:
    """Write the pages and the table in leaderboard/, and the figure of the front page. Return the files."""
    place = folder / "leaderboard"
    return [
        write_text(place / "README.md", page(shown, comparisons(shown), read_published(), searched)),
        write_text(place / "matrix.md", matrix_page(comparisons(shown))),
        write_text(place / "settings.md", settings_page(comparisons(shown))),
        write_csv(place / "leaderboard.csv", COLUMNS, csv_rows(shown)),
        figures.write_front(folder, shown, runs),
    ]


def leaderboard(arguments: Sequence[str]) -> int:
    """Write the test accuracy of every paper's methods at the same sound epsilons.

    Nothing is trained: the numbers come from the records. A setting counts if its delta is at most the board's and its
    runs report on test images. A run counts with the accuracy after its last epoch within the sound epsilon. Epochs are
    not chosen by accuracy.
    """
    Parser(prog="python -m runner leaderboard", description=leaderboard.__doc__).parse_args(arguments)
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
    written = write_leaderboard(folder, shown, runs, trials(jobs_of_board()))
    line.clear()
    for path in written:
        print(path)
    return 0

"""The results table at the top of README.md: each paper's headline, between two markers."""

from __future__ import annotations

from pathlib import Path

from runner.config import REPOSITORY
from runner.report.files import Table, markdown, write_text
from runner.report.pages import headline_table
from runner.report.papers import every_paper
from runner.report.verdicts import NOT_RUN

BEGIN, END = "<!-- results: written by `python -m runner.aggregate` -->", "<!-- end of results -->"


def write_readme(results: Path, readme: Path = REPOSITORY / "README.md") -> Path:
    """Replace what stands between the markers of the README by the headline claims as last aggregated.

    Those that nothing has been measured for are counted below the table, and listed in results/README.md.

    Raises:
        ValueError: the README has not exactly these two markers, in this order.
    """
    before, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme} has lost the markers between which the results table stands.")
    header: tuple[str, ...] = ()
    rows: list[list[str]] = []
    remarks: list[str] = []
    not_run = 0
    for paper in every_paper():
        remarks += [text.format(results="results/") for text in paper.remarks]
        table = headline_table(paper, results)
        header = ("paper", *table.header)
        verdict = table.header.index("verdict")
        measured = [row for row in table.rows if row[verdict] != NOT_RUN]
        not_run += len(table.rows) - len(measured)
        rows += [[paper.name.replace("_", "-"), *row] for row in measured]
    if not_run:
        remarks.append(
            f"{not_run} more claims of these papers' main tables and figures have no run yet: *not run* in "
            "[results/README.md](results/README.md)."
        )
    return write_text(readme, f"{before}{BEGIN}\n{markdown(Table(header, rows, remarks))}{END}{after}")

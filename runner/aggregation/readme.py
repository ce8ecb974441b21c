"""The results table at the top of README.md: each paper's headline, between two markers."""

from __future__ import annotations

from pathlib import Path

from runner.aggregation.files import Table, markdown, write_text
from runner.aggregation.report import headline_table
from runner.config import REPOSITORY
from runner.papers import KNOWN, load

BEGIN, END = "<!-- results: written by `python -m runner.aggregate` -->", "<!-- end of results -->"


def write_readme(results: Path, readme: Path = REPOSITORY / "README.md") -> Path:
    """Replace what stands between the markers of the README by the headline claims as last aggregated.

    Raises:
        ValueError: the README has not exactly these two markers, in this order.
    """
    before, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme} has lost the markers between which the results table stands.")
    header: tuple[str, ...] = ()
    rows: list[list[str]] = []
    for name in KNOWN:
        table = headline_table(load(name), results)
        header = ("paper", *table.header)
        rows += [[name.replace("_", "-"), *row] for row in table.rows]
    return write_text(readme, f"{before}{BEGIN}\n{markdown(Table(header, rows))}{END}{after}")

"""The list of findings in README.md, between two markers."""

from __future__ import annotations

from pathlib import Path

from runner.config import REPOSITORY
from runner.report.files import write_text
from runner.report.papers import every_paper
from runner.report.statements import findings_list

BEGIN, END = "<!-- results: written by `python -m runner aggregate` -->", "<!-- end of results -->"


def write_readme(results: Path) -> Path:
    """Replace the text between the markers of the README by the findings of the last aggregation.

    Raises:
        ValueError: the README lacks these two markers, in this order.
    """
    readme = REPOSITORY / "README.md"
    before, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme} has lost the markers of the list of findings.")
    found = findings_list(every_paper(), results)
    return write_text(readme, f"{before}{BEGIN}\n{found}{END}{after}")

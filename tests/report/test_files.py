"""Files: Markdown cells stay cells, and columns have different names."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.config import REPOSITORY
from runner.report.files import Table, markdown, write_csv, write_table_csv


def test_a_cell_of_a_markdown_table_is_text() -> None:
    text = markdown(Table(["a", "b|c"], [["<b>x</b> | y", "one\n| two"], ["<3", "x < y"]]))
    assert text.splitlines() == [
        "| a | b\\|c |",
        "| --- | --- |",
        "| &lt;b>x&lt;/b> \\| y | one \\| two |",
        "| <3 | x < y |",
    ]


def test_people_see_the_shown_columns_and_the_csv_has_all(tmp_path: Path) -> None:
    table = Table(["a", "b", "c"], [[1, 2, 3]], shown=["c", "a"])
    assert markdown(table) == "| c | a |\n| --- | --- |\n| 3 | 1 |\n"
    assert markdown(Table(["a", "a"], [[1, 2]])).endswith("| 1 | 2 |\n")
    assert write_table_csv(tmp_path / "table.csv", table).read_text() == "a,b,c\n1,2,3\n"


def test_no_committed_table_is_wider_than_a_page() -> None:
    for path in REPOSITORY.glob("results/*/**/*.md"):
        headers = [line for line in path.read_text().splitlines() if line.startswith("| --- |")]
        assert all(header.count("|") <= 8 for header in headers), path


def test_a_column_has_a_name_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two columns have one name, of epochs, seed, epochs"):
        write_csv(tmp_path / "runs.csv", ["epochs", "seed", "epochs"], [])

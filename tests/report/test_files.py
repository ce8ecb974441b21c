"""Files: Markdown cells stay cells, and columns have different names."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.report.files import Table, markdown, write_csv


def test_a_cell_of_a_markdown_table_is_text() -> None:
    text = markdown(Table(["a", "b|c"], [["<b>x</b> | y", "one\n| two"], ["<3", "x < y"]]))
    assert text.splitlines() == [
        "| a | b\\|c |",
        "| --- | --- |",
        "| &lt;b>x&lt;/b> \\| y | one \\| two |",
        "| <3 | x < y |",
    ]


def test_a_column_has_a_name_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two columns have one name, of epochs, seed, epochs"):
        write_csv(tmp_path / "runs.csv", ["epochs", "seed", "epochs"], [])

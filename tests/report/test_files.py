"""Tables as Markdown: what is in a cell stays in it."""

from __future__ import annotations

from runner.report.files import Table, markdown


def test_a_cell_of_a_markdown_table_is_text() -> None:
    text = markdown(Table(["a", "b|c"], [["<b>x</b> | y", "one\n| two"], ["<3", "x < y"]]))
    assert text.splitlines() == [
        "| a | b\\|c |",
        "| --- | --- |",
        "| &lt;b>x&lt;/b> \\| y | one \\| two |",
        "| <3 | x < y |",
    ]

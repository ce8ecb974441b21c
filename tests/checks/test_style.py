"""The checks of English: what they accept and what they find."""

from __future__ import annotations

import pytest

from checks.style import faults, faults_of_markdown, faults_of_strings, faults_of_tables, faults_of_yaml

LONG = " ".join(["word"] * 26)
HALVES = " ".join(["word"] * 14) + "; " + " ".join(["word"] * 14)


@pytest.mark.parametrize(
    ("check", "source", "lines"),
    [
        (faults, f'"""Return this.\n\n{LONG}.\n"""\n\n# {HALVES}\nx = "{LONG}"\n', [1]),
        (faults, '"""What it is, beside others."""\n', [1, 1]),
        (faults_of_strings, f'"""{LONG}"""\ny = f"{{x}} {LONG}"\nz = ("{HALVES}", "ours", "is ours")\n', [2, 3, 3]),
        (faults_of_yaml, f"# {HALVES}\nkey: {LONG}\nlist: {LONG.replace(' ', ', ')}\ncode: x # is ours\n", [1, 2]),
        (faults_of_markdown, f"A [{LONG}](page.md).\n\n- One.\n- {HALVES}.\n\n| {LONG} |\n", [1, 3]),
        (faults_of_markdown, f"```\n{LONG}\n```\n\n# {LONG}\n\n    {LONG}\n\nOne `{LONG}` ({LONG}).\n", []),
        (faults_of_tables, "| a | -1 |\n| [-1, 2] | b ‡ |\n| 2026-11-25 | −1 |\n", [1, 2, 2]),
    ],
)
def test_a_fault_is_found_where_it_begins(check, source: str, lines: list[int]) -> None:
    assert sorted(line for line, _ in check(source)) == lines

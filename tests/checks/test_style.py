"""The checks of English: what they accept, what is a fault and what only a warning."""

import subprocess
from pathlib import Path

import pytest

from checks import style

LONG, LONGER = (" ".join(["word"] * n) for n in (35, 36))
SHORT = "It is one. It is two. It is three."


@pytest.mark.parametrize(
    ("name", "source", "faults"),
    [
        ("tests/a.py", f'"""Return it.\n\n{LONGER}.\n"""\n\n# {LONGER}\nx = "{LONGER}"\n', [1, 6]),
        ("runner/a.py", f'"""{LONG}."""\ny = f"{{x}} {LONGER}"\nz = ("{LONGER}", "{LONG}. {LONG}")\n', [2, 3]),
        ("tests/a.py", f"def test_{'a' * 55}(): ...\n\n\nclass A:\n    def test_{'b' * 56}(self): ...\n", [5]),
        ("conf/a.yaml", f"# {LONGER}\nkey: {LONGER}\nlist: {LONGER.replace(' ', ', ')}\n", [1, 2]),
        ("docs/a.md", f"A [{LONG}](page.md).\n\n- One.\n- {LONG}; two.\n\n| {LONGER} |\n", [1, 3]),
        ("docs/a.md", f"```\n{LONGER}\n```\n\n# {LONGER}\n\n    {LONGER}\n\nOne `{LONGER}` ({LONGER}).\n", []),
        ("results/a.md", f"{LONGER}\n\n| a | -1 |\n| [-1, 2] | b ‡ |\n| 2026-11-25 | −1 |\n", [3, 4, 4]),
    ],
)
def test_a_fault_is_reported_on_its_line(name: str, source: str, faults: list[int]) -> None:
    assert sorted(line for line, _, warning in style.remarks(name, source) if not warning) == faults


def test_three_short_sentences_in_a_row_are_a_warning(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "page.md").write_text(f"{SHORT}\n\nIt is one. It is two, because {LONG[:80]}. It is three.\n")
    (tmp_path / "own.md").write_text(f"{LONGER}\n")
    monkeypatch.setattr(style, "REPOSITORY", tmp_path)
    for command in (["init", "-q"], ["add", "page.md"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert style.main([]) == 0, "a file that git does not track was read, or a warning failed"
    assert capsys.readouterr().out == "page.md:1: warning: 3 short sentences, up to: It is three\n"
    (tmp_path / "page.md").write_text(f"{LONGER}\n")
    assert style.main([]) == 1

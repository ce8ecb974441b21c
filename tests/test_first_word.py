"""Commands that answer without a run import nothing that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runner.config import REPOSITORY

_SLOW = ("torch", "scipy.stats", "pandas", "opacus", "matplotlib", "dp_accounting")
_ANSWER = f"""
import runpy, sys
try:
    runpy.run_module("runner", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    assert not ended.code, ended.code
print("imported:", [name for name in {_SLOW} if name in sys.modules])
"""


@pytest.mark.parametrize("command", ["--help", "show --results {}", "explain --help", "claims"])
def test_no_answer_waits_for_a_library_that_it_does_not_need(command: str, tmp_path: Path) -> None:
    arguments = command.format(tmp_path).split()
    made = subprocess.run([sys.executable, "-c", _ANSWER, *arguments], cwd=REPOSITORY, capture_output=True, text=True)
    assert made.stdout.splitlines()[-1:] == ["imported: []"], made.stderr

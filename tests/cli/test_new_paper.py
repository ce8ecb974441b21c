"""A new paper: written, refused where its name is taken, and complete in a copy of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tracked import copy_tracked

NAME = "lost_method"
COMMANDS = f"""
from runner.cli.commands import carry_out
assert carry_out("new-paper", [{NAME!r}]) == 0
assert carry_out("reproduce", [{NAME!r}, "--plan"]) == 0
assert carry_out("aggregate", [{NAME!r}, "--items", " table-1"]) == 0
"""


def test_a_new_paper_lists_its_runs_aggregates_and_passes_tests(tmp_path: Path) -> None:
    copy_tracked(tmp_path, *(f"{folder}/**/*" for folder in ("runner", "conf", "sweeps", "tests", "checks")))
    copy_tracked(tmp_path, "pyproject.toml")
    (tmp_path / "results").mkdir()

    def carry_out(*words: str, code: int = 0) -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        ran = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout if code == 0 else ran.stderr

    text = carry_out("-c", COMMANDS)
    plan = next(line for line in text.splitlines() if "table-1" in line)
    assert plan.split()[1:3] == ["10", "0"], "runs, recorded"
    assert "Method above baseline" in text
    assert (tmp_path / "results" / NAME / "table-1" / "claims.csv").exists()
    tests = ("papers/test_every_paper.py", "records/test_sweeps.py")
    carry_out(
        "-m", "pytest", "-q", "-k", f"{NAME} or each_experiment or every_folder", *(f"tests/{name}" for name in tests)
    )
    sweep = tmp_path / "sweeps" / NAME / "table_1.yaml"
    good = sweep.read_text()
    for old, new, text in (
        ("hydra:", "hydra", f'"{sweep}", line '),
        (good[good.index("  sweeper:") :], "", f"is an experiment of none of the claim's sweeps ({NAME}/table_1)"),
    ):
        sweep.write_text(good.replace(old, new))
        error = carry_out("-m", "runner", "reproduce", NAME, "--plan", code=2)
        assert text in error
        assert error.count("\n") == 1

"""A new paper: written, refused where its name is taken, and complete in a copy of the checkout."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tracked import copy_tracked

NAME = "lost_method"
# In one process: two mistakes in its sweep, in forks because a process reads a file once; its plan, page and tests.
COMMANDS = f"""
import os, pytest
from pathlib import Path
from runner.cli import reproduce
from runner.cli.commands import carry_out
assert carry_out("new-paper", [{NAME!r}]) == 0
sweep = Path("sweeps/{NAME}/table_1.yaml")
good = sweep.read_text()
for old, new in (("hydra:", "hydra"), (good[good.index("  sweeper:") :], "")):
    sweep.write_text(good.replace(old, new))
    if not (child := os.fork()):
        os._exit(carry_out("reproduce", [{NAME!r}, "--plan"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
sweep.write_text(good)
assert carry_out("reproduce", [{NAME!r}, "--plan"]) == 0
assert carry_out("aggregate", [{NAME!r}, "--items", " table-1"]) == 0
chosen = "{NAME} or each_experiment or every_folder"
assert pytest.main(["-q", "-k", chosen, "tests/papers/test_every_paper.py", "tests/records/test_sweeps.py"]) == 0
"""


def test_a_new_paper_lists_its_runs_aggregates_and_passes_tests(tmp_path: Path) -> None:
    copy_tracked(tmp_path, *(f"{folder}/**/*" for folder in ("runner", "conf", "sweeps", "tests", "checks")))
    copy_tracked(tmp_path, "pyproject.toml")
    (tmp_path / "results").mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", COMMANDS]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    plan = next(line for line in ran.stdout.splitlines() if "table-1" in line)
    assert plan.split()[1:3] == ["10", "0"], "runs, recorded"
    assert "Method above baseline" in ran.stdout
    assert (tmp_path / "results" / NAME / "table-1" / "claims.csv").exists()
    syntax, claim, *_ = ran.stderr.splitlines()
    assert f'"{tmp_path / "sweeps" / NAME / "table_1.yaml"}", line ' in syntax
    assert f"is an experiment of none of the claim's sweeps ({NAME}/table_1)" in claim

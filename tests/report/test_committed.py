"""What is committed is what sweeps, configs and records give. All sweeps are composed in this file alone: it takes
minutes, and once is enough for everything that hangs on it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from runner.aggregate import aggregate
from runner.config import REPOSITORY
from runner.records.jobs import sweep_jobs
from runner.report.papers import known
from runner.report.readme import write_readme

SWEEPS = sorted(
    path.relative_to(REPOSITORY / "sweeps").with_suffix("").as_posix()
    for path in (REPOSITORY / "sweeps").rglob("*.yaml")
)
TEXT = (".md", ".csv")  # figures are drawn, and not compared


def test_there_are_sweeps() -> None:
    assert len(SWEEPS) >= 97


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_sweep_lists_runs(sweep: str) -> None:
    jobs = sweep_jobs(sweep)
    assert len({job.run_id for job in jobs}) == len(jobs) >= 1
    for name in {job.experiment for job in jobs}:
        assert (REPOSITORY / f"conf/experiment/{name}.yaml").exists()
        assert "/base_" not in name


@pytest.mark.slow
def test_the_committed_results_are_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: path.touch())  # a second each, and nobody reads them
    results, update = REPOSITORY / "results", "run make aggregate and commit"
    shutil.copytree(results / "runs", tmp_path / "runs")
    for name in ("audit", "leaderboard"):  # made by other commands; the index links what is there
        shutil.copytree(results / name, tmp_path / name)
    for name in known():
        aggregate(name, results_root=tmp_path)
    made, committed = (
        {
            path.relative_to(root)
            for path in (root / "README.md", *(path for name in known() for path in (root / name).rglob("*.*")))
            if path.suffix in TEXT
        }
        for root in (tmp_path, results)
    )
    assert made == committed, f"not made or not committed: {', '.join(map(str, made ^ committed))}: {update}"
    names = {"README.md", "claims.csv", "settings.csv", "runs.csv", "table.md"}
    assert {path.name for path in made} >= names
    for path in sorted(made):
        same = (tmp_path / path).read_text() == (results / path).read_text()
        assert same, f"results/{path} is not what the records in results/runs give: {update}"
    readme = tmp_path / "copy.md"
    shutil.copy(REPOSITORY / "README.md", readme)
    write_readme(tmp_path, readme)
    assert readme.read_text() == (REPOSITORY / "README.md").read_text(), f"the table of README.md is old: {update}"

"""The comparison of `make cluster` with an undisturbed paper, and its page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from checks.cluster import paper
from checks.cluster.report import Played, write
from checks.cluster.scenes import _without_paths
from runner.records.files import write_record


@pytest.fixture
def two_folders(tmp_path: Path, fabricate, jobs) -> tuple[Path, Path]:
    """Make the same records and tables in two folders."""
    for job in jobs("fig_3", "mnist_tanh", "smoke"):
        fabricate(job, [50.0])
    table = tmp_path / "smoke" / "tempered_sigmoid" / "fig-3" / "claims.csv"
    table.parent.mkdir(parents=True)
    table.write_text("claimed,wall_seconds\n98.0,12\n")
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "smoke", other / "smoke")
    (other / "smoke" / "tempered_sigmoid" / "fig-3" / "claims.csv").write_text("claimed,wall_seconds\n98.0,13\n")
    return tmp_path, other


@pytest.mark.parametrize("what", ["nothing", "missing", "half", "left over", "another table", "another record"])
def test_what_is_wrong_is_noticed(two_folders: tuple[Path, Path], what: str) -> None:
    ours, _ = two_folders
    record = sorted((ours / "smoke" / "runs").iterdir())[0]
    if what == "missing":
        record.unlink()
    elif what == "half":
        record.write_text(record.read_text()[:200])
    elif what == "another record":
        content = json.loads(record.read_text())
        content["final"]["test_accuracy"] = content["history"]["test_accuracy"][-1] = 51.0
        write_record(record, content, replace=True)
    elif what == "left over":
        (record.parent / ".x.part").write_text("")
    elif what == "another table":
        (ours / "smoke" / "tempered_sigmoid" / "fig-3" / "claims.csv").write_text("claimed,wall_seconds\n97.0,12\n")
    assert len(paper.wrong(*two_folders)) == (what != "nothing")


def test_a_transcript_names_no_path_and_what_was_left_out(tmp_path: Path) -> None:
    played = Played("slurm", "")
    played.deal("a job killed", "noticed after 3 s")
    played.note(
        "a command", "\x1b[33msee /home/somebody/results/x.err\x1b[0m (tempered_sigmoid/fig_3 stays) at 192.0.2.2"
    )
    text = write(tmp_path, [played, Played("ray", "no Ray")]).read_text()
    assert "somebody" not in text
    assert "see PATH (tempered_sigmoid/fig_3 stays) at ADDRESS" in text
    assert "| ray | nothing | left out: no Ray |" in text
    said = "a · finished x\nSlurm job 1_0 ended without a word\nb · finished y\n/tmp/x: runs.csv"
    assert _without_paths(said) == [
        "Slurm job 1_0 ended without a word", "... 2 lines of runs that ended, the last of which:", "b · finished y",
    ]  # fmt: skip

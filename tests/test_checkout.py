"""Files that other programs leave in a checkout, and git's variables for hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.config import REPOSITORY, options_of
from runner.config.checkout import git, scan
from runner.report.own import record_files
from runner.speed import kernels

HIDDEN = ["._tanh.yaml", ".#tanh.yaml", ".tanh.yaml.swp", ".ipynb_checkpoints/tanh.yaml", ".tanh.yaml", "._.yaml"]


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_files_are_not_scanned(name: str, tmp_path: Path) -> None:
    folder = tmp_path / ".results"  # a hidden folder above does not matter
    for path in (folder / name, folder / "relu.yaml", folder / "more" / "elu.yaml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x00\xb0")
    assert scan(folder, "*.yaml", "*/*.yaml", "**/*.yaml") == [folder / "more" / "elu.yaml", folder / "relu.yaml"]


def test_hidden_files_are_no_options_records_or_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "._0123456789ab.json").write_bytes(b"\x00\xb0")
    assert record_files(tmp_path) == []
    (tmp_path / "conf" / "activation").mkdir(parents=True)
    for name in ("._tanh.yaml", "tanh.yaml"):
        (tmp_path / "conf" / "activation" / name).write_bytes(b"\xb0")
    monkeypatch.setattr("runner.config.REPOSITORY", tmp_path)
    options_of.cache_clear()
    assert options_of("activation") == ["tanh"]
    options_of.cache_clear()
    for name in ("._vectors.h", "vectors.h", "tanh.cpp"):
        (tmp_path / name).write_bytes(b"\xb0" if name[0] == "." else b"text")
    monkeypatch.setattr(kernels, "_FOLDER", tmp_path)
    assert kernels._sources(tmp_path / "tanh.cpp") == ["text", "text"]


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE"])
def test_a_hook_of_another_repository_changes_no_answer(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path / "ours"], check=True)
    subprocess.run(["git", "init", "--quiet", "--initial-branch=theirs", tmp_path / "other"], check=True)
    before = git(tmp_path / "ours", "rev-parse", "--absolute-git-dir"), git(tmp_path / "ours", "status", "--short")
    monkeypatch.setenv(name, str(tmp_path / "other" / ("" if name == "GIT_WORK_TREE" else ".git")))
    after = git(tmp_path / "ours", "rev-parse", "--absolute-git-dir"), git(tmp_path / "ours", "status", "--short")
    assert before == after
    assert before[0] == f"{tmp_path / 'ours' / '.git'}\n"


def test_the_backend_of_a_notebook_stops_no_command() -> None:
    environment = os.environ | {"MPLBACKEND": "module://absent_inline.backend_inline"}
    code = "import runner.terminal as t; t.prepare_process(); import matplotlib; print(matplotlib.get_backend())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.lower() == "agg\n"

"""Files that other programs leave in a checkout, and git's variables for hooks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.claims.claim import Claim
from runner.cli import help
from runner.config import REPOSITORY, options_of
from runner.config.checkout import git
from runner.records.store import record_files
from runner.report.leaderboard.entries import planned_jobs
from runner.report.papers import study_files
from runner.speed import kernels

NAMES = {  # of files that other programs leave next to tanh.yaml, and whether they are options
    "._tanh.yaml": False,
    ".#tanh.yaml": False,
    "tanh.yaml~": False,
    "tanh.yaml.txt": False,
    ".DS_Store": False,
    ".~lock.tanh.yaml#": False,
    "__pycache__/tanh.pyc": False,
    ".ipynb_checkpoints/tanh-checkpoint.yaml": False,
    "tanh copy.yaml": True,
    "tanh.sync-conflict-20240101-120000-ABCDEFG.yaml": True,
}
SCANNED = {
    "conf/activation": "tanh.yaml",
    "studies": "best.yaml",
    "results/runs": f"{12 * '0'}.json",
    "sweeps/lipschitz": "fig_3_search.yaml",
    "training/diagnostics": "x.py",
    "kernels": "v.h",
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A made-up checkout with a file in each folder that is scanned, below a hidden folder."""
    tmp_path = tmp_path / ".hidden"
    for place, name in SCANNED.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / name).write_text('"""A text."""', encoding="utf-8")
    for place in ("config", "cli.help", "claims.claim", "report.papers", "report.leaderboard.entries"):
        monkeypatch.setattr(f"runner.{place}.REPOSITORY", tmp_path)
    monkeypatch.setattr("runner.report.leaderboard.entries.sweep_jobs", lambda sweep: [sweep])
    monkeypatch.setattr("runner.cli.help.PACKAGE", tmp_path)
    monkeypatch.setattr(kernels, "_FOLDER", tmp_path / "kernels")
    options_of.cache_clear()
    yield tmp_path
    options_of.cache_clear()


def listings(folder: Path) -> list[object]:
    """List whatever the commands list of a checkout."""
    options_of.cache_clear()
    searches: Any = Claim.searches
    return [
        options_of("activation"), help.group_text("activation"), help.diagnostics(),
        study_files(), record_files(folder / "results"), kernels._sources(folder / "kernels" / "v.h"),
        planned_jobs(), searches.fget(SimpleNamespace(sweep="lipschitz/fig_3")),
    ]  # fmt: skip


def test_files_of_other_programs_are_options_by_their_suffix(checkout: Path) -> None:
    folder = checkout / "conf" / "activation"
    for name, is_option in NAMES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"text" if is_option else b"\x00\xb0")
    options = [Path(name).stem for name, is_option in NAMES.items() if is_option]
    assert options_of("activation") == sorted(["tanh", *options])
    assert len(help.group_text("activation").splitlines()) == 1 + len(options)


def test_what_is_no_file_or_the_copy_of_a_sweep_is_not_read(checkout: Path) -> None:
    before = listings(checkout)
    assert before[0] == ["tanh"]
    assert before[6:] == [["lipschitz/fig_3_search"]] * 2
    for place, name in SCANNED.items():
        suffix = Path(name).suffix
        (checkout / place / f"folder{suffix}").mkdir()
        (checkout / place / f"link{suffix}").symlink_to("nowhere")
        os.mkfifo(checkout / place / f"pipe{suffix}")
        (checkout / place / f"._{name}").write_bytes(b"\x00\xb0")
    for end in (" copy", ".sync-conflict-1", " (A's conflicted copy)"):
        (checkout / "sweeps" / "lipschitz" / f"fig_3_search{end}.yaml").write_text("x", encoding="utf-8")
    assert listings(checkout) == before


def test_a_hook_of_another_repository_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ours", "other"):
        subprocess.run(["git", "init", "--quiet", tmp_path / name], check=True)
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.setenv(variable, str(tmp_path / "other" / ("" if variable == "GIT_WORK_TREE" else ".git")))
    assert git(tmp_path / "ours", "rev-parse", "--absolute-git-dir") == f"{tmp_path / 'ours' / '.git'}\n"
    assert git(tmp_path / "ours", "status", "--short") == ""


FIGURE = """
from runner.terminal import prepare_process
prepare_process()
import hashlib, pathlib, sys
from runner.report.plots import figure, save, style
with style():
    drawn = figure(4, 3)
    drawn.add_subplot(title="tanh, ε").plot([1, 2, 3], [3, 1, 2], label="ε = 3")
    drawn.legend()
    (path,) = save(drawn, pathlib.Path(sys.argv[1]))
print(hashlib.sha256(path.read_bytes()).hexdigest())
"""
RC = "svg.fonttype: none\nfont.family: nosuch\ntext.usetex: True\nlines.linewidth: 9\nsavefig.format: png\n"
ENVIRONMENTS = {  # several variables each; None takes one away, and {} is the folder of a matplotlibrc
    "a notebook": {
        "MPLBACKEND": "module://absent_inline.backend_inline", "MATPLOTLIBRC": "{}", "MPLCONFIGDIR": "/proc",
        "HOME": None, "DISPLAY": ":99", "PYTHONIOENCODING": "ascii", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo",
        "SOURCE_DATE_EPOCH": "1",
    },
    "started there": {"MPLBACKEND": "QtAgg", "MPLCONFIGDIR": "{}", "PWD": "{}", "PYTHONPATH": str(REPOSITORY)},
}  # fmt: skip


def drawn(folder: Path, changes: dict[str, str | None]) -> str:
    """Draw a figure in a process with another environment, and return the hash of its file."""
    unreadable = "" if "PWD" in changes else "# Grüße\n"
    (folder / "matplotlibrc").write_text(RC + unreadable, encoding="latin1")
    variables = {name: value and value.format(folder) for name, value in changes.items()}
    environment = {name: value for name, value in (os.environ | variables).items() if value is not None}
    command = [sys.executable, "-c", FIGURE, folder]
    place = variables.get("PWD", REPOSITORY)
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> str:
    return drawn(tmp_path_factory.mktemp("usual"), {})


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_no_environment_changes_a_figure(kind: str, usual: str, tmp_path: Path) -> None:
    assert len(usual) == 65
    assert drawn(tmp_path, ENVIRONMENTS[kind]) == usual


def test_a_copy_inside_another_repository_has_no_commit(tmp_path: Path) -> None:
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    copy = tmp_path / "copy"
    copy.mkdir()
    assert git(tmp_path, "rev-parse", "HEAD")
    assert git(copy, "rev-parse", "HEAD") is None

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
KINDS = {"folder": Path.mkdir, "link": lambda path: path.symlink_to("nowhere"), "pipe": os.mkfifo}
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


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_program_is_an_option_by_its_suffix(name: str, checkout: Path) -> None:
    path = checkout / "conf" / "activation" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"text" if NAMES[name] else b"\x00\xb0")
    assert options_of("activation") == sorted({"tanh", *([path.stem] if NAMES[name] else [])})
    assert len(help.group_text("activation").splitlines()) == 1 + NAMES[name]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_not_read(kind: str, checkout: Path) -> None:
    before = listings(checkout)
    assert before[0] == ["tanh"]
    assert before[6:] == [["lipschitz/fig_3_search"]] * 2
    for place, name in SCANNED.items():
        KINDS[kind](checkout / place / f"odd{Path(name).suffix}")
        (checkout / place / f"._{name}").write_bytes(b"\x00\xb0")
    assert listings(checkout) == before


@pytest.mark.parametrize("end", [" copy", ".sync-conflict-1", " (A's conflicted copy)"])
def test_the_copy_of_a_sweep_is_no_sweep(end: str, checkout: Path) -> None:
    before = listings(checkout)
    (checkout / "sweeps" / "lipschitz" / f"fig_3_search{end}.yaml").write_text("x", encoding="utf-8")
    assert listings(checkout) == before


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"])
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
    "Jupyter": {"MPLBACKEND": "module://absent_inline.backend_inline", "DISPLAY": None, "PYTHONIOENCODING": "ascii"},
    "a desktop": {"MPLBACKEND": "TkAgg", "DISPLAY": ":99", "MATPLOTLIBRC": "{}", "LC_ALL": "tr_TR.UTF-8"},
    "no home": {"MPLBACKEND": "", "HOME": None, "MPLCONFIGDIR": "/proc", "LC_ALL": "C", "TZ": "Asia/Tokyo"},
    "own settings": {"MPLBACKEND": "nonsense", "MPLCONFIGDIR": "{}", "SOURCE_DATE_EPOCH": "1", "LANG": "C"},
    "started there": {"MPLBACKEND": "QtAgg", "PWD": "{}", "PYTHONPATH": str(REPOSITORY)},
}


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

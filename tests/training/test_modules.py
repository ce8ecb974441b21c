"""The owner of a module: a user's own is in the command's folder, and is no tool of a checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.config import REPOSITORY
from runner.training import modules
from runner.training.modules import is_beside
from tests.tracked import tracked


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a checkout with a tool, and files of a user in the current folder."""
    root = tmp_path / "checkout"
    for name in ("runner/__init__.py", "tool/__init__.py", "tool/inner.py", "of_mine/__init__.py", "mynets.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("raise RuntimeError('imported')\n")
    monkeypatch.setattr(modules, "REPOSITORY", root)
    monkeypatch.setattr(modules, "PACKAGE", root / "runner")
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", ["", *(place for place in sys.path if place and Path(place) != REPOSITORY)])
    modules._folders_of_checkout.cache_clear()
    yield root
    modules._folders_of_checkout.cache_clear()


def committed(root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "add", "runner", "tool"], check=True)


def test_files_and_packages_in_the_root_are_the_users_own_but_not_tools(checkout: Path) -> None:
    committed(checkout)
    assert {name: is_beside(name) for name in ("mynets", "of_mine", "of_mine.x", "tool", "tool.inner", "runner")} == {
        "mynets": True, "of_mine": True, "of_mine.x": True, "tool": False, "tool.inner": False, "runner": False,
    }  # fmt: skip


def test_without_git_no_folder_can_be_told_from_a_tool(checkout: Path) -> None:
    assert [is_beside(name) for name in ("mynets", "of_mine", "tool")] == [True, False, False]


def test_a_tool_is_none_of_the_users_own_from_inside_its_folder_or_through_a_link(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(checkout)
    monkeypatch.chdir(checkout / "tool")
    assert not is_beside("inner")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "linked").symlink_to(checkout / "tool")
    (elsewhere / "own.py").write_text("")
    monkeypatch.chdir(elsewhere)
    assert [is_beside(name) for name in ("own", "linked", "linked.inner")] == [True, False, False]


def test_every_other_folder_with_code_is_a_tool_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.syspath_prepend("")
    folders = {path.parent.name for path in tracked("*/*.py")}
    assert {"runner", "checks", "tests"} <= folders
    assert not [name for name in folders if is_beside(name)]
    assert not tracked("*.py"), "a file in the root counts as the user's own"

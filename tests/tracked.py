"""The project's own files: what git tracks. A checkout may hold a user's options, modules, studies and records, too."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from runner.config import REPOSITORY
from runner.config.checkout import git


def tracked(pattern: str) -> list[Path]:
    """Return the project's files that match a pattern of `Path.glob`, sorted. Without git all files are its own."""
    return sorted(path for path in REPOSITORY.glob(pattern) if not _listed() or path in _listed())


def tracked_options(group: str) -> list[str]:
    """Return the names of the project's own options of a config group, sorted."""
    return [path.stem for path in tracked(f"conf/{group}/*.yaml")]


def tracked_papers() -> list[str]:
    """Return the names of the project's own papers, sorted."""
    return [path.parent.name for path in tracked("runner/papers/*/__init__.py")]


@cache
def _listed() -> frozenset[Path]:
    return frozenset(REPOSITORY / name for name in (git(REPOSITORY, "ls-files", "-z") or "").split("\0") if name)


def copy_tracked(folder: Path, *patterns: str) -> None:
    """Copy the project's files that match a pattern to the same places below another folder."""
    for path in (path for pattern in patterns for path in tracked(pattern) if path.is_file()):
        target = folder / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)

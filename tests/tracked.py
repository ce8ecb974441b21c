"""The project's own files: what git tracks. A checkout may hold a user's options, modules, studies and records, too."""

import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from runner.config import REPOSITORY
from runner.config.checkout import git

if TYPE_CHECKING:
    from runner.report.statements import Sources


def tracked(pattern: str) -> list[Path]:
    """Return the project's files that match a pattern of `Path.glob`, sorted. Without git all files are its own."""
    return sorted(path for path in REPOSITORY.glob(pattern) if not _listed() or path in _listed())


def tracked_options(group: str) -> list[str]:
    """Return the names of the project's own options of a config group, sorted."""
    return [path.stem for path in tracked(f"conf/{group}/*.yaml")]


def tracked_papers() -> list[str]:
    """Return the names of the project's own papers, sorted."""
    return [path.parent.name for path in tracked("runner/papers/*/paper.yaml")]


@cache
def _listed() -> frozenset[Path]:
    return frozenset(REPOSITORY / name for name in (git(REPOSITORY, "ls-files", "-z") or "").split("\0") if name)


def copy_tracked(folder: Path, *patterns: str) -> None:
    """Copy the project's files that match a pattern to the same places below another folder."""
    for path in (path for pattern in patterns for path in tracked(pattern) if path.is_file()):
        target = folder / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def committed_sources() -> "Sources":
    """Return the committed tables, from which findings take their numbers; `make current` makes them again."""
    from runner.config import RESULTS
    from runner.report.formats import read_csv
    from runner.report.statements import Sources

    def study(name: str) -> list[dict[str, str]]:
        paths = [RESULTS / "studies" / name / f"{table}.csv" for table in ("table", "effects")]
        return [row for path in paths if path.exists() for row in read_csv(path)]

    def board() -> list[Any]:
        flags = {"held_out": "held_out", "by_test_images": "chosen_by_test_images", "made_for_it": "made_for_it"}
        return [
            SimpleNamespace(
                **{name: row[name] for name in ("dataset", "method", "title", "neighbours")},
                **{name: row[column] == "yes" for name, column in flags.items()},
                epsilon=float(row["sound_epsilon_at_most"]),
                mean=float(row["mean"]),
                ideas=tuple(filter(None, row["ideas"].split(", "))),
                accuracies=(float(row["mean"]),) * int(row["n"]),
            )
            for row in read_csv(RESULTS / "leaderboard" / "leaderboard.csv")
        ]

    return Sources(RESULTS, study, board=board)

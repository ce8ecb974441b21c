"""The command under test: a small version of a paper by some launcher, with its records and its tables."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.config import REPOSITORY
from runner.records.files import read_record

PAPER, ITEMS, FIRST = "tempered-sigmoid", "fig-3,fig-4", "fig-4"
_SPEED = ("wall_seconds", "examples_per_second")
_MEASURED = ("run_id", "setting_id", "status", "config", "history", "final", "diagnostics")


def command(root: Path, *arguments: str, items: str = ITEMS) -> list[str]:
    """Return the command line of `make reproduce-PAPER SCALE=smoke` with results in a folder."""
    request = ["--scale", "smoke", "--items", items, f"runtime.results_root={root}", "tracking=disabled"]
    return [sys.executable, "-m", "runner", "reproduce", PAPER, *request, *arguments]


def started(line: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command whose output goes to a file."""
    with log.open("wb") as said:
        return subprocess.Popen(
            line, cwd=REPOSITORY, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )


def said(line: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the output of a command, which has to succeed.

    Raises:
        RuntimeError: it fails.
    """
    done = subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def measured(root: Path) -> dict[str, Any]:
    """Read the fields of the records that depend neither on place nor on time, by run id.

    Raises:
        ValueError: a record is damaged.
    """
    found = {path.stem: read_record(path) for path in sorted((root / "smoke" / "runs").glob("*.json"))}
    return {run_id: {name: record[name] for name in _MEASURED} for run_id, record in found.items()}


def tables(root: Path) -> dict[str, list[dict[str, str]]]:
    """Read the tables made from the records, by name, without the columns on the speed of a run."""
    folder = root / "smoke" / PAPER.replace("-", "_")
    return {path.relative_to(folder).as_posix(): _rows(path) for path in sorted(folder.rglob("*.csv"))}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: text for name, text in row.items() if name not in _SPEED} for row in csv.DictReader(file)]


def wrong(root: Path, undisturbed: Path) -> list[str]:
    """List the differences from an undisturbed paper: records that are missing or changed, and changed tables."""
    found = []
    try:
        ours, theirs = measured(root), measured(undisturbed)
    except ValueError as error:
        return [str(error)]
    if missing := sorted(theirs.keys() - ours.keys()):
        found.append(f"{len(missing)} records are missing: {', '.join(missing)}")
    if more := sorted(ours.keys() - theirs.keys()):
        found.append(f"{len(more)} records too many: {', '.join(more)}")
    found += [
        f"{run_id} says something else" for run_id in ours.keys() & theirs.keys() if ours[run_id] != theirs[run_id]
    ]
    names = {f"{run_id}.json" for run_id in theirs}
    found += [f"{path.name} is left over" for path in (root / "smoke" / "runs").iterdir() if path.name not in names]
    tabled, expected = tables(root), tables(undisturbed)
    differing = [name for name in sorted(tabled.keys() | expected.keys()) if tabled.get(name) != expected.get(name)]
    return found + [f"table {name} is another" for name in differing]

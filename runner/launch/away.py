"""Runs on machines without the results folder: each writes to a temporary folder, and its record is sent back.

The process with the results folder checks each record, and writes it once.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.config import TrackingMode
from runner.records import files
from runner.records.jobs import Job
from runner.records.provenance import LOADED_REVISION

_PLACES = {"runs": files.record_path, files.STOPPED: files.stopped_path, "failed": files.failure_path}


@dataclass(frozen=True)
class RunFile:
    """The text of a run's file: its record, its record until a search stopped it, or the report of a failure."""

    kind: Literal["runs", "stopped", "failed"]
    content: str


def relocated(job: Job, root: Path, data_root: str | None = None) -> Job:
    """Return the same run with another results folder, and with another folder of images if `data_root` is given.

    Offline files of W&B are not written, because they would be lost with the folder. A search does not stop the run
    early, because it would need a file on a shared disk.
    """
    config = copy.deepcopy(job.config)
    config.runtime.results_root = str(root)
    config.runtime.data_root = data_root or config.runtime.data_root
    config.tracking.directory = str(root)
    if config.tracking.mode is TrackingMode.offline:
        config.tracking.mode = TrackingMode.disabled
    return Job.of(job.sweep, job.overrides, config)


def files_of(job: Job) -> list[RunFile]:
    """Read the files that a run has left in its results folder."""
    folder = files.results_folder(job.config)
    paths: dict[Any, Path] = {kind: place(folder, job.run_id) for kind, place in _PLACES.items()}
    return [RunFile(kind, path.read_text(encoding="utf-8")) for kind, path in paths.items() if path.exists()]


def write_returned_files(returned: Sequence[RunFile], job: Job, outcome: str, text: str) -> tuple[str, str]:
    """Write the files that a run sent back.

    Returns:
        The run's outcome and its text. The outcome is "failed", with the reason, if there is no valid record.
    """
    try:
        for file in returned:
            write_returned_file(file, job)
    except ValueError as error:
        return "failed", f"its record is not valid: {error}"
    except OSError as error:
        return "failed", str(error)
    if outcome in ("finished", "diverged", "skipped") and not files.recorded(job.config):
        return "failed", "it sent no record back"
    return outcome, text


def write_returned_file(file: RunFile, job: Job) -> None:
    """Write a file to the results folder of its run. A record that is there already stays.

    Raises:
        ValueError: it is not the whole record of this run.
    """
    path = _PLACES[file.kind](files.results_folder(job.config), job.run_id)
    record = json.loads(file.content)
    if file.kind != "failed":
        files.check_record(path, record)
    if record["provenance"]["git_revision"] is None:  # the node got the code from this machine, without its history
        record["provenance"]["git_revision"] = LOADED_REVISION
    if file.kind == "failed":
        files.write_record(path, record, replace=True)
    elif file.kind == "stopped":
        files.write_stopped(path, record)
    else:
        files.set_aside(path)
        files.write_record(path, record)
        files.failure_path(files.results_folder(job.config), job.run_id).unlink(missing_ok=True)

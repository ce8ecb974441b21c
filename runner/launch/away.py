"""Runs made where the results folder is not: in a folder of their own, from which records come back as values.

Whoever has the results folder checks each and writes it, once, as if it had been made there.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.config import TrackingMode
from runner.records.files import (
    STOPPED,
    check_record,
    failure_path,
    record_path,
    recorded,
    results_folder,
    set_aside,
    stopped_path,
    write_record,
    write_stopped,
)
from runner.records.jobs import Job
from runner.records.provenance import LOADED_REVISION

_PLACES = {"runs": record_path, STOPPED: stopped_path, "failed": failure_path}


@dataclass(frozen=True)
class Parcel:
    """The text of a file of a run: its record, or the report of a failure. A search may have stopped the run."""

    kind: Literal["runs", "stopped", "failed"]
    content: str


def sent(job: Job, root: Path, data_root: str | None = None) -> Job:
    """The same run, with its files in another folder and its images, if that is said, elsewhere.

    What W&B would write for later is not written: it would be lost with the folder. Nothing stops the run early: what
    would decide on that is a file of a shared disk.
    """
    config = copy.deepcopy(job.config)
    config.runtime.results_root = str(root)
    config.runtime.data_root = data_root or config.runtime.data_root
    config.tracking.directory = str(root)
    if config.tracking.mode is TrackingMode.offline:
        config.tracking.mode = TrackingMode.disabled
    return Job.of(job.sweep, job.overrides, config)


def parcels(job: Job) -> list[Parcel]:
    """The files that a sent run has left in its folder."""
    folder = results_folder(job.config)
    paths: dict[Any, Path] = {kind: place(folder, job.run_id) for kind, place in _PLACES.items()}
    return [Parcel(kind, path.read_text(encoding="utf-8")) for kind, path in paths.items() if path.exists()]


def delivered(came: Sequence[Parcel], job: Job, outcome: str, text: str) -> tuple[str, str]:
    """Write what came back of a run. Returns its outcome and what is to be said: "failed" where that is no record."""
    try:
        for parcel in came:
            deliver(parcel, job)
    except ValueError as error:
        return "failed", f"what came back is no record: {error}"
    except OSError as error:
        return "failed", str(error)
    if outcome in ("finished", "diverged", "skipped") and not recorded(job.config):
        return "failed", "no record came back"
    return outcome, text


def deliver(parcel: Parcel, job: Job) -> None:
    """Write what came back to where the run's files belong; a record that is there already stays as it is.

    Raises:
        ValueError: it is not the whole record of this run.
    """
    path = _PLACES[parcel.kind](results_folder(job.config), job.run_id)
    record = json.loads(parcel.content)
    if parcel.kind != "failed":
        check_record(path, record)
    if record["provenance"]["git_revision"] is None:  # the code was sent from here, without its history
        record["provenance"]["git_revision"] = LOADED_REVISION
    if parcel.kind == "failed":
        write_record(path, record, replace=True)
    elif parcel.kind == "stopped":
        write_stopped(path, record)
    else:
        set_aside(path)
        write_record(path, record)
        failure_path(results_folder(job.config), job.run_id).unlink(missing_ok=True)

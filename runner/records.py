"""Records: one small JSON file per run, written once and never changed.

A record has the keys run_id, setting_id, status, config, history, final, diagnostics and provenance. Numbers keep five
significant digits; those that JSON cannot hold are the strings "inf", "-inf" and "nan", which float() reads back.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig


def results_folder(config: DictConfig) -> Path:
    """Where a run's results belong: results/ at paper scale, results/<scale>/ at any other, so that they never mix."""
    root = Path(config.runtime.results_root).expanduser()
    return root if config.scale.name == "paper" else root / config.scale.name


def record_path(folder: Path, run_id: str) -> Path:
    """The file of a finished run."""
    return folder / "runs" / f"{run_id}.json"


def failure_path(folder: Path, run_id: str) -> Path:
    """The file of a run that raised: no record, so it is tried again, and then overwritten."""
    return folder / "failed" / f"{run_id}.json"


def write_record(path: Path, record: dict[str, Any], *, replace: bool = False) -> bool:
    """Write a record whole or not at all: to a temporary name first, then linked to its own.

    Returns False, and leaves the file as it is, where `path` exists and `replace` is not set.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w") as file:
            file.write(dumps(record))
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
            return True
        os.link(temporary, path)  # unlike a rename, fails where the file exists
        return True
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)


def read_record(path: Path) -> dict[str, Any]:
    """Read a record. Raises ValueError, naming the file, where it is not one."""
    try:
        record = json.loads(path.read_text())
        return record if record["run_id"] == path.stem else _refuse(path, "its run_id is not its file's name")
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        return _refuse(path, str(error))


def _refuse(path: Path, reason: str) -> dict[str, Any]:
    raise ValueError(f"{path} is not a whole record: {reason}.")


def dumps(record: dict[str, Any]) -> str:
    """A record as JSON text: one line a list, so that a diff of two records is readable."""
    lines = [f"{json.dumps(name)}: {_indented(rounded(value))}" for name, value in record.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _indented(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(v)}" for name, v in value.items())
    return "{\n" + inner + "\n}"


def rounded(value: Any) -> Any:
    """Floats to five significant digits, non-finite ones to strings, through nested lists and dicts."""
    if isinstance(value, dict):
        return {name: rounded(v) for name, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else str(value)
    return value


@contextmanager
def claim(results_root: str | Path, run_id: str) -> Iterator[bool]:
    """Claim a run on this machine: yields False where another process is computing it.

    The operating system drops the claim when its process ends, however it ends.
    """
    path = Path(results_root).expanduser() / ".locks" / run_id
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True

"""Records: one small JSON file per run, written once and never changed.

A record has the keys run_id, setting_id, status, config, history, final, diagnostics and provenance. Measured numbers
keep five significant digits; those that JSON cannot hold are the strings "inf", "-inf" and "nan", which float() reads.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import ROUND_HALF_EVEN, ROUND_UP, Context
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NoReturn

from omegaconf import DictConfig

from runner.config import ConfigError
from runner.runs.classes import check_same_classes
from runner.runs.identity import identify, identify_recorded, plain


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


def recorded(config: DictConfig) -> bool:
    """Whether the run of a resolved config has a record.

    Raises:
        ConfigError: what is recorded under its id is damaged, or is a run of other classes of the same bare names.
    """
    path = record_path(results_folder(config), identify(config)[0])
    if not path.exists():
        return False
    try:
        record = read_record(path)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    check_same_classes(plain(config), record["config"], str(path))
    return True


def write_record(path: Path, record: dict[str, Any], *, replace: bool = False) -> bool:
    """Write a record with rounded numbers, whole or not at all.

    Returns False, and leaves the file as it is, where `path` exists and `replace` is not set.
    """
    return write_whole(path, dumps(record), replace=replace)


def write_whole(path: Path, text: str, *, replace: bool) -> bool:
    """Write a text to a temporary name first, then link it to its own: there is never half a file, nor, where one is
    replaced, none.

    Returns False, and leaves the file as it is, where `path` exists and `replace` is not set.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=path.parent, prefix=".", suffix=".part") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o644)
        if replace:
            second = Path(f"{file.name}.part")
            os.link(file.name, second)
            second.replace(path)
            return True
        try:
            os.link(file.name, path)  # unlike a rename, fails where the file exists
        except FileExistsError:
            return False
    return True


def read_record(path: Path) -> dict[str, Any]:
    """Read a record and check that it is the run it is filed under.

    Raises:
        ValueError: naming the file, where it is not whole, its ids are not those of its config, its status is not that
            of a run that ended, or its final metrics are not the last of its history.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        _refuse(path, f"JSONDecodeError {error}")
    check_record(path, record)
    return record


def check_record(path: Path, record: dict[str, Any]) -> None:
    """Check that a record is the run that `path` would be the file of.

    Raises:
        ValueError: as `read_record` does.
    """
    try:
        history, final = record["history"], record["final"]
        checks = {
            "its run_id is not its file's name": record["run_id"] == path.stem,
            "its ids are not those of its config": identify_recorded(record["config"])
            == (record["run_id"], record["setting_id"]),
            "its status is not finished or diverged": record["status"] in ("finished", "diverged"),
            "its history is not of equal lengths": len({len(values) for values in history.values()}) == 1,
            "it has no epoch": bool(history["epoch"]),
        }
        for reason, holds in checks.items():
            if not holds:
                _refuse(path, reason)
        if any(str(final[name]) != str(values[-1]) for name, values in history.items()):
            _refuse(path, "its final metrics are not the last of its history")
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        _refuse(path, f"{type(error).__name__} {error}")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise ValueError(f"{path} is not a whole record: {reason}.")


def dumps(record: dict[str, Any]) -> str:
    """A record, its measured numbers rounded, as JSON text."""
    exact = ("config",)  # the ids are the hash of the config as it is
    return text_of({name: value if name in exact else rounded(value) for name, value in record.items()})


def text_of(record: dict[str, Any]) -> str:
    """A record as JSON text, every number as it is: one line a list, so that a diff of two records is readable."""
    lines = [f"{json.dumps(name)}: {_indented(value)}" for name, value in record.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _indented(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(v)}" for name, v in value.items())
    return "{\n" + inner + "\n}"


def rounded(value: Any, name: str = "") -> Any:
    """Floats to five significant digits, non-finite ones to strings, through nested lists and dicts.

    What is called epsilon is rounded up, so that an upper bound stays one, and so is the noise that it takes.
    """
    if isinstance(value, dict):
        return {key: rounded(v, key) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v, name) for v in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return str(value)
    rounding = ROUND_UP if name.startswith(("epsilon", "noise_multiplier")) else ROUND_HALF_EVEN
    return float(Context(prec=5, rounding=rounding).create_decimal(repr(value)))


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

"""The store: all records of a results folder, one by one or as a table with a row for each run.

Reading and checking all 3,370 records takes two seconds, so no table is kept on disk. Within a process each file is
read once, unless it changes.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.config import FIELDS
from runner.config.checkout import scan
from runner.config.fields import Part
from runner.records.disk import find_record, read_record

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, Any]


def record_of(folder: Path, run_id: str) -> dict[str, Any] | None:
    """Return the record of a run in a folder of results (see `find_record`), or None.

    Raises:
        ValueError: the file is no whole record.
    """
    path = find_record(folder, run_id)
    return stored(path) if path.exists() else None


def stored(path: Path) -> dict[str, Any]:
    """Read a record as `read_record` does, once a process. Nobody may change what it holds.

    Raises:
        FileNotFoundError, ValueError: as in `read_record`.
    """
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)


@cache
def _read(path: Path, _changed: int, _size: int) -> dict[str, Any]:
    return read_record(path)


def record_files(results: Path) -> list[Path]:
    """List the files of the records in a results folder, at every scale."""
    return scan(results, "runs/*.json", "*/runs/*.json")


def table_of(results: Path) -> "pd.DataFrame":
    """Return all runs in a results folder, at every scale: a row for each, with `run_id` as the index.

    Columns are those of `columns_of`, and `history.NAME` with a list of numbers by epoch.

    Raises:
        ValueError: a file is no whole record.
    """
    import pandas as pd

    rows = [
        columns_of(record) | {f"history.{name}": values for name, values in record["history"].items()}
        for record in map(stored, record_files(results))
    ]
    return pd.DataFrame(rows).set_index("run_id") if rows else pd.DataFrame()


def columns_of(record: Record) -> dict[str, Any]:
    """Return a run as one row: ids, final numbers, the fields of its config by dotted name, and how long it took."""
    final = {name: float(v) if v in ("inf", "-inf", "nan") else v for name, v in record["final"].items()}
    return {
        **{name: record[name] for name in ("run_id", "setting_id", "status")},
        "scale": record["config"]["scale"]["name"],
        **final,
        **{name: value for name, value in leaves(record["config"]).items() if name not in final},
        **{name: record["provenance"].get(name) for name in ("wall_seconds", "device", "git_revision")},
    }


def leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config's fields by dotted name; the value of a group is its class, by its bare name."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if name in FIELDS and FIELDS[name].part is Part.setting and isinstance(value, Mapping):
            for inner, leaf in value.items():
                if inner == "_target_":
                    fields[name] = leaf.rpartition(".")[2]
                elif not inner.startswith("_") and name != "scale":
                    fields[f"{name}.{inner}"] = leaf[:8] if name == "sources" else leaf
        elif name != "scale":
            fields[name] = value[:8] if name == "examples" and value else value
    return fields

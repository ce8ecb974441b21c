"""File records under the ids that their configs have now, and move classes.

Records that older code wrote are under the ids of that code, and name classes where they were then. Every number stays
as it is. Run it when no older code is writing into the folder any more. Whatever interrupts it, the same command goes
on from there.
"""

import json
from pathlib import Path
from typing import Any

from runner.config.checkout import scan
from runner.files import write_whole
from runner.records.disk import check_record, digest_of, record_path, text_of
from runner.records.identity import identify_recorded


def migrate(folder: Path, moved: dict[str, str]) -> dict[str, str]:
    """Bring the records in `folder`/runs up to date; returns the old run id of each, and its new one.

    Args:
        moved: dotted paths of classes, or of modules with all that is in them, and what they are called now.

    Raises:
        ValueError: nothing was changed. There are no records, one is damaged, or two would have the same id but are not
            the same run.
    """
    for new in moved.values():  # the same command, given again, must move no class a second time
        if (last := _moved_class(new, moved)) != new:
            raise ValueError(f"--target moves {new} on to {last}: name the last place at once.")
    paths = scan(folder / "runs", "*.json")
    if not paths:
        raise ValueError(f"{folder} has no records: expected runs/*.json in it.")
    moves = {path: _planned(folder, path, moved) for path in paths}
    first: dict[Path, Path] = {}  # by new place
    for old, (new_path, text) in moves.items():
        same = first.setdefault(new_path, old)
        if moves[same][1] != text:  # an interrupted migration leaves the same record twice
            raise ValueError(f"{same} and {old} would both be {new_path.name}, and are not the same record.")
    for old, (new_path, text) in moves.items():
        if new_path != old:
            if not write_whole(new_path, text, replace=False) and new_path.read_text(encoding="utf-8") != text:
                raise ValueError(f"{new_path} was written by another process meanwhile, so {old} was left.")
            old.unlink()
        elif text != old.read_text(encoding="utf-8"):
            write_whole(old, text, replace=True)
    return {old.stem: new_path.stem for old, (new_path, _) in moves.items()}


def _planned(folder: Path, path: Path, moved: dict[str, str]) -> tuple[Path, str]:
    """Return the place where a record belongs, and its text there."""

    def with_moved_class(values: dict[str, Any]) -> dict[str, Any]:
        target = values.get("_target_")
        return values | {"_target_": _moved_class(target, moved)} if isinstance(target, str) else values

    try:
        text = path.read_text(encoding="utf-8")
        record = json.loads(text)
        if record["run_id"] != path.stem:
            raise ValueError("its run_id is not its file's name")
        config = json.loads(text, object_hook=with_moved_class)["config"]
        run_id, setting_id = identify_recorded(config)
        if record.get("digest") != digest_of(record):
            raise ValueError("its digest is not that of what it says")
        updated = record | {"run_id": run_id, "setting_id": setting_id, "config": config}
        updated["digest"] = digest_of(updated)
        new = record_path(folder, run_id)
        check_record(new, updated)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be migrated: {error}") from error
    return new, text_of(updated)


def _moved_class(target: str, moved: dict[str, str]) -> str:
    """Return the present path of a class. The longest matching old path counts. A path that has moved already stays."""
    dotted = f"{target}."
    paths = [old for old, new in moved.items() if dotted.startswith(f"{old}.") and not dotted.startswith(f"{new}.")]
    old = max(paths, key=len, default="")
    return moved[old] + target.removeprefix(old) if old else target

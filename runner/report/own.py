"""Runs as they are in their records, for a terminal: one in a line, many in a table with what they differ in."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.config import FIELDS, REPOSITORY
from runner.config.fields import Part
from runner.records.files import read_record
from runner.report.files import Table, aligned
from runner.terminal import bound_text, number
from runner.training.targets import targets

Record = Mapping[str, Any]

KNOWN = ("runner.", "torch.nn.", "torch.optim.", "opacus.layers.")  # what any config may name
STATED = "stated by its class"  # an epsilon beside which there is no sound one
_COLUMNS = ("run", "scale", "epochs", "accuracy", "ε", "sound ε")
_FOREMOST = ("dataset", "clipping", "activation", "loss", "seed")  # shown where no run differs from another
_MOST_VALUES = 6  # further columns, where fewer groups differ


def result_text(record: Record) -> str:
    """What a run ended with: the accuracy after its last epoch, and both epsilons of it."""
    final = record["final"]
    accuracy = f"accuracy {number(float(final['test_accuracy']), '%')}% after epoch {final['epoch']}"
    return f"{record['status']}: {accuracy} · {privacy_text(final)}"


def explain_command(path: Path) -> str:
    """The command that says what the run of a record's file was, with what it has to trust for that."""
    folder = path.resolve().parent.parent
    elsewhere = "" if folder.is_relative_to(REPOSITORY / "results") else f" --results {folder}"
    own = [target for target in named_targets(read_record(path)["config"]) if not target.startswith(KNOWN)]
    trusted = dict.fromkeys(target.partition(".")[0] for target in own)
    trust = f"DP_REPRO_TRUST={','.join(trusted)} " if trusted else ""
    return f"{trust}python -m runner explain {path.stem}{elsewhere}"


def named_targets(config: Mapping[str, Any]) -> list[str]:
    """The classes and functions that a recorded config names, each once."""
    return list(dict.fromkeys(str(target) for _, target in targets(config)))


def privacy_text(final: Mapping[str, Any]) -> str:
    """The epsilon as the paper counts, and the sound one; of a run that takes steps back that of the most it could.

    Where no sound one is known, epsilon is what a class states.
    """
    epsilon, sound = float(final["epsilon"]), sound_epsilon_of(final)
    if epsilon == sound == float("inf"):
        return "not private"
    return f"ε {number(epsilon)} as {STATED if sound is None else 'the paper counts'}, sound {known_text(sound)}"


def sound_epsilon_of(final: Mapping[str, Any]) -> float | None:
    """What a record guarantees; None where that is not known."""
    sound = final.get("epsilon_sound_at_max_tries", final["epsilon_sound"])
    return None if sound is None else float(sound)


def known_text(sound: float | None) -> str:
    """A sound epsilon, or that there is none."""
    return "none" if sound is None else bound_text(sound)


def runs_table(records: Sequence[Record]) -> Table:
    """A row a run, with the fields of their configs that not all have in common."""
    configs = [_leaves(record["config"]) for record in records]
    names = [name for name in _differing(configs) if name != "epochs"]  # it has a column
    names = names or [name for name in _FOREMOST if any(name in config for config in configs)]
    rows = []
    for record, config in zip(records, configs, strict=True):
        final = record["final"]
        rows.append(
            [
                record["run_id"],
                record["config"]["scale"]["name"],
                str(final["epoch"]),
                f"{number(float(final['test_accuracy']), '%')}%" + ("" if record["status"] == "finished" else " †"),
                number(float(final["epsilon"])) + (f", {STATED}" if sound_epsilon_of(final) is None else ""),
                known_text(sound_epsilon_of(final)),
                *(_value(config.get(name)) for name in names),
            ]
        )
    notes = ["† diverged"] if any(record["status"] != "finished" for record in records) else []
    return Table((*_COLUMNS, *names), rows, notes)


def runs_text(records: Sequence[Record]) -> str:
    """The table of runs as aligned columns, and how to learn more of one."""
    table = runs_table(records)
    return "\n".join([aligned(table), *table.notes])


def labels(records: Sequence[Record]) -> dict[str, str]:
    """What settings differ in, by setting id: fields and values, seeds left out."""
    configs = [_leaves(record["config"]) for record in records]
    names = [name for name in _differing(configs) if name != "seed"] or ["dataset.name"]
    return {
        record["setting_id"]: ", ".join(f"{name} {_value(config.get(name))}" for name in names)
        for record, config in zip(records, configs, strict=True)
    }


def own_records(results: Path) -> tuple[list[Record], list[str]]:
    """The records in a results folder, at every scale, that this repository does not hold, oldest first.

    Of each file among them that cannot be read there is a sentence instead.
    """
    committed, records, refused = _committed(results), list[Record](), list[str]()
    own = [path for path in record_files(results) if path.resolve() not in committed]
    for path in sorted(own, key=lambda path: path.lstat().st_mtime_ns):
        try:
            records.append(read_record(path))
        except (FileNotFoundError, ValueError) as error:
            refused.append(str(error))
    return records, refused


def record_files(results: Path) -> list[Path]:
    """The files of the records in a results folder, at every scale."""
    return sorted([*results.glob("runs/*.json"), *results.glob("*/runs/*.json")])


def _committed(results: Path) -> set[Path]:
    """The files in a folder that git holds; none outside a checkout."""
    command = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--", str(results.resolve())]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return set()
    return {REPOSITORY / name for name in listed.split("\0") if name}


def _leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config's fields by dotted name; a class is the value of its group, by its bare name."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if name in FIELDS and FIELDS[name].part is Part.setting and isinstance(value, Mapping):
            for inner, leaf in value.items():
                if inner == "_target_":
                    found[name] = leaf.rpartition(".")[2]
                elif not inner.startswith("_") and name != "scale":
                    found[f"{name}.{inner}"] = leaf[:8] if name == "sources" else leaf
        elif name != "scale":
            found[name] = value
    return found


def _differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names that not all have with one value: all groups, and while there are not too many, fields, then arguments."""
    names = dict.fromkeys(name for config in configs for name in config)
    values = {name: {_value(config.get(name)) for config in configs} for name in names}
    differing = [name for name in names if len(values[name]) > 1]
    groups = [name for name in differing if name == "dataset.name" or (name in FIELDS and FIELDS[name].names_class)]
    others = sorted((name for name in differing if name not in groups), key=lambda name: "." in name)
    chosen = groups + others[: max(0, _MOST_VALUES - len(groups))]
    return [name for name in differing if name in chosen]


def _value(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""Recorded runs for a terminal: one as a line, several as a table with the fields in which they differ."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.config import REPOSITORY, RESULTS
from runner.config.checkout import git, scan
from runner.records.store import Record, leaves, record_files, stored
from runner.report.formats import Table, aligned, elsewhere, mean_text
from runner.terminal import bound_text, command, number

STATED = "stated by its class"  # an epsilon without a sound one
_HELD_OUT = "‡ on held-out training images"
_DETAILS = re.compile(
    r"sources\.|examples|diagnostics|confusion_epochs|features\.(mean|std)|dataset\.(shape|classes|train_examples|test_examples)"
)
_FOREMOST = ("dataset.name", "clipping", "activation", "loss", "seed")  # columns if the runs do not differ


def result_text(record: Record) -> str:
    """State a run's final metrics: the accuracy after its last epoch, and both epsilons."""
    final, images = record["final"], _HELD_OUT[1:] if _HELD_OUT in _notes([record]) else ""
    accuracy = f"accuracy {number(float(final['test_accuracy']), '%')}%{images} after epoch {final['epoch']}"
    return f"{record['status']}: {accuracy} · {privacy_text(final)}"


def explain_command(record: Record, results: Path) -> str:
    """Return the command that explains the run of a record in a results folder."""
    return command("explain", record["run_id"], *elsewhere(results))


def privacy_text(final: Mapping[str, Any]) -> str:
    """State epsilon as the paper counts, and the sound epsilon of all that the run could have released.

    If a class draws the noise or charges, it has stated epsilon.
    """
    epsilon = float(final["epsilon"])
    if epsilon == math.inf and str(final["epsilon_sound"]) == "inf":
        return "not private"
    return f"ε {bound_text(epsilon)} as {STATED if stated(final) else 'the paper counts'}, sound {sound_text(final)}"


def stated(final: Mapping[str, Any]) -> bool:
    """Return True if epsilon is only stated by a class that draws the noise or charges itself."""
    return final["epsilon_sound"] is None and "epsilon_spent" not in final


def sound_text(*finals: Mapping[str, Any]) -> str:
    """Format the largest sound epsilon of some runs: "none" if one of them guarantees nothing that is known."""
    sounds = [final["epsilon_sound"] for final in finals]
    return "none" if None in sounds else bound_text(max(map(float, sounds)))


def records_table(rows: Sequence[Sequence[Record]], *, by_setting: bool = False) -> Table:
    """Make a row for each run, or for the runs of each setting, with the config fields in which the rows differ.

    The run of a setting is the latest one. The accuracy is the mean ± the standard deviation, and each epsilon is the
    largest.
    """
    configs = [leaves(records[-1]["config"]) for records in rows]
    names = [name for name in _columns(configs) if not (by_setting and name == "seed")]
    lines = []
    for records, config in zip(rows, configs, strict=True):
        finals = [record["final"] for record in records]
        epochs = sorted({final["epoch"] for final in finals})
        accuracy = mean_text([float(final["test_accuracy"]) for final in finals], "%")
        epsilon = bound_text(max(float(final["epsilon"]) for final in finals))
        lines.append(
            {
                "run": records[-1]["run_id"],
                **({"runs": str(len(records))} if by_setting else {}),
                "scale": records[-1]["config"]["scale"]["name"],
                "epochs": str(epochs[0]) if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}",
                "accuracy": " ".join([f"{accuracy}%", *(note[0] for note in _notes(records))]),
                "ε": epsilon + (f", {STATED}" if any(map(stated, finals)) else ""),
                "sound ε": sound_text(*finals),
                **{name: _value(config.get(name)) for name in names},
            }
        )
    return Table.of(lines, _notes([record for records in rows for record in records]))


def _notes(records: Sequence[Record]) -> list[str]:
    notes = {
        "† diverged": any(record["status"] != "finished" for record in records),
        _HELD_OUT: any(record["config"]["evaluation"] == "holdout" for record in records),
    }
    return [note for note, holds in notes.items() if holds]


def records_text(records: Sequence[Record]) -> str:
    """Format the table of runs as aligned columns."""
    table = records_table([[record] for record in records])
    return "\n".join([aligned(table), *table.notes])


def own_records(results: Path) -> tuple[list[Record], list[str]]:
    """Read the records in a results folder, at every scale, that are not committed here, oldest first.

    Returns:
        The records, and a sentence for each file that cannot be read.
    """
    tracked = git(REPOSITORY, "ls-files", "-z", "--", str(results.resolve()))
    if tracked is None:  # without git, the records of the paper scale in results/
        committed = set(scan(RESULTS / "runs", "*.json"))
    else:
        committed = {REPOSITORY / name for name in tracked.split("\0") if name}
    records, refused = list[Record](), list[str]()
    paths = (path for path in record_files(results) if path.resolve() not in committed)
    for path in sorted(paths, key=lambda path: path.lstat().st_mtime_ns):
        try:
            records.append(stored(path))
        except (FileNotFoundError, ValueError) as error:
            refused.append(str(error))
    return records, refused


def _columns(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the fields in which configs differ, else the foremost ones. `epochs` has a column of its own.

    Details are named only if two configs differ in nothing else. An argument differs if it does so among the runs of
    the classes that have it: others lack it by their class alone.
    """

    def differs(name: str) -> bool:
        group, _, argument = name.partition(".")
        classes = [config.get(group) for config in configs if argument and name in config]
        among = [config for config in configs if not argument or config.get(group) in classes]
        return len({_value(config.get(name)) for config in among}) > 1

    fields = dict.fromkeys(name for config in configs for name in config)
    differing = [name for name in fields if name != "epochs" and differs(name)]
    names = [name for name in differing if not _DETAILS.match(name)] or differing
    rows = [tuple(_value(config.get(name)) for name in ("epochs", *names)) for config in configs]
    if len(set(rows)) < len(rows):  # a detail tells rows apart that would look alike
        names = differing
    return names or [name for name in _FOREMOST if name in fields]


def _value(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.10g}" if isinstance(value, float) else str(value)

"""What an epoch costs on this machine, by the records of runs like it: no step is taken for what they tell.

A record with the processor's time is believed. Older ones say how long a run took on the clock of a machine that others
may have used, which is up to seven times as long, and alike for all runs of a busy machine: they tell how many epochs
a run took, and no more. What no record tells is asked of a clock.

Times are carried over from the machine of a record to this one by the yardstick of both (`runner.speed.yardstick`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from runner.config import FIELDS
from runner.config.fields import Cost
from runner.runs.recorded_times import class_of, digest

START_SECONDS = 2.0  # reading data, tracking, writing the record
SAME = "the same setting"
UNTOLD = (0.67, 1.5)  # the scatter where too few records tell it, and of what is timed
_FEW = 10  # settings
# Groups whose classes hardly matter beside a network.
MINOR = ("activation", "accountant", "optimizer")


@dataclass(frozen=True)
class Pace:
    """Seconds of one core for an epoch of a run that has it to itself, and by which likeness they are known."""

    seconds: float
    by: str


def likenesses(setting_id: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Keys of what runs have in common whose epochs take like time, the closest first, by what to call it.

    Data sets of one shape and size cost the same, and screening what its arguments say.
    """
    groups = {
        name: config.get(name) or None if of.cost is Cost.all else class_of(config.get(name))
        for name, of in FIELDS.items()
        if of.names_class and of.cost is not Cost.nothing
    }
    close = groups | {
        "dataset": {name: value for name, value in config["dataset"].items() if name != "name"},
        "screening": config.get("screening") or None,
        "batch_size": config["batch_size"],
        "diagnostics": sorted(config["diagnostics"]),
        "diagnostics_every": config["diagnostics_every"] if config["diagnostics"] else None,
        "evaluation": config["evaluation"],
    }
    network = {name: value for name, value in close.items() if name not in MINOR}
    return {SAME: setting_id, "like settings": digest(close), "the same network": digest(network)}


class Paces:
    """What records tell.

    Args:
        records: as they are in their files.
        yardstick: seconds that it takes on this machine.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]], yardstick: float) -> None:
        self._known: dict[str, list[_Time]] = {}
        self._settings: dict[str, dict[str, str]] = {}
        for record in records:
            try:
                time = _time(record, yardstick)
                keys = {} if time is None else likenesses(record["setting_id"], record["config"])
            except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
                continue  # damaged: it tells nothing, and is left to others
            if time is not None:
                self._settings[record["setting_id"]] = keys
                for key in keys.values():
                    self._known.setdefault(key, []).append(time)

    def of(self, alike: Mapping[str, str]) -> Pace | None:
        """The pace of a run with these `likenesses`, by the closest whose records are believed; None without any."""
        for by, key in alike.items():
            seconds = _believed(self._known.get(key, ()))
            if seconds is not None:
                return Pace(seconds, by)
        return None

    def epochs(self, setting_id: str) -> float | None:
        """After how many epochs recorded runs of a setting ended, in the mean; None without any."""
        times = self._known.get(setting_id)
        return fmean(time.epochs for time in times) if times else None

    def by_others(self, setting_id: str) -> Pace | None:
        """The pace of a recorded setting by the records of all others."""
        for by, key in self._settings[setting_id].items():
            seconds = _believed([time for time in self._known[key] if time.setting_id != setting_id])
            if seconds is not None:
                return Pace(seconds, by)
        return None

    def own(self, setting_id: str) -> Pace | None:
        """The pace of a recorded setting by its own records alone."""
        seconds = _believed(self._known[setting_id])
        return None if seconds is None else Pace(seconds, SAME)

    @property
    def settings(self) -> Sequence[str]:
        """The ids of all settings with a record that tells something."""
        return tuple(self._settings)

    @cached_property
    def scatter(self) -> tuple[float, float]:
        """What to multiply a pace by for the least and the most that it may be.

        Eight of ten recorded settings lie within, if each is estimated by the records of the others.
        """
        pairs = [(self.own(setting), self.by_others(setting)) for setting in self._settings]
        ratios = [own.seconds / others.seconds for own, others in pairs if own and others]
        if len(ratios) < _FEW:
            return UNTOLD
        tenths = quantiles(ratios, n=10)
        return min(1.0, tenths[0]), max(1.0, tenths[-1])


def read(folders: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The records in folders of results, each run once. What is damaged tells nothing, and is left to others."""
    paths = {path.name: path for folder in folders for path in sorted((folder / "runs").glob("*.json"))}
    for path in paths.values():
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["run_id"] == path.stem:
                yield record
        except (OSError, RecursionError, ValueError, TypeError, KeyError):
            continue


@dataclass(frozen=True)
class _Time:
    """Seconds an epoch by a record, whether they are processor time, and after how many epochs the run ended."""

    setting_id: str
    seconds: float
    sure: bool
    epochs: int


def _believed(times: Iterable[_Time]) -> float | None:
    """Seconds of a run that has a core to itself: the median of those that tell."""
    sure = [time.seconds for time in times if time.sure]
    return median(sure) if sure else None


def _time(record: Mapping[str, Any], yardstick: float) -> _Time | None:
    """What a record tells: nothing of a core where the run had several, a GPU, or went on after a stop."""
    of = record["provenance"]
    alone = of.get("threads") == 1 and of.get("lockstep", 1) == 1 and of.get("step", "eager") == "eager"
    if not alone or "resumed_after" in of or record["status"] != "finished":
        return None
    theirs = of.get("yardstick_seconds", yardstick)
    seconds = max(of.get("processor_seconds", of["wall_seconds"]) - START_SECONDS, 1e-3)
    epochs = len(record["history"]["epoch"])
    return _Time(record["setting_id"], seconds / epochs * yardstick / theirs, "processor_seconds" in of, epochs)

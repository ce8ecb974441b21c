"""Estimate how long runs take, by the records of runs like them.

The estimate is the median of the recorded runs of the same setting. Without any, an epoch takes the median of recorded
runs with the same data shapes, network and batch size. Without these, the time is unknown: None.

A record has the processor's seconds. Older records only have seconds of a clock, on machines that did other work too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from omegaconf import DictConfig

from runner.config import RESULTS
from runner.records.files import results_folder
from runner.records.identity import identify_recorded
from runner.records.jobs import Job
from runner.records.provenance import device_name
from runner.speed import machine
from runner.terminal import duration
from runner.training.instantiation import device_of
from runner.training.loop import load, training
from runner.training.prepare import prepare, without_calibration

_STEPS = 3  # that are timed, after one that is not


def like(config: Mapping[str, Any]) -> str:
    """Compute the same digest for runs whose epochs take about as long.

    Their data have the same shapes, and they have the same views of an example, network and batch size.

    Args:
        config: the resolved config of a run, or what its record keeps of it, as JSON values.
    """
    same = {name: config.get(name) for name in ("features", "augmentation", "architecture", "batch_size")}
    shapes = {name: value for name, value in config["dataset"].items() if name not in ("name", "_target_")}
    return identify_recorded({**same, "dataset": shapes})[1]


@dataclass(frozen=True)
class _Seconds:
    """Seconds by the processor, or else by a clock."""

    seconds: float
    processor: bool


def _median(told: Sequence[_Seconds]) -> float:
    """Return the median of the processor's seconds, or where there are none, of a clock's."""
    return median([each.seconds for each in told if each.processor] or [each.seconds for each in told])


class Durations:
    """Seconds that recorded runs took on one core, or on one GPU.

    Args:
        records: as they are in their files. Those that are damaged are left out.
        gpu: the name of the GPU that the runs are to be computed on; None: one core of a CPU.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]], gpu: str | None = None) -> None:
        self._runs: dict[str, list[_Seconds]] = {}
        self._epochs: dict[str, list[_Seconds]] = {}
        for record in records:
            try:
                told = _told(record["provenance"], gpu) if record["status"] == "finished" else None
                if told is not None:
                    an_epoch = replace(told, seconds=told.seconds / len(record["history"]["epoch"]))
                    self._epochs.setdefault(like(record["config"]), []).append(an_epoch)
                    self._runs.setdefault(record["setting_id"], []).append(told)
            except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
                continue

    def seconds(self, setting_id: str, like: str, epochs: int) -> float | None:
        """Estimate the seconds of a run, given its setting, its `like` and its epochs; None: they are unknown.

        A run that a budget may end earlier is taken to train all its epochs, unless its setting is recorded.
        """
        if setting_id in self._runs:
            return _median(self._runs[setting_id])
        return epochs * _median(self._epochs[like]) if like in self._epochs else None


def _told(provenance: Mapping[str, Any], gpu: str | None) -> _Seconds | None:
    """Return the seconds that a record tells.

    None: the run shared its steps with others, went on after a stop, or was computed by something else.
    """
    if provenance.get("lockstep", 1) != 1 or "resumed_after" in provenance:
        return None
    if gpu is not None:
        return _Seconds(float(provenance["wall_seconds"]), False) if provenance.get("device") == gpu else None
    if provenance.get("threads") != 1 or provenance.get("step", "eager") != "eager":
        return None
    processor = "processor_seconds" in provenance
    return _Seconds(float(provenance["processor_seconds" if processor else "wall_seconds"]), processor)


def recorded(config: DictConfig) -> Durations:
    """Read the records of this repository, and those where the run of a config belongs, computed where it would be."""
    device = device_of(config.runtime.device)
    folders = dict.fromkeys([RESULTS, results_folder(config)])
    paths = {path.name: path for folder in folders for path in sorted((folder / "runs").glob("*.json"))}  # a run once
    return Durations(read(paths.values()), device_name(device) if device.type == "cuda" else None)


def read(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Read the files of records without checking them. What is no JSON is left out."""
    for path in paths:
        try:
            yield json.loads(path.read_text(encoding="utf-8"))
        except (OSError, RecursionError, ValueError):
            continue


def estimated(jobs: Iterable[Job], durations: Durations) -> dict[str, float]:
    """Estimate the seconds of runs, by run id. Those of unknown time are left out."""
    found = {}
    for job in jobs:
        seconds = durations.seconds(job.setting_id, like(job.values), job.values["epochs"])
        if seconds is not None:
            found[job.run_id] = seconds
    return found


class _EnoughError(Exception):
    """Ends the training of a run that is timed."""


def timed(config: DictConfig) -> float:
    """Time three steps of a run on its data, after a first one; an epoch where steps are taken as a graph.

    Returns seconds of all the steps that the run may take, without evaluations.

    Raises:
        ConfigError: the config cannot be run.
        DataError: the data set cannot be read.
    """
    run = prepare(without_calibration(config))
    machine.set_up(config.runtime.threads)
    alone = run.device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    ends: list[float] = []

    def on_step(epoch: int, step: int) -> None:
        ends.append(clock())
        if len(ends) > _STEPS:
            raise _EnoughError

    data = load(run)
    started = clock()
    with suppress(_EnoughError):
        training([run], data, on_step)([lambda row: bool(ends)])
    if not ends:  # one graph, whose single steps are not reported
        return (clock() - started) / run.mechanism.steps_per_epoch * run.most_steps
    first, *others = ends
    return ((others[-1] - first) / len(others) if others else first - started) * run.most_steps


def plan_text(jobs: Mapping[str, Sequence[Job]], left: set[str], seconds: Mapping[str, float], workers: int) -> str:
    """Write a table of items: runs in all, recorded, left, of unknown time, and the time of the others that are left.

    Args:
        jobs: the runs of each item.
        left: the ids of the runs that are not recorded.
        seconds: estimates by run id.
    """
    width = 2 + max(len(name) for name in ("item", "in all", *jobs))
    lines = [f"{'item':<{width}}{'runs':>6}{'done':>6}{'left':>6}{'unknown':>9}{'time left':>14}"]
    for name, planned in {**with_runs(jobs), "in all": [job for of in jobs.values() for job in of]}.items():
        ids = {job.run_id for job in planned}
        known = [seconds[each] for each in ids & left if each in seconds]
        counts = f"{len(ids):>6}{len(ids - left):>6}{len(ids & left):>6}{len(ids & left) - len(known):>9}"
        time_left = "unknown" if ids & left and not known else _time(sum(known) / workers)
        lines.append(f"{name:<{width}}{counts}{time_left:>14}")
    lines.append(
        f"Time left is with JOBS={workers}, on a machine that does nothing else, by the records of runs with the same "
        "setting, or the same shapes of data, network and batch size. It leaves out runs of unknown time, which "
        "--time estimates by three steps each. Runs that items share are trained once, and in all counted once."
    )
    return "\n".join(lines)


def with_runs(jobs: Mapping[str, Sequence[Job]]) -> dict[str, Sequence[Job]]:
    """Leave out the items that train nothing: they are computed, or of other items' runs."""
    return {name: planned for name, planned in jobs.items() if planned}


def _time(seconds: float) -> str:
    return duration(seconds) if seconds < 360_000 else f"{seconds / 3600:,.0f}h"

"""Trials of a search: the records of whole runs, and of runs that a search stopped.

A trial that is stopped leaves a record of its epochs, with the status "stopped", in a separate folder. It has the id of
the whole run, which can still be made. Trials are found by their configs, and a search needs nothing else to go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.records.files import STOPPED, read_record, record_path, stopped_path, upper_bound
from runner.search.space import Space


@dataclass(frozen=True)
class Trial:
    """A trial that was run, whole or until it was stopped: columns by epoch."""

    run_id: str
    values: dict[str, float]
    record: dict[str, Any]

    @property
    def stopped(self) -> bool:
        return bool(self.record["status"] == STOPPED)

    @property
    def epsilons(self) -> list[float]:
        """Sound epsilons, infinite if the run guarantees none at an epoch."""
        history = self.record["history"]
        return [upper_bound(value) for value in history.get("epsilon_sound") or [None] * len(history["test_accuracy"])]

    @property
    def accuracies(self) -> list[float]:
        """Accuracies (percent) on the images that the search judges by."""
        return [float(value) for value in self.record["history"]["test_accuracy"]]

    def accuracy_within(self, budget: float) -> float | None:
        """Return the accuracy after the last epoch with a sound epsilon within the budget, or None without one."""
        within = [accuracy for spent, accuracy in zip(self.epsilons, self.accuracies, strict=True) if spent <= budget]
        return within[-1] if within else None


def trials_of(space: Space, folder: Path) -> list[Trial]:
    """Read the recorded trials of a search below a results folder. A whole run replaces a stopped one.

    Draws come first, in their order.

    Raises:
        ValueError: a record of the search is damaged. The message names the file.
    """
    found: dict[str, Trial] = {}
    for path in (*sorted((folder / "runs").glob("*.json")), *sorted((folder / STOPPED).glob("*.json"))):
        if path.stem in found:
            continue
        try:
            config = json.loads(path.read_text(encoding="utf-8"))["config"]
            held = space.holds(config)
        except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError):
            continue  # damaged, and of no search that anybody could tell: it is set aside when its run is made
        if held:
            found[path.stem] = Trial(path.stem, space.values(config), read_record(path))
    order = {job.run_id: place for place, job in enumerate(space.draws)}
    return sorted(found.values(), key=lambda trial: (order.get(trial.run_id, len(order)), trial.run_id))


def trial_at(space: Space, folder: Path, run_id: str) -> Trial | None:
    """Return the recorded trial with this id, or None. A damaged record does not count."""
    for path in (record_path(folder, run_id), stopped_path(folder, run_id)):
        try:
            record = read_record(path)
        except (FileNotFoundError, ValueError):
            continue
        return Trial(run_id, space.values(record["config"]), record)
    return None


def best(trials: Iterable[Trial], budget: float) -> Trial | None:
    """Return the most accurate whole trial within a budget of sound epsilon, or None. Of equal ones, the first."""
    whole = [trial for trial in trials if not trial.stopped and trial.accuracy_within(budget) is not None]
    return max(whole, key=lambda trial: trial.accuracy_within(budget) or 0.0, default=None)


def curve(trial: Trial) -> tuple[list[float], list[float]]:
    """Every epoch of a trial: sound epsilons and accuracies."""
    return trial.epsilons, trial.accuracies


def pareto(curves: Iterable[tuple[Sequence[float], Sequence[float]]]) -> list[tuple[float, float]]:
    """Of points given as (epsilons, accuracies) a curve, those more accurate than all that cost no more."""
    points = sorted((epsilon, -accuracy) for curve in curves for epsilon, accuracy in zip(*curve, strict=True))
    front: list[tuple[float, float]] = []
    for epsilon, negative in points:
        if not front or -negative > front[-1][1]:
            front.append((epsilon, -negative))
    return front

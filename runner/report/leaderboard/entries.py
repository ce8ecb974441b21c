"""Entries of a leaderboard: a setting's accuracies at a bound on the sound epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from runner.claims.evidence import collect
from runner.claims.guarantee import guaranteed, makes_all_tries
from runner.claims.runs import PlannedRun
from runner.claims.statistics import Interval, mean_of
from runner.config import REPOSITORY, EvaluationSplit
from runner.data.datasets import Split
from runner.records.identity import trained
from runner.report.titles import titles_of
from runner.training.instantiation import update_rule_of
from runner.training.prepare import prepare, without_calibration

EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
DELTA = 1e-5
ADDED = "add-or-remove-one"  # the neighbours of most
HELD_OUT = "held-out"  # a tag of experiments whose settings were chosen on held-out training images
_VARIED = {"experiment", "seed", "target_epsilon"}  # what else a sweep varies makes a search of it
_MADE_FOR = 0.95  # of the budget at least is spent at the end of a run that was made for it


@dataclass(frozen=True)
class Entry:
    """A setting's accuracies (percent) at a bound on the sound epsilon, one for each run with an epoch within it.

    Attributes:
        sound: the largest sound epsilon spent there. If the number of steps depends on the data, it is the guaranteed
            epsilon of runs that the bound stops.
        neighbours: the neighbouring relation of that epsilon.
        made_for_it: True if the runs end there.
        held_out: True if the settings were chosen on held-out images.
        by_test_images: True if the images reported on decided which updates were accepted.
        on_a_part: True if the accuracies use a part of the test images, because the others are treated as public.
    """

    dataset: str
    epsilon: float
    title: str
    experiment: str
    setting: str
    accuracies: tuple[float, ...]
    planned: int
    sound: float
    neighbours: str
    made_for_it: bool
    held_out: bool
    by_test_images: bool
    on_a_part: bool

    @property
    def interval(self) -> Interval | None:
        """The 95% interval of the mean, within [0, 100], or None for a single run."""
        if len(self.accuracies) == 1:
            return None
        around = mean_of(self.accuracies)
        return Interval(max(around.low, 0.0), min(around.high, 100.0))

    @property
    def mean(self) -> float:
        return sum(self.accuracies) / len(self.accuracies)


def entries(runs: Iterable[PlannedRun], epsilons: Sequence[float] = EPSILONS) -> list[Entry]:
    """Return every setting at every bound that one of its runs has an epoch within, the highest mean first."""
    settings: dict[str, dict[int, PlannedRun]] = {}
    held_out: set[str] = set()
    for run in sorted(filter(_counts, runs), key=lambda run: run.record is None):  # a recorded one before its like
        setting = trained(run.job.values)
        settings.setdefault(setting, {}).setdefault(run.seed, run)
        if HELD_OUT in run.field("tracking.tags"):
            held_out.add(setting)
    found = []
    recorded_of = {s: [run for run in of.values() if run.record is not None] for s, of in settings.items()}
    titles = titles_of({setting: recorded[0].job for setting, recorded in recorded_of.items() if recorded})
    for setting, title in titles.items():
        recorded, planned = recorded_of[setting], len(settings[setting])
        neighbours = _neighbours(recorded[0])
        for epsilon in epsilons:
            entry = _entry(setting, title, recorded, planned, epsilon, setting in held_out, neighbours)
            found += [entry] if entry else []
    return sorted(found, key=lambda e: (e.dataset, e.epsilon, -e.mean, e.title))


def _counts(run: PlannedRun) -> bool:
    on_test_images = run.field("evaluation") == EvaluationSplit.test.value
    return set(run.job.overrides) <= _VARIED and on_test_images and run.delta <= DELTA


def _neighbours(run: PlannedRun) -> str:
    """Return the neighbouring relation of a recorded run. The oldest records lack it, so it is derived for them."""
    said = run.record and run.record["final"].get("neighbouring_relation")
    return str(said or prepare(without_calibration(run.job.config)).mechanism.neighbouring_relation)


def _entry(
    setting: str,
    title: str,
    recorded: Sequence[PlannedRun],
    planned: int,
    epsilon: float,
    held_out: bool,
    neighbours: str,
) -> Entry | None:
    reached = []
    for run in recorded:
        within = [epoch for epoch, spent in enumerate(run.history("epsilon_sound")) if spent <= epsilon]
        reached += [(run, within[-1])] if within else []
    if not reached:
        return None
    sound = max(run.history("epsilon_sound")[epoch] for run, epoch in reached)
    if not all(makes_all_tries(run) for run, _ in reached):
        sound = min(epsilon, max(guaranteed(run) for run, _ in reached))
    return Entry(
        dataset=str(recorded[0].field("dataset.name")),
        epsilon=epsilon,
        title=title,
        experiment=recorded[0].job.experiment,
        setting=setting,
        accuracies=tuple(run.history("test_accuracy")[epoch] for run, epoch in reached),
        planned=planned,
        sound=sound,
        neighbours=neighbours,
        made_for_it=sound >= _MADE_FOR * epsilon and all(epoch == _last(run) for run, epoch in reached),
        held_out=held_out,
        by_test_images=any(_reports_on_what_chose(run) for run, _ in reached),
        on_a_part=_reports_on_a_part(recorded[0]),
    )


def _last(run: PlannedRun) -> int:
    return len(run.history("epoch")) - 1


def _reports_on_what_chose(run: PlannedRun) -> bool:
    """Return True if all images reported on also decided which updates to accept (see `unscreened_accuracy`)."""
    assert run.record is not None
    return "unscreened_accuracy" in run.record["history"] and all(map(math.isnan, run.history("unscreened_accuracy")))


def _reports_on_a_part(run: PlannedRun) -> bool:
    """Return True if the update rule sets a part of the test images aside, so that accuracies use the others."""
    if not run.field("screening"):
        return False
    images = Split(torch.empty(8), torch.empty(8))
    return len(update_rule_of(run.job.config).split(images)[0].targets) < 8


def planned_runs() -> list[PlannedRun]:
    """Every run that a sweep of any paper plans, and its record where there is one.

    Raises:
        ValueError: a record is damaged.
    """
    sweeps = sorted(
        path.relative_to(REPOSITORY / "sweeps").with_suffix("").as_posix()
        for path in (REPOSITORY / "sweeps").glob("*/*.yaml")
    )
    return [run for runs in collect(sweeps).sweeps.values() for run in runs]

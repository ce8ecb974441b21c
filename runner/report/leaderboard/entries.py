"""Entries of a leaderboard: a setting's accuracies at a bound on the sound epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.build.groups import Group
from runner.build.parts import build_rule
from runner.build.prepare import prepare
from runner.claims.runs import PAPER_SCALE, PlannedRun, decides, folder_of
from runner.claims.statistics import Interval, mean_of
from runner.config import REPOSITORY, EvaluationSplit
from runner.config.checkout import scan
from runner.data.datasets import Split
from runner.records.files import record_path
from runner.records.identity import trained
from runner.records.jobs import Job, sweep_jobs
from runner.report.leaderboard.methods import HELD_OUT, first, how_chosen, method_of
from runner.report.titles import titles_of

EPSILONS = (0.5, 1.0, 2.0, 3.0, 8.0)
DELTA = 1e-5
_VARIED = {  # what else a sweep varies makes a search of it
    *("experiment", "seed", "target_epsilon"),
    *("dataset", "activation", "loss", "clipping", "clipping.norm", "averaging", "optimizer"),
    *("mechanism", "mechanism.bands", "mechanism.momentum", "augmentation", "augmentation.flip", "optimizer.momentum"),
}
_IDEAS = {  # by config group and class
    ("activation", "torch.nn.Tanh"): "tanh",
    ("loss", "runner.networks.losses.LosingLess"): "losing-less loss",
    ("clipping", "runner.clipping.Automatic"): "AUTO-S",
    ("clipping", "runner.clipping.PSAC"): "PSAC",
    ("clipping", "runner.clipping.PerLayer"): "per-layer clipping",
    ("features", "runner.data.features.ScatterNet"): "ScatterNet",
    ("averaging", "runner.training.averaging.Averaging"): "averaged weights",
    ("mechanism", "runner.mechanism.banded.Banded"): "banded noise",
    ("augmentation", "runner.data.augmentation.Views"): "several views",
    ("optimizer", "torch.optim.Adam"): "Adam",
    ("optimizer", "runner.training.updates.adam_bc.AdamBC"): "AdamBC",
}
_LINEAR = "runner.networks.architectures.linear"
_MADE_FOR = 0.95  # of the budget at least is spent at the end of a run that was made for it


@dataclass(frozen=True)
class Entry:
    """A setting's accuracies (percent) at a bound on the sound epsilon, one for each run with an epoch within it.

    Attributes:
        method: the method to which the setting belongs, "" if none (methods.yaml).
        chosen: how the setting was chosen, in words.
        ideas: the ideas in it, of `_IDEAS`, whichever its method is.
        setting: the setting id of its first recorded run.
        run: the id of its first run with an epoch within the bound.
        command: the command that repeats this run.
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
    method: str
    title: str
    experiment: str
    setting: str
    chosen: str
    ideas: tuple[str, ...]
    run: str
    command: str
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
    methods: dict[str, str] = {}
    hashes: dict[str, str] = {}  # the setting that is trained, by setting id
    shown = [run for run in runs if counts(run.job)]
    for run in sorted(shown, key=lambda run: run.record is None):  # a recorded one before its like
        if run.job.setting_id not in hashes:
            hashes[run.job.setting_id] = trained(run.job.values)
        setting = hashes[run.job.setting_id]
        settings.setdefault(setting, {}).setdefault(run.seed, run)
        if HELD_OUT in run.field("tracking.tags"):
            held_out.add(setting)
        methods[setting] = first(methods.get(setting, ""), method_of(run.job.experiment, ideas_of(run.job)))
    found = []
    recorded_of = {s: [run for run in of.values() if run.record is not None] for s, of in settings.items()}
    titles = titles_of({setting: recorded[0].job for setting, recorded in recorded_of.items() if recorded})
    for setting, title in titles.items():
        recorded = recorded_of[setting]
        one = recorded[0]
        described: dict[str, Any] = {  # at every bound
            "dataset": str(one.field("dataset.name")),
            "method": methods[setting],
            "title": title,
            "experiment": one.job.experiment,
            "setting": one.job.setting_id,
            "chosen": how_chosen(one.job, setting in held_out),
            "ideas": ideas_of(one.job),
            "planned": len(settings[setting]),
            "neighbours": _neighbours(one),
            "held_out": setting in held_out,
            "on_a_part": _reports_on_a_part(one),
        }
        found += [Entry(**described, **at) for epsilon in epsilons if (at := _within(recorded, epsilon))]
    return sorted(found, key=lambda e: (e.dataset, e.epsilon, -e.mean, e.title))


def ideas_of(job: Job) -> tuple[str, ...]:
    """Return the ideas in a job's setting, in the order of `_IDEAS`. A linear model uses no activation."""
    unused = "activation" if job.field("architecture._target_") == _LINEAR else ""
    return tuple(
        idea for (group, of), idea in _IDEAS.items() if group != unused and job.field(f"{group}._target_") == of
    )


def counts(job: Job) -> bool:
    """Return True if the leaderboard shows a run: on test images, in no search, and at a delta of at most DELTA.

    All arms of a study count, because none of them was chosen by test images.
    """
    on_test_images = job.field("evaluation") == EvaluationSplit.test.value
    return (
        (job.sweep.startswith("study/") or {name.removeprefix("~") for name in job.overrides} <= _VARIED)
        and on_test_images
        and float(job.field("delta")) <= DELTA
    )


def _neighbours(run: PlannedRun) -> str:
    """Return the neighbouring relation of a recorded run. The oldest records lack it, so it is derived for them."""
    said = run.record and run.record["final"].get("neighbouring_relation")
    return str(said or prepare(run.job.config).mechanism.neighbouring_relation)


def _within(recorded: Sequence[PlannedRun], epsilon: float) -> dict[str, Any] | None:
    """Return the attributes of an entry that depend on the bound, or None if no run has an epoch within it."""
    reached = []
    for run in recorded:
        # Told to end there, a run that decides its steps makes no more attempts than it had made by then.
        capped = decides(run) and math.isfinite(run.final("epsilon_sound"))
        epoch = run.last_within(epsilon, "epsilon_spent" if capped else "epsilon_sound")
        reached += [] if epoch is None else [(run, epoch)]
    if not reached:
        return None
    sound = max(run.history("epsilon_spent")[epoch] for run, epoch in reached)
    if any(decides(run) for run, _ in reached):
        sound = min(epsilon, max(run.final("epsilon_sound") for run, _ in reached))
    first = min((run for run, _ in reached), key=lambda run: run.seed)
    return {
        "epsilon": epsilon,
        "accuracies": tuple(run.history("test_accuracy")[epoch] for run, epoch in reached),
        "run": first.job.run_id,
        "command": str(first.field("tracking.command")),
        "sound": sound,
        "made_for_it": sound >= _MADE_FOR * epsilon and all(epoch == run.last_epoch for run, epoch in reached),
        "by_test_images": any(run.updates_chosen_by_all_images for run, _ in reached),
    }


def _reports_on_a_part(run: PlannedRun) -> bool:
    """Return True if the update rule sets a part of the test images aside, so that accuracies use the others."""
    if not run.field("screening"):
        return False
    images = Split(torch.empty(8), torch.empty(8))
    return len(build_rule(Group(run.job.config, "screening")).split(images)[0].targets) < 8


def planned_jobs() -> list[Job]:
    """List every run that a sweep of any paper plans."""
    sweeps = [
        path.relative_to(REPOSITORY / "sweeps").with_suffix("").as_posix()
        for path in scan(REPOSITORY / "sweeps", "*/*.yaml")
        if path.stem.isidentifier()  # no copy of another program, such as `fig_3 (1)`
    ]
    return [job for sweep in sweeps for job in sweep_jobs(sweep)]


def trials(jobs: Iterable[Job]) -> int:
    """Count the recorded runs on held-out training images, from which settings were chosen."""
    folder = folder_of(PAPER_SCALE)
    searched = {job.run_id for job in jobs if job.field("evaluation") == EvaluationSplit.holdout.value}
    return sum(record_path(folder, run_id).exists() for run_id in searched)

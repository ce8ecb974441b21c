"""Progress of a study, as its records tell it: the trials of each setting, its choice, its final runs, what is next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from runner.claims.runs import PAPER_SCALE, Evidence, PlannedRun, Runs, grouped
from runner.records.files import STOPPED, results_folder
from runner.records.jobs import Job
from runner.study.definition import Dimension, Study
from runner.study.plan import FIXED, Setting, settings_of
from runner.study.search import MOST_WIDENED, Curve, Judge, Point, Trial, best_of, suggestions, widened


@dataclass
class Progress:
    """The runs of a setting.

    trials: recorded, in the order in which they were suggested.
    searched: the runs of the trials, until they were stopped.
    curves: the accuracies of the trials by epoch.
    recorded: the number of recorded trials, in rounds that are not complete, too.
    chosen: the values with the best held-out accuracy, or None until the search has ended.
    finals: planned as soon as there is a choice.
    next: the jobs that can be run now.
    """

    setting: Setting
    trials: list[Trial] = field(default_factory=list)
    searched: list[PlannedRun] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    recorded: int = 0
    chosen: Point | None = None
    finals: Runs = field(default_factory=Runs)
    next: list[Job] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the arm."""
        return self.setting.arm.name

    def counted(self) -> dict[int, tuple[PlannedRun, int]]:
        """Return each final run that is recorded, and the epoch that counts, from 0, by seed."""
        epochs = [(run, run.last_within(self.setting.epsilon)) for run in self.finals.recorded]
        return {run.seed: (run, epoch) for run, epoch in epochs if epoch is not None}

    def accuracies(self) -> dict[int, float]:
        """Return the test accuracy (percent) of each final run within epsilon, by seed."""
        return {seed: run.history("test_accuracy")[epoch] for seed, (run, epoch) in self.counted().items()}


def progress_of(study: Study, settings: Sequence[Setting]) -> list[Progress]:
    """Read the records of a study, and find what is to be run next.

    Nothing else is remembered: the same records give the same choice and the same next runs.

    Raises:
        ValueError: a record is damaged.
    """
    if not settings:
        return []
    evidence = Evidence(PAPER_SCALE, {}, folder_of(settings))
    progress = []
    for pair in grouped(settings, lambda setting: setting.pair).values():  # the arms that are compared
        arms = [Progress(setting) for setting in pair]
        for arm in arms:
            rounds = suggestions(arm.setting.search, study.trials, study.sampler, prune=study.prune)
            points = next(rounds)
            most = 0
            if points and study.prune:  # the number of epochs of the longest trial
                epochs: Any = arm.setting.search.get("epochs", ())
                longest = epochs.high if isinstance(epochs, Dimension) else max(epochs, default=None)
                most = int(arm.setting.trial({} if longest is None else {"epochs": longest}).field("epochs"))
            while points and (values := _take(arm, points, study, evidence, most)):
                points = rounds.send(values)
        for _ in range(MOST_WIDENED if study.widen else 0):
            if any(arm.next for arm in arms):
                break
            wider = widened([(arm.setting.search, arm.trials) for arm in arms], equal=study.equal)
            if not any(wider):
                break
            for arm, point in zip(arms, wider, strict=True):
                _take(arm, [point] if point else [], study, evidence)
        if not any(arm.next for arm in arms):
            for arm in arms:
                arm.chosen = best_of(arm.trials).values if arm.trials else {}
                arm.finals = evidence.of(arm.setting.finals(arm.chosen, study.seeds))
                arm.next = [run.job for run in arm.finals if run.record is None]
        progress += arms
    return progress


def folder_of(settings: Sequence[Setting]) -> Path:
    """Return the results folder of a study's runs, by the rule that the runs follow."""
    composed = settings[0].composed
    return results_folder(OmegaConf.create({name: composed[name] for name in ("runtime", "scale")}))


def jobs_of(study: Study) -> list[Job]:
    """List the recorded trials and the final runs of a study, as a sweep of its overrides would list them.

    Their overrides are those in which the settings of a study may differ.
    """
    alike = {*FIXED, *(["target_epsilon"] if len(study.epsilons) == 1 else [])}
    jobs = []
    for arm in progress_of(study, settings_of(study)):
        pairs = (text.partition("=") for text in arm.setting.overrides)
        overrides = {name: value for name, _, value in pairs if name not in alike}
        for run in (*arm.searched, *arm.finals):
            jobs.append(replace(run.job, overrides=overrides | {"seed": str(run.seed)}))
    return jobs


def _take(arm: Progress, points: Sequence[Point], study: Study, evidence: Evidence, most: int = 0) -> list[float]:
    """Take trials from their records, and return their values; nothing if one is not recorded: it is to be run next.

    A recorded trial counts as if it ran now: until it would be stopped, and not at all if it was stopped earlier.
    `most` is the number of epochs of the longest trial if Hyperband stops trials, else 0.
    """
    epsilon, trials = arm.setting.epsilon, []
    limit = max(study.epsilons) if study.front else epsilon
    for number, run in enumerate(evidence.trials(arm.setting.trials(points)), len(arm.trials)):
        judge = Judge(limit, study.front, int(run.field("epochs"))).after(arm.curves, number, most)
        stops = study.front or most > 0
        ended = _until_stopped(run, judge) if stops and run.record else run
        if ended is None or ended.record is None:
            arm.next.append(replace(run.job, goes_on=judge) if stops else run.job)
        else:
            trials.append((ended, judge, _curve(ended)))
    arm.recorded += len(trials)
    if arm.next:
        return []
    for point, (run, judge, curve) in zip(points, trials, strict=True):
        stopped = judge.stopped(curve) and curve.epsilons[-1] <= epsilon
        arm.trials.append(Trial(point, curve.accuracy_within(epsilon), run.last_epoch + 1 if stopped else None))
        arm.searched.append(run)
        arm.curves.append(curve)
    return [judge.worth(curve) for _, judge, curve in trials]


def _until_stopped(run: PlannedRun, judge: Judge) -> PlannedRun | None:
    """Return a recorded trial until it is stopped; None if its record ends before that and before its last epoch."""
    record, curve = run.record or {}, _curve(run)
    ends = (epoch for epoch in range(1, len(curve.epsilons) + 1) if not judge.stays(curve.until(epoch)))
    if (end := next(ends, None)) is None:
        return None if record["status"] == STOPPED else run
    history = {name: values[:end] for name, values in record["history"].items()}
    return replace(run, record=record | {"history": history})


def _curve(run: PlannedRun) -> Curve:
    return Curve(tuple(run.history("epsilon_sound")), tuple(run.history("test_accuracy")), int(run.field("epochs")))

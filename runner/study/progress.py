"""Progress of a study, as its records tell it: the trials of each setting, its choice, its final runs, what is next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.runs import PlannedRun, Runs, grouped
from runner.records.files import results_folder
from runner.records.jobs import Job
from runner.study.definition import Study
from runner.study.plan import FIXED, Setting, settings_of
from runner.study.search import MOST_WIDENED, Point, Trial, best_of, next_points, widened


@dataclass
class Progress:
    """The runs of a setting.

    Attributes:
        trials: recorded, in the order in which they were suggested.
        searched: the runs of the trials.
        recorded: the number of recorded trials, in rounds that are not complete, too.
        chosen: the values with the best held-out accuracy, or None until the search has ended.
        finals: planned as soon as there is a choice.
        next: the jobs that can be run now.
    """

    setting: Setting
    trials: list[Trial] = field(default_factory=list)
    searched: list[PlannedRun] = field(default_factory=list)
    recorded: int = 0
    chosen: Point | None = None
    finals: Runs = field(default_factory=Runs)
    next: list[Job] = field(default_factory=list)

    def counted(self) -> dict[int, tuple[PlannedRun, int]]:
        """Return each final run that is recorded, and the epoch that counts, from 0, by seed."""
        runs = {run.seed: run for run in self.finals.recorded}
        return {
            seed: (run, at) for seed, run in runs.items() if (at := run.last_within(self.setting.epsilon)) is not None
        }

    def accuracies(self) -> dict[int, float]:
        """Return the test accuracy (percent) of each final run within epsilon, by seed."""
        return {seed: run.history("test_accuracy")[at] for seed, (run, at) in self.counted().items()}


def progress_of(study: Study, settings: Sequence[Setting]) -> list[Progress]:
    """Read the records of a study, and find what is to be run next.

    Nothing else is remembered: the same records give the same choice and the same next runs.

    Raises:
        ValueError: a record is damaged.
    """
    if not settings:
        return []
    evidence = Evidence(PAPER_SCALE, {}, folder_of(settings))
    found = []
    for of in grouped(settings, lambda setting: setting.pair).values():  # the arms that are compared
        arms = [Progress(setting) for setting in of]
        for arm in arms:
            _search(arm, study, evidence)
        for _ in range(MOST_WIDENED if study.widen else 0):
            if any(arm.next for arm in arms):
                break
            points = widened([(arm.setting.search, arm.trials) for arm in arms], equal=study.equal)
            if not any(points):
                break
            for arm, point in zip(arms, points, strict=True):
                _take(arm, [point] if point else [], evidence)
        if not any(arm.next for arm in arms):
            for arm in arms:
                arm.chosen = best_of(arm.trials).values if arm.trials else {}
                arm.finals = evidence.of(arm.setting.finals(arm.chosen, study.seeds))
                arm.next = [run.job for run in arm.finals if run.record is None]
        found += arms
    return found


def folder_of(settings: Sequence[Setting]) -> Path:
    """Return the results folder of a study's runs, by the rule that the runs follow."""
    return results_folder(settings[0].config)


def jobs_of(study: Study) -> list[Job]:
    """List the recorded trials and the final runs of a study, as a sweep of its overrides would list them."""
    return [
        replace(run.job, overrides=_overrides(study, arm.setting) | {"seed": str(run.seed)})
        for arm in progress_of(study, settings_of(study))
        for run in (*arm.searched, *arm.finals)
    ]


def _overrides(study: Study, setting: Setting) -> dict[str, str]:
    """Return the overrides in which the settings of a study may differ."""
    alike = {*FIXED, *(["target_epsilon"] if len(study.epsilons) == 1 else [])}
    parted = (text.partition("=") for text in setting.overrides)
    return {name: value for name, _, value in parted if name not in alike}


def _search(arm: Progress, study: Study, evidence: Evidence) -> None:
    while points := next_points(arm.setting.search, arm.trials, study.trials):
        if not _take(arm, points, evidence):
            return


def _take(arm: Progress, points: Sequence[Point], evidence: Evidence) -> bool:
    """Take trials from their records. Returns False if one is not recorded: it is to be run next."""
    runs = evidence.of(arm.setting.trial(point) for point in points)
    arm.next += [run.job for run in runs if run.record is None]
    arm.recorded += len(runs) - len(arm.next)
    if not arm.next:
        arm.searched += runs
        arm.trials += [Trial(point, _accuracy(run, arm)) for run, point in zip(runs, points, strict=True)]
    return not arm.next


def _accuracy(run: PlannedRun, arm: Progress) -> float:
    at = run.last_within(arm.setting.epsilon)
    return 0.0 if at is None else run.history("test_accuracy")[at]

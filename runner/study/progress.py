"""The runs of a study, as ordinary jobs with ordinary ids: of each arm on each data set at each epsilon.

An override of an arm replaces the same one of the base. The noise is calibrated to the study's epsilon by PLD, the
accountant of the sound epsilon. An arm may override that, for example by a `noise_multiplier`. Its runs then count with
the last epoch within the epsilon. In the search for a front no noise is calibrated, and all runs count in this way.

The trials of each setting, its choice, its final runs and what is next follow from the records alone.
"""

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException, ValidationError

from runner.claims.claim import dataset_name
from runner.claims.evidence import PAPER_SCALE, Evidence, PlannedRun, Runs, grouped
from runner.config import PAPER, ConfigError, EvaluationSplit
from runner.config.hydra_errors import sentence
from runner.records.disk import STOPPED, results_folder
from runner.records.identity import identify_recorded, limit, plain, resolved
from runner.records.jobs import Job, cached_jobs, command_of, composed_values, may_follow_seed, restored
from runner.report.leaderboard.methods import HELD_OUT
from runner.study.definition import SEARCH_SEED, Arm, Dimension, Space, Study, Times, Value, space_at, three_digits
from runner.study.search import MOST_WIDENED, Curve, Judge, Point, Trial, best_of, suggestions, widened

_FIXED = ("accountant", "noise_multiplier", "max_epsilon")  # overrides that all settings have


@dataclass(frozen=True)
class Setting:
    """One arm of a study on one data set at one epsilon."""

    study: str
    arm: Arm
    dataset: str
    epsilon: float
    composed: Mapping[str, Any]  # JSON values of its config before a searched value is set; nothing is resolved
    overrides: tuple[str, ...]  # what they were composed from

    @cached_property
    def config(self) -> DictConfig:
        """Its config with the types of the schema, which is built when it is asked for."""
        return restored(self.composed)

    @property
    def pair(self) -> tuple[str, float]:
        """The option of the data set, and epsilon: the arms with the same two are compared."""
        return self.dataset, self.epsilon

    @property
    def dataset_name(self) -> str:
        """The name of the data set, as claims and the leaderboard have it."""
        return str(self.composed["dataset"].get("name") or self.dataset)

    @property
    def labels(self) -> tuple[str, str, str]:
        """The data set, epsilon and the arm, for people."""
        return dataset_name(self.dataset_name), f"{self.epsilon:g}", self.arm.name

    @property
    def place(self) -> str:
        return f"{self.labels[0]}, ε = {self.labels[1]}"

    @cached_property
    def search(self) -> Space:
        """The searched fields, with multiples as values."""
        space = dict(space_at(self.arm.search, self.epsilon))
        for name, factors in space.items():
            if isinstance(factors, Times):
                with _naming(self.arm, field=name):
                    value: Any = OmegaConf.select(resolved(self.config), name)
                if not isinstance(value, (int, float)) or not value:
                    raise ConfigError(f"{self.arm.place}: {name} has no number to multiply, so list its values.")
                space[name] = tuple(three_digits(value * factor) for factor in factors)
        return space

    def trial(self, values: Mapping[str, Value]) -> Job:
        """Return the run of searched values on held-out training images, with the seed that all arms have."""
        return self.trials([values])[0]

    def trials(self, points: Sequence[Mapping[str, Value]]) -> list[Job]:
        return self._jobs(points, [SEARCH_SEED], EvaluationSplit.holdout)

    def finals(self, values: Mapping[str, Value], seeds: Sequence[int]) -> list[Job]:
        """Return the runs of chosen values on test images. A scale may have fewer seeds."""
        jobs = self._jobs([values], seeds, EvaluationSplit.test)
        return list({job.run_id: job for job in jobs}.values())

    def _jobs(
        self, points: Sequence[Mapping[str, Value]], seeds: Sequence[int], evaluation: EvaluationSplit
    ) -> list[Job]:
        """Return a job for each of some values with each of some seeds. Each is made once."""
        runs = list(product(points, seeds))
        keys = [repr((sorted(values.items()), seed, evaluation.value)) for values, seed in runs]

        def compose() -> list[Job]:
            composed_values(self.overrides)  # so that the jobs depend on the files that were read for the config
            lists = [self._composed_jobs(values, seeds, evaluation) for values in points]
            return [job for jobs in lists for job in jobs]

        if not all(key in self._jobs_by_key for key in keys):
            jobs = cached_jobs(["study", self.study, self.arm.name, *self.overrides, *keys], compose)
            self._jobs_by_key.update(zip(keys, jobs, strict=True))
        return [self._jobs_by_key[key] for key in keys]

    @cached_property
    def _jobs_by_key(self) -> dict[str, Job]:
        return {}

    def _composed_jobs(
        self, values: Mapping[str, Value], seeds: Sequence[int], evaluation: EvaluationSplit
    ) -> list[Job]:
        first, *others = seeds
        job = self._job(values, self._resolved(values, first, evaluation))
        if may_follow_seed([self.composed, values]):
            return [job, *(self._job(values, self._resolved(values, seed, evaluation)) for seed in others)]
        return [job, *(self._job(values, job.with_seed(seed).values) for seed in others)]

    def _resolved(self, values: Mapping[str, Value], seed: int, evaluation: EvaluationSplit) -> dict[str, Any]:
        """Resolve the config with some values of its fields, as JSON values."""
        config: DictConfig = pickle.loads(pickle.dumps(self.config))
        for name, value in {**values, "seed": seed, "evaluation": evaluation}.items():
            with _naming(self.arm, field=name):
                try:
                    OmegaConf.update(config, name, value)
                except ValidationError:  # a number that is whole may be for a field of whole numbers
                    if not (isinstance(value, float) and value.is_integer()):
                        raise
                    OmegaConf.update(config, name, int(value))
        with _naming(self.arm):
            limit(config)
            return plain(config)

    def _job(self, values: Mapping[str, Value], final: dict[str, Any]) -> Job:
        typed = {name: f"{v:.9g}" if isinstance(v, float) else str(v) for name, v in values.items()}
        texts = {name: text.lower() if isinstance(values[name], bool) else text for name, text in typed.items()}
        searched = [f"{name}={text}" for name, text in texts.items()]
        single = [f"seed={final['seed']}", f"evaluation={final['evaluation']}"]
        experiment = {text.partition("=")[0]: text.partition("=")[2] for text in self.overrides}.get("experiment", "")
        tracking = final["tracking"] | {
            "command": command_of([*self.overrides, *searched, *single]),
            "group": f"study/{self.study}",
            "tags": sorted({*final["tracking"]["tags"], *([HELD_OUT] if values else [])}),
            "job_type": experiment or self.arm.name,
        }
        names = {"arm": self.arm.name, "dataset": self.dataset_name, "ε": f"{self.epsilon:g}"}
        labels = {**names, **texts, "seed": str(final["seed"])}
        return Job(f"study/{self.study}", labels, *identify_recorded(final), final | {"tracking": tracking})


@contextmanager
def _naming(arm: Arm, study: Study | None = None, field: str = "") -> Iterator[None]:
    """Name the place in the study's file if a config is refused: the searched field, the arm, or the data sets."""
    searched = arm.search.get(field)
    place = (searched and searched.place) or arm.place
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        missing = getattr(error, "missing_cfg_file", None)
        if study is not None and missing in [f"dataset/{name}" for name in study.datasets]:
            place = f"{study.path}: datasets"
        raise ConfigError(f"{place}: {sentence(error)}") from error


def settings_of(study: Study, scale: str = PAPER, extra: Sequence[str] = ()) -> list[Setting]:
    """Compose the settings of a study: by data set, then by epsilon, then by arm.

    `extra`: further overrides, of the machine and of Hydra's search path.

    Raises:
        ConfigError: Hydra refuses the config of an arm, or two data sets have the same name.
    """
    settings, options = list[Setting](), dict[str, str]()
    for dataset, epsilon, arm in product(study.datasets, study.epsilons, study.arms):
        calibrated = ["accountant=pld", f"target_epsilon={epsilon:g}", "noise_multiplier=null", "max_epsilon=null"]
        overrides = [f"dataset={dataset}"] if dataset else []
        overrides += ["target_epsilon=null", "max_epsilon=null"] if study.front else calibrated
        overrides += [] if scale == PAPER else [f"scale={scale}"]
        texts = tuple(merged([*study.base, *overrides, *arm.overrides, *extra]))
        with _naming(arm, study):
            setting = Setting(study.name, arm, dataset, epsilon, composed_values(texts), texts)
        before = setting if arm is study.arms[0] else settings[-1]
        if setting.composed["delta"] != before.composed["delta"]:
            other = f"{setting.config.delta:g}, and that of the arm before is {before.config.delta:g}"
            raise ConfigError(f"{arm.place}: its delta is {other}: arms are compared at the same one.")
        name = setting.labels[0]
        if (option := options.setdefault(name, dataset)) != dataset:
            alike = f"{option} and {dataset} are both called {name}"
            raise ConfigError(f"{study.path}: datasets: {alike}: give one of them another name in its file.")
        settings.append(setting)
    return settings


def merged(overrides: Sequence[str]) -> list[str]:
    """Keep the last override of each field or group, where it stands."""
    last = {text.partition("=")[0].lstrip("+"): place for place, text in enumerate(overrides)}
    return [text for place, text in enumerate(overrides) if last[text.partition("=")[0].lstrip("+")] == place]


@dataclass
class Progress:
    """The runs of a setting, as its records tell them."""

    setting: Setting
    trials: list[Trial] = field(default_factory=list)  # recorded, in the order in which they were suggested
    searched: list[PlannedRun] = field(default_factory=list)  # the runs of the trials, until they were stopped
    curves: list[Curve] = field(default_factory=list)  # the accuracies of the trials by epoch
    recorded: int = 0  # the number of recorded trials, in rounds that are not complete, too
    chosen: Point | None = None  # the values with the best held-out accuracy, or None until the search has ended
    finals: Runs = field(default_factory=Runs)  # planned as soon as there is a choice
    next: list[Job] = field(default_factory=list)  # the jobs that can be run now

    @property
    def name(self) -> str:
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
    alike = {*_FIXED, *(["target_epsilon"] if len(study.epsilons) == 1 else [])}
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

"""Plan a study: the runs of each arm on each data set at each epsilon, as ordinary jobs with ordinary ids.

An override of an arm replaces the same one of the base. The noise is calibrated to the study's epsilon by PLD, the
accountant of the sound epsilon. An arm may override that, for example by a `noise_multiplier`. Its runs then count with
the last epoch within the epsilon. In the search for a front no noise is calibrated, and all runs count in this way.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException, ValidationError

from runner.claims.claim import dataset_name
from runner.config import PAPER, ConfigError, EvaluationSplit
from runner.records.hydra_errors import sentence
from runner.records.identity import identify_recorded, limit, plain, resolved
from runner.records.jobs import Job, cached_jobs, command_of, composed_values, restored
from runner.report.leaderboard.methods import HELD_OUT
from runner.study.definition import SEARCH_SEED, Arm, Space, Study, Times, Value, space_at, three_digits

FIXED = ("accountant", "noise_multiplier", "max_epsilon")  # overrides that all settings have


@dataclass(frozen=True)
class Setting:
    """One arm on one data set at one epsilon.

    study: its name.
    composed: the JSON values of its config before a value that is searched is set. Nothing in them is resolved.
    overrides: what they were composed from.
    """

    study: str
    arm: Arm
    dataset: str
    epsilon: float
    composed: Mapping[str, Any]
    overrides: tuple[str, ...]

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
        """The data set and epsilon for people."""
        return f"{self.labels[0]}, ε = {self.labels[1]}"

    @cached_property
    def search(self) -> Space:
        """The searched fields, with multiples as values."""
        space = dict(space_at(self.arm.search, self.epsilon))
        for name, factors in space.items():
            if isinstance(factors, Times):
                with _naming(self.arm):
                    value: Any = OmegaConf.select(resolved(self.config), name)
                if not isinstance(value, (int, float)) or not value:
                    raise ConfigError(f"{self.arm.place}: {name} has no number to multiply, so list its values.")
                space[name] = tuple(three_digits(value * factor) for factor in factors)
        return space

    def trial(self, values: Mapping[str, Value]) -> Job:
        """Return the run of searched values on held-out training images, with the seed that all arms have."""
        return self.trials([values])[0]

    def trials(self, points: Sequence[Mapping[str, Value]]) -> list[Job]:
        """Return the runs of `trial` for several points."""
        return self._jobs([(point, SEARCH_SEED, EvaluationSplit.holdout) for point in points])

    def finals(self, values: Mapping[str, Value], seeds: Sequence[int]) -> list[Job]:
        """Return the runs of chosen values on test images. A scale may have fewer seeds."""
        jobs = self._jobs([(values, seed, EvaluationSplit.test) for seed in seeds])
        return list({job.run_id: job for job in jobs}.values())

    def _jobs(self, runs: Sequence[tuple[Mapping[str, Value], int, EvaluationSplit]]) -> list[Job]:
        """Return a job for each of some values, seeds and evaluations. Each is made once."""
        keys = [repr((sorted(values.items()), seed, evaluation.value)) for values, seed, evaluation in runs]

        def compose() -> list[Job]:
            composed_values(self.overrides)  # so that the jobs depend on the files that were read for the config
            return [self._job(*run) for run in runs]

        if not all(key in self._jobs_by_key for key in keys):
            jobs = cached_jobs(["study", self.study, self.arm.name, *self.overrides, *keys], compose)
            self._jobs_by_key.update(zip(keys, jobs, strict=True))
        return [self._jobs_by_key[key] for key in keys]

    @cached_property
    def _jobs_by_key(self) -> dict[str, Job]:
        return {}

    def _job(self, values: Mapping[str, Value], seed: int, evaluation: EvaluationSplit) -> Job:
        config: DictConfig = pickle.loads(pickle.dumps(self.config))
        with _naming(self.arm):
            for name, value in {**values, "seed": seed, "evaluation": evaluation}.items():
                try:
                    OmegaConf.update(config, name, value)
                except ValidationError:  # a number that is whole may be for a field of whole numbers
                    if not (isinstance(value, float) and value.is_integer()):
                        raise
                    OmegaConf.update(config, name, int(value))
            limit(config)
            final = plain(config)  # which resolves it
        texts = {name: _typed(value) for name, value in values.items()}
        searched = [f"{name}={text}" for name, text in texts.items()]
        single = [f"seed={final['seed']}", f"evaluation={evaluation.value}"]
        experiment = {text.partition("=")[0]: text.partition("=")[2] for text in self.overrides}.get("experiment", "")
        tracking = final["tracking"]
        final["tracking"] = tracking | {
            "command": command_of([*self.overrides, *searched, *single]),
            "group": f"study/{self.study}",
            "tags": sorted({*tracking["tags"], *([HELD_OUT] if values else [])}),
            "job_type": experiment or self.arm.name,
        }
        names = {"arm": self.arm.name, "dataset": self.dataset_name, "ε": f"{self.epsilon:g}"}
        labels = {**names, **texts, "seed": str(final["seed"])}
        return Job(f"study/{self.study}", labels, *identify_recorded(final), final)


@contextmanager
def _naming(arm: Arm, study: Study | None = None) -> Iterator[None]:
    """Name the place in the study's file if a config is refused: the arm, or the list of data sets."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{arm.place}: {error}") from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        place, missing = arm.place, getattr(error, "missing_cfg_file", None)
        if study is not None and missing in [f"dataset/{name}" for name in study.datasets]:
            place = f"{study.path}: datasets"
        raise ConfigError(f"{place}: {sentence(error)}") from error


def settings_of(study: Study, scale: str = PAPER, extra: Sequence[str] = ()) -> list[Setting]:
    """Compose the settings of a study: by data set, then by epsilon, then by arm.

    `extra`: further overrides, of the machine and of Hydra's search path.

    Raises:
        ConfigError: Hydra refuses the config of an arm.
    """
    settings: list[Setting] = []
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
        settings.append(setting)
    return settings


def merged(overrides: Sequence[str]) -> list[str]:
    """Keep the last override of each field or group, where it stands."""
    last = {text.partition("=")[0].lstrip("+"): place for place, text in enumerate(overrides)}
    return [text for place, text in enumerate(overrides) if last[text.partition("=")[0].lstrip("+")] == place]


def _typed(value: Value) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else value

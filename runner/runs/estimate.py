"""How long runs will take on this machine: by the records of runs like them, and by a clock where there are none.

An estimate is of a run that has its core, or its GPU, to itself. How much longer all takes while the machine is busy
with other work is the yardstick's to say (`runner.speed.yardstick`).
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from runner.config import FIELDS, REPOSITORY
from runner.config.fields import Differs, Part
from runner.runs import kept
from runner.runs.identity import identify, plain, recorded_config
from runner.runs.jobs import Job
from runner.runs.paces import START_SECONDS, UNTOLD, Paces, read
from runner.runs.provenance import device_name
from runner.runs.records import results_folder
from runner.runs.timed import timed_seconds, usual_epochs
from runner.speed.yardstick import Yardstick, measured
from runner.training.prepare import Run

_NEVER_PAID = ("activation", "optimizer")  # what a network is made of and what is done with a noisy sum cost nothing
_OF_A_JOB = ("job_type", "serves")  # of tracking


@dataclass(frozen=True)
class Estimate:
    """Seconds that a run takes: the likeliest, and the least and the most that it may be. `by`: how they are known."""

    low: float
    seconds: float
    high: float
    by: str


class Estimator:
    """Estimates runs with the threads that PyTorch uses now.

    Args:
        folders: of results whose records tell.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = dict.fromkeys(folders)

    @cached_property
    def yardstick(self) -> Yardstick:
        """This machine's, measured when it is first asked for."""
        return measured()

    @cached_property
    def paces(self) -> Paces:
        """What the records tell of this machine."""
        return Paces(read(self._folders), self.yardstick.seconds)

    def of(self, config: DictConfig, setting_id: str, prepared: Callable[[DictConfig], Run]) -> Estimate:
        """The estimate of a resolved config.

        Args:
            prepared: prepares a run, which is done where records do not tell enough.
        """
        pace = self.paces.of(setting_id, recorded_config(config)) if _one_core(config) else None
        if pace is None:
            low, high = UNTOLD
            key = ("timed", *_machine(), alike(config))
            seconds = _once(key, lambda: timed_seconds(config, prepared(_without_calibration(config))))
            return Estimate(low * seconds, seconds, high * seconds, "timed")
        low, high = self.paces.scatter
        seconds = self._epochs(config, setting_id, prepared) * pace.seconds
        return Estimate(START_SECONDS + low * seconds, START_SECONDS + seconds, START_SECONDS + high * seconds, pace.by)

    def _epochs(self, config: DictConfig, setting_id: str, prepared: Callable[[DictConfig], Run]) -> float:
        """How many a run takes: as its config says, or, where a budget ends it, as recorded runs did, else usually."""
        if config.max_epsilon is None:
            return float(config.epochs)
        recorded = self.paces.epochs(setting_id)
        if recorded is not None:
            return recorded
        return _once(("epochs", setting_id), lambda: usual_epochs(prepared(config)))


def folders_of(configs: Iterable[DictConfig]) -> list[Path]:
    """The folders of results whose records tell of such runs: this repository's, and their own."""
    own = {results_folder(config) for config in configs}
    return [REPOSITORY / "results", *sorted(own - {REPOSITORY / "results"})]


def alike(config: DictConfig) -> str:
    """The same text for runs that take about the same time: their groups have the same classes, and differ in numbers.

    Where a budget ends the run, the numbers that cost privacy say when; all of them do where it is screened.
    """
    values = plain(config)
    same = {name: value for name, value in values.items() if FIELDS[name].differs is Differs.nothing}
    numbers = {name: value for name, value in values.items() if FIELDS[name].differs is Differs.numbers}
    if config.max_epsilon is None:
        return json.dumps(same | _classes(numbers), sort_keys=True)
    if config.screening:
        return identify(config)[1]
    paid = {name: value for name, value in values.items() if _may_cost_privacy(name)}
    return json.dumps(same | _classes(numbers) | paid, sort_keys=True)


def kinds(jobs: Sequence[Job]) -> dict[str, str]:
    """What is `alike` of each of the settings of a request's jobs, by setting id."""
    settings = {job.setting_id: job for job in jobs}
    if not settings:
        return {}
    machine = _machine_fields(jobs[0].config)  # of one request, and so of all jobs
    key = repr(("kinds", machine, hashlib.sha256(repr(sorted(settings)).encode()).hexdigest()))
    content = kept.recalled(key)
    if content is None:
        found = {setting: alike(job.config) for setting, job in settings.items()}
        content = json.dumps({one: hashlib.sha256(text.encode()).hexdigest() for one, text in found.items()}).encode()
        kept.keep(key, content)
    known: dict[str, str] = json.loads(content)
    return known


def check_once(config: DictConfig, run_id: str, prepared: Callable[[], Run]) -> None:
    """Prepare a run, which finds what is wrong with it, unless that was done before and nothing was.

    Raises:
        ConfigError: as `prepare` does.
    """
    key = repr(("checked", *_machine(), run_id, _machine_fields(config)))
    if kept.recalled(key) is None:
        prepared()
        kept.keep(key, b"")


def _machine_fields(config: DictConfig) -> str:
    """What of a config no id says, but for the claims and the experiment that a run is tracked under."""
    fields = {name: value for name, value in plain(config).items() if FIELDS[name].part is Part.machine}
    fields["tracking"] = {name: value for name, value in fields["tracking"].items() if name not in _OF_A_JOB}
    return json.dumps(fields, sort_keys=True)


def _once(key: tuple[str | int, ...], work_out: Callable[[], float]) -> float:
    """A number that is worked out where it is not kept from an earlier time."""
    content = kept.recalled(repr(key))
    if content is not None:
        return float(content)
    number = work_out()
    kept.keep(repr(key), repr(number).encode())
    return number


def _machine() -> tuple[str, int]:
    """What computes here, and with how many threads."""
    return device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu")), torch.get_num_threads()


def _classes(groups: dict[str, Any]) -> dict[str, Any]:
    """The classes of groups, without their arguments; null where one is left out."""
    return {name: value and value["_target_"] for name, value in groups.items()}


def _without_calibration(config: DictConfig) -> DictConfig:
    """The config with some noise in place of that which keeps a promise, unless a budget ends the run: to find it takes
    long, and how much it is costs no time.
    """
    if config.target_epsilon is None or config.max_epsilon is not None:
        return config
    with_some = copy.deepcopy(config)
    with_some.update({"target_epsilon": None, "noise_multiplier": 1.0})
    return with_some


def _may_cost_privacy(name: str) -> bool:
    """Whether a field of the config may have a say in what a step costs."""
    return FIELDS[name].part is Part.setting and name not in _NEVER_PAID


def _one_core(config: DictConfig) -> bool:
    """Whether a run is computed as those are whose records tell: on one core, step by step, alone."""
    cpu = config.runtime.device == "cpu" or (config.runtime.device == "auto" and not torch.cuda.is_available())
    usual = config.runtime.engine.value == "one_pass" and config.runtime.step.value in ("auto", "eager")
    alone = (config.runtime.lockstep or 1) == 1 and (config.runtime.threads or torch.get_num_threads()) == 1
    return cpu and usual and alone and config.runtime.guard_every is None

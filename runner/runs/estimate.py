"""How long runs will take on this machine: by the records of runs like them, and by a clock where there are none.

An estimate is of a run that has its core, or its GPU, to itself. How much longer all takes while the machine is busy
with other work is the yardstick's to say (`runner.speed.yardstick`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from omegaconf import DictConfig

from runner.config import FIELDS, REPOSITORY, ConfigError
from runner.config.fields import Part
from runner.records.files import results_folder
from runner.records.identity import plain
from runner.records.provenance import device_name
from runner.runs import kept, timings
from runner.runs.paces import START_SECONDS, UNTOLD, Paces, read
from runner.runs.planned import Planned
from runner.runs.timed import timed_seconds, usual_epochs
from runner.runs.timings import Timing
from runner.speed import kernels
from runner.speed.yardstick import Yardstick, measured
from runner.training.prepare import Run

_SURE, _GUESSED = (1.0, 1.0), (0.7, 1.6)  # of epochs; recorded screened runs took 0.71 to 1.61 times the usual ones
_OF_A_JOB = ("job_type", "serves")  # of tracking
TIMED, TIMED_BEFORE = "timed", "timed before"


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
        one: the config of one of the runs: where and how it is computed, and where its results belong, all of them
            are. Records there tell, and those of this repository.
        anew: time what no record tells, whatever was timed before.
    """

    def __init__(self, one: DictConfig, *, anew: bool = False) -> None:
        self._folders = dict.fromkeys([REPOSITORY / "results", results_folder(one)])
        self._usual = _usual(one)
        self._anew: dict[str, float] | None = {} if anew else None  # what was timed, by kind
        self._computed = json.dumps(plain(one)["runtime"], sort_keys=True)

    @cached_property
    def yardstick(self) -> Yardstick:
        """This machine's, measured when it is first asked for."""
        return measured()

    @cached_property
    def paces(self) -> Paces:
        """What the records tell of this machine."""
        return Paces(read(self._folders), self.yardstick.seconds)

    @cached_property
    def timings(self) -> Mapping[str, Timing]:
        """What was timed before of what no record tells, by kind: nothing for runs that are computed in other ways."""
        return timings.read(self._folders) if self._usual and self._anew is None else {}

    def of(self, run: Planned, prepared: Callable[[DictConfig], Run]) -> Estimate:
        """The estimate of a run.

        Args:
            prepared: prepares the run with a config of its own, which is done where records do not tell enough.
        """
        pace = self.paces.of(run.likenesses) if self._usual else None
        if pace is None:
            return self._timed(run, prepared)
        low, high = self.paces.scatter
        epochs, of_epochs = self._epochs(run, prepared)
        seconds, low, high = epochs * pace.seconds, low * of_epochs[0], high * of_epochs[1]
        return Estimate(START_SECONDS + low * seconds, START_SECONDS + seconds, START_SECONDS + high * seconds, pace.by)

    def check_keeps(self) -> None:
        """Raise ConfigError where the runs are not computed as timings are kept for."""
        if not self._usual:
            raise ConfigError(
                "Timings are kept of one core of a CPU and its compiled kernels: without --threads, overrides of "
                "runtime, DP_REPRO_KERNELS, or a GPU."
            )

    def to_keep(self, runs: Sequence[Planned], estimates: Mapping[str, Estimate]) -> dict[str, Timing]:
        """Of estimates, by run id, those that were timed here, by kind."""
        timed = {run.kind: run for run in runs if estimates[run.run_id].by == TIMED}
        return {kind: self._timing(run, estimates[run.run_id]) for kind, run in timed.items()}

    def _timing(self, run: Planned, estimate: Estimate) -> Timing:
        seconds = (estimate.seconds - START_SECONDS) / (run.epochs or 1)
        return Timing(seconds, self.yardstick.seconds, run.epochs is None and _screened(run))

    def _timed(self, run: Planned, prepared: Callable[[DictConfig], Run]) -> Estimate:
        """By the clock, or as it was timed before."""
        known = self.timings.get(run.kind)
        if known is not None:
            by, worked, guessed = TIMED_BEFORE, known.on(self.yardstick.seconds), known.guessed
        else:
            by, worked = TIMED, self._clocked(run, prepared)
            guessed = run.epochs is None and _screened(run)
        seconds = START_SECONDS + worked * (run.epochs or 1)
        of_epochs = _GUESSED if guessed else _SURE
        return Estimate(UNTOLD[0] * of_epochs[0] * seconds, seconds, UNTOLD[1] * of_epochs[1] * seconds, by)

    def _clocked(self, run: Planned, prepared: Callable[[DictConfig], Run]) -> float:
        """Seconds of an epoch by the clock, once for all runs of a kind; of the run where a budget ends it."""

        def clocked() -> float:
            return _by_clock(run, prepared(without_calibration(run.config)))

        if self._anew is None:
            return _once((TIMED, *_machine(), self._computed, run.kind), clocked)
        if run.kind not in self._anew:
            self._anew[run.kind] = clocked()
        return self._anew[run.kind]

    def _epochs(self, run: Planned, prepared: Callable[[DictConfig], Run]) -> tuple[float, tuple[float, float]]:
        """How many it takes, and how far they may be from that: as its config says, or, where a budget ends it, as
        recorded runs did, else usually."""
        if run.epochs is not None:
            return float(run.epochs), _SURE
        recorded = self.paces.epochs(run.setting_id)
        if recorded is not None:
            return recorded, _SURE
        usual = _once(("epochs", run.kind), lambda: usual_epochs(prepared(run.config)))
        return usual, _GUESSED if _screened(run) else _SURE


def _screened(run: Planned) -> bool:
    """Whether a run is: all of its kind are, which is kept, as its config may have to be composed."""
    return bool(_once(("screened", run.kind), lambda: float(bool(run.config.screening))))


def _by_clock(run: Planned, prepared: Run) -> float:
    """Seconds of an epoch by the clock; of all that are expected where a budget ends the run."""
    return (timed_seconds(run.config, prepared) - START_SECONDS) / (run.epochs or 1)


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


def without_calibration(config: DictConfig) -> DictConfig:
    """The config with some noise in place of that which keeps a promise, unless a budget ends the run: to find it takes
    long, and how much it is costs no time.
    """
    if config.target_epsilon is None or config.max_epsilon is not None:
        return config
    with_some = copy.deepcopy(config)
    with_some.update({"target_epsilon": None, "noise_multiplier": 1.0})
    return with_some


def _usual(config: DictConfig) -> bool:
    """Whether a run is computed as those are whose records tell: on one core, step by step, alone, with kernels, in
    pieces of a batch as large as is best."""
    runtime = config.runtime
    cpu = runtime.device == "cpu" or (runtime.device == "auto" and not torch.cuda.is_available())
    steps = runtime.engine.value == "one_pass" and runtime.step.value in ("auto", "eager")
    pieces = runtime.physical_batch is None
    alone = (runtime.lockstep or 1) == 1 and (runtime.threads or torch.get_num_threads()) == 1
    return cpu and steps and pieces and alone and kernels.as_usual()

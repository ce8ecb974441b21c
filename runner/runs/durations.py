"""Estimate how long runs take, by the records of runs like them.

The estimate is the median of the recorded runs of the same setting. Without any, an epoch takes the median of recorded
runs with the same data shapes, network and batch size. Without these, it takes what results/epochs.csv has for such
runs, so that plans and pages say the same on every machine. Else the time is unknown: None.

A record has the processor's seconds. Older records only have seconds of a clock, on machines that did other work too.
"""

import csv
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from omegaconf import DictConfig

from runner.config import RESULTS, ConfigError
from runner.config.checkout import scan
from runner.records.disk import results_folder
from runner.records.identity import identify_recorded
from runner.records.jobs import Job
from runner.speed.machine import gpus
from runner.terminal import Line, duration
from runner.trust.sources import own_targets

EPOCHS = RESULTS / "epochs.csv"
_PROCESSOR, _CLOCK = "processor_seconds", "wall_seconds"
_EXAMPLES = 256  # of a timed batch, at most; a larger batch is taken to need as much time for each example
_STEPS = 3  # that are timed, of which the fastest counts
_OLDER = ("AMD EPYC", "Intel")  # the CPUs of records that do not state their instructions


def like(config: Mapping[str, Any]) -> str:
    """Compute the same digest for runs whose epochs take about as long, from their resolved or recorded configs.

    Their data have the same shapes, and they have the same views of an example, network and batch size. Classes of the
    user's, which may take any time, are the same, too.
    """
    alike = {name: config.get(name) for name in ("features", "augmentation", "architecture", "batch_size")}
    shapes = {name: value for name, value in config["dataset"].items() if name not in ("name", "_target_")}
    own = own_targets(config)
    return identify_recorded({**alike, **({"own": sorted(own)} if own else {}), "dataset": shapes})[1]


class Durations:
    """Seconds that recorded runs took on one core of a CPU, or on the GPU with a name. Damaged records are left out."""

    def __init__(
        self, records: Iterable[Mapping[str, Any]], gpu: str | None = None, timed: Mapping[str, float] | None = None
    ) -> None:
        self.gpu, self.timed = gpu, dict(timed or {})  # seconds of an epoch of runs without records, by `like`
        self._alike: dict[str, str] = {}  # `like` by setting: runs that differ only in seed have one
        self._runs: dict[str, dict[str, list[float]]] = {}  # by setting and by what measured the seconds
        self._epochs: dict[str, dict[str, list[float]]] = {}
        for record in records:
            with suppress(ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
                clock = _clock(record["provenance"], gpu) if record["status"] == "finished" else None
                if clock is not None:
                    seconds = float(record["provenance"][clock])
                    setting, an_epoch = record["setting_id"], seconds / len(record["history"]["epoch"])
                    alike = self.alike(setting, record["config"])
                    self._epochs.setdefault(alike, {}).setdefault(clock, []).append(an_epoch)
                    self._runs.setdefault(setting, {}).setdefault(clock, []).append(seconds)

    def alike(self, setting_id: str, config: Mapping[str, Any]) -> str:
        """Return the `like` of a setting, computed once."""
        if setting_id not in self._alike:
            self._alike[setting_id] = like(config)
        return self._alike[setting_id]

    def seconds(self, setting_id: str, config: Mapping[str, Any]) -> float | None:
        """Estimate the seconds of a run, given its setting and its resolved config; None: they are unknown.

        A run that a budget may end earlier is taken to train all its epochs, unless its setting is recorded.
        """
        if measured := self._runs.get(setting_id):
            return _median(measured)
        alike, epochs = self.alike(setting_id, config), int(config["epochs"])
        if measured := self._epochs.get(alike):
            return epochs * _median(measured)
        return epochs * self.timed[alike] if alike in self.timed else None


def _median(measured: Mapping[str, Sequence[float]]) -> float:
    return median(measured.get(_PROCESSOR) or measured[_CLOCK])


def _clock(provenance: Mapping[str, Any], gpu: str | None) -> str | None:
    """Return the name of the seconds that a record tells.

    None: the run went on after a stop, or was computed by something else.
    """
    if "resumed_after" in provenance:
        return None
    if gpu is not None:
        return _CLOCK if provenance.get("device") == gpu else None
    on_cpu = "instructions" in provenance or str(provenance.get("device")).startswith(_OLDER)
    if not on_cpu or provenance.get("threads") != 1 or provenance.get("step", "eager") != "eager":
        return None
    return _PROCESSOR if _PROCESSOR in provenance else _CLOCK


def recorded(config: DictConfig) -> Durations:
    """Read the records of this repository, and those where the run of a config belongs, computed where it would be."""
    gpu, name = None, config.runtime.device
    if name != "cpu" and (name != "auto" or gpus()):
        from runner.build.parts import device_of  # here, because plans need no PyTorch
        from runner.records.provenance import device_name

        device = device_of(name)
        gpu = device_name(device) if device.type == "cuda" else None
    folders = dict.fromkeys([RESULTS, results_folder(config)])
    paths = {path.name: path for folder in folders for path in scan(folder / "runs", "*.json")}  # a run once
    return Durations(read(paths.values()), gpu, {} if gpu else timed_epochs())


def timed_epochs() -> dict[str, float]:
    if not EPOCHS.exists():
        return {}
    with EPOCHS.open(encoding="utf-8", newline="") as file:
        return {row["like"]: float(row["seconds"]) for row in csv.DictReader(file)}


def time_unknown(jobs: Iterable[Job], durations: Durations, line: Line) -> dict[str, tuple[str, float]]:
    """Time an epoch of each kind of run whose time is unknown, on this machine's CPU, and add it to the durations.

    Return an example's label and the seconds by the `like` of the runs. A kind that cannot be timed stays unknown.
    """
    kinds = {durations.alike(job.setting_id, job.values): job for job in jobs}
    unknown = [kind for kind, job in kinds.items() if durations.seconds(job.setting_id, job.values) is None]
    timed = {}
    for number, kind in enumerate(unknown, 1):
        line.show(f"timed {number} of {len(unknown)} kinds of runs that no record is like ...")
        with suppress(ConfigError, RuntimeError):
            timed[kind] = f"{kinds[kind].sweep} {kinds[kind].label}", seconds_of_epoch(kinds[kind].config)
            durations.timed[kind] = timed[kind][1]
    line.clear()
    return timed


def seconds_of_epoch(config: DictConfig) -> float:
    """Time single steps on made-up examples on one core, and a pass over test images; return an epoch's seconds.

    Raises:
        ConfigError: the config cannot be run.
    """
    import torch  # here, because plans need no PyTorch

    from runner.build.prepare import prepare
    from runner.clipping import gradient_sum

    run = prepare(config)
    objective, mechanism = run.new_objective(), run.mechanism
    objective.start_epoch(0)
    count = min(_EXAMPLES, run.config.batch_size)
    images = torch.rand(count, *run.features.shape(run.dataset.shape))
    targets = torch.arange(count) % run.dataset.classes
    if run.augmentation is not None:
        images = run.augmentation(images, run.augmentation.draw(count, torch.Generator()))
        objective.views = run.augmentation.views
    engine, noise, groups = run.engine(objective), torch.Generator(), mechanism.noise_groups
    clipping = mechanism.applied(run.clipping, count)

    def release() -> None:
        gradients = gradient_sum(clipping, engine, images, targets, run.physical_batch, groups).gradients
        mechanism.at(0).release(gradients, noise)

    def evaluate() -> None:
        objective.views = 1
        with torch.no_grad():
            objective(images if run.augmentation is None else images[:, 0], targets)

    def fastest(work: Callable[[], None]) -> float:
        work()  # which allocates
        seconds = []
        for _ in range(_STEPS):
            started = time.process_time()
            work()
            seconds.append(time.process_time() - started)
        return min(seconds)

    step = fastest(release) * math.ceil(run.config.batch_size / count)
    return float(mechanism.steps_per_epoch * step + fastest(evaluate) * run.dataset.test_examples / count)


def read(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Read the files of records without checking them. What is no JSON is left out."""
    for path in paths:
        with suppress(OSError, RecursionError, ValueError):
            yield json.loads(path.read_text(encoding="utf-8"))


def estimated(jobs: Iterable[Job], durations: Durations) -> dict[str, float]:
    """Estimate the seconds of runs, by run id. Those of unknown time are left out."""
    estimates = {job.run_id: durations.seconds(job.setting_id, job.values) for job in jobs}
    return {run_id: seconds for run_id, seconds in estimates.items() if seconds is not None}


class Total(NamedTuple):
    """Numbers of runs, each counted once, and the seconds that they take on one core; `unknown` runs have none."""

    runs: int
    left: int
    seconds: float
    seconds_left: float
    unknown: int


def total_of(jobs: Iterable[Job], durations: Durations, is_done: Callable[[Job], bool]) -> Total:
    """Add up the runs of a paper, and those that are left: they are not done."""
    runs = {job.run_id: job for job in jobs}
    left = {run_id for run_id, job in runs.items() if not is_done(job)}
    seconds = estimated(runs.values(), durations)
    seconds_left = sum(seconds[run_id] for run_id in sorted(left & seconds.keys()))
    return Total(len(runs), len(left), sum(seconds.values()), seconds_left, len(runs) - len(seconds))


def unplanned_text(jobs: Sequence[Job], durations: Durations) -> str:
    """Write how many runs are not planned, and their core-hours if known: "Not planned are 80 runs (4 core-hours)"."""
    total = total_of(jobs, durations, lambda job: False)
    hours = f" ({float(f'{total.seconds / 3600:.2g}'):,g} core-hours)" if total.seconds else ""
    return f"Not planned {'is' if total.runs == 1 else 'are'} {total.runs:,} run{'s' * (total.runs > 1)}{hours}"


@cache
def committed(folder: Path) -> Durations:
    """Read a CPU's times from the records in a folder of results and epochs.csv: the same on every machine."""
    return Durations(read(scan(folder / "runs", "*.json")), None, timed_epochs())


def plan_of_papers(totals: Mapping[str, Total]) -> str:
    """Write a table of papers: runs in all, recorded, left, and core-hours from nothing and of what is left."""
    width = 2 + max(map(len, totals))
    lines = [f"{'paper':<{width}}{'runs':>6}{'done':>6}{'left':>6}{'unknown':>9}{'from nothing':>14}{'time left':>11}"]
    for name, (runs, left, seconds, seconds_left, unknown) in totals.items():
        times = f"{f'{seconds / 3600:,.1f}h':>14}{f'{seconds_left / 3600:,.1f}h':>11}"
        lines.append(f"{name:<{width}}{runs:>6}{runs - left:>6}{left:>6}{unknown:>9}{times}")
    note = "Times are core-hours, without those of runs of unknown time. Papers that share runs count them each."
    return "\n".join([*lines, note])


def plan_text(jobs: Mapping[str, Sequence[Job]], left: set[str], seconds: Mapping[str, float], workers: int) -> str:
    """Write a table of items: runs in all, recorded, left, of unknown time, and the time of the others that are left.

    `left` has the ids of the runs that are not recorded, and `seconds` estimates by run id.
    """

    def cells(ids: set[str]) -> str:
        estimates = [seconds[run_id] for run_id in ids & left if run_id in seconds]
        seconds_left = sum(estimates) / workers
        time_left = duration(seconds_left) if seconds_left < 360_000 else f"{seconds_left / 3600:,.0f}h"
        counts = f"{len(ids):>6}{len(ids - left):>6}{len(ids & left):>6}{len(ids & left) - len(estimates):>9}"
        return f"{counts}{'unknown' if ids & left and not estimates else time_left:>14}"

    return "\n".join([
        *table_of_items(f"{'runs':>6}{'done':>6}{'left':>6}{'unknown':>9}{'time left':>14}", jobs, cells),
        f"Time left is with JOBS={workers}, on a machine that does nothing else. It follows from the records of runs "
        "with the same setting, or the same shapes of data, network and batch size. It leaves out runs of unknown "
        "time. Runs that items share are trained once, and count once in the last row.",
    ])  # fmt: skip


def table_of_items(header: str, jobs: Mapping[str, Sequence[Job]], cells: Callable[[set[str]], str]) -> list[str]:
    """Make a table of the items that train something, and of all runs, each counted once: `cells` makes a line."""
    runs = {name: {job.run_id for job in planned} for name, planned in jobs.items()}
    rows = {"item": header, **{name: cells(ids) for name, ids in runs.items() if ids}}
    rows["in all"] = cells(set().union(*runs.values()))
    width = 2 + max(map(len, (*rows, *jobs)))
    return [f"{name:<{width}}{row}" for name, row in rows.items()]

"""How long a run will take on this machine, from a few timed steps on made-up data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch
from omegaconf import DictConfig

from runner.clipping import gradient_sum
from runner.config import FIELDS, Step
from runner.data.datasets import Split
from runner.fields import Cost
from runner.gradients import Objective
from runner.mechanism.seeds import generator
from runner.runs.identity import plain
from runner.speed.faster import faster
from runner.speed.inference import batches, evaluating
from runner.speed.machine import keep_freed_memory
from runner.training.diagnostics import FIXED
from runner.training.hessian import GRADIENTS
from runner.training.prepare import Run, engine, prepare, stacked_step
from runner.training.stacked import NotStackableError, whole

_START_SECONDS = 3.0  # reading data, tracking, writing the record
_TIMED = 256  # examples
_TRIES_PER_KEPT = 2.0  # of screened runs: 1.4 to 1.7 on MNIST, 3.1 on FashionMNIST, of which many end early


def estimated_seconds(config: DictConfig, run: Run) -> float:
    """Seconds that one run of a resolved config, prepared as `run`, takes: alone on the device, with the threads that
    PyTorch uses now.

    Good to a factor of about 1.5: steps are timed for a fraction of a second, once for all runs that differ in
    nothing that costs time.
    """
    key = json.dumps(_costly(plain(config)) | {"examples": _examples(config.batch_size, config)}, sort_keys=True)
    if key not in _measured:
        _measured[key] = _seconds_per_example(prepare(config))  # whose weights may change
    training, evaluation = _measured[key]
    epochs, evaluations = float(run.epochs), 1.0
    if run.screening is not None:
        steps = run.mechanism.steps_per_epoch
        if run.max_accepted is not None:
            epochs = min(epochs, _TRIES_PER_KEPT * run.max_accepted / steps)
        evaluations += (steps if run.screening.initial_temperature > 0 else 0) * run.screening.share
    examples = run.mechanism.examples + (GRADIENTS * FIXED if "hessian" in config.diagnostics else 0)
    per_epoch = examples * training + evaluations * run.dataset.test_examples * evaluation
    return _START_SECONDS + epochs * per_epoch


def _costly(config: dict[str, Any]) -> dict[str, Any]:
    """What of a config the time of one example depends on."""
    whole = {name: value for name, value in config.items() if FIELDS[name].cost is Cost.all}
    classes = {name: value["_target_"] for name, value in config.items() if FIELDS[name].cost is Cost.class_only}
    return whole | classes


_measured: dict[str, tuple[float, float]] = {}  # by everything in a config that costs time


def _examples(at_once: int, config: DictConfig) -> int:
    """How many examples to time: on a CPU, where time grows with their number, no more than tell."""
    cpu = config.runtime.device == "cpu" or not torch.cuda.is_available()
    most: int = config.batch_size
    return min(most, at_once, _TIMED if cpu else most)


def _seconds_per_example(run: Run) -> tuple[float, float]:
    """Seconds an example of training and of evaluation takes: the fastest of a few timed pieces of a batch."""
    keep_freed_memory()  # as a run does
    objective = run.objective
    count = _examples(max(run.physical_batch, 32), run.config)
    shape = run.features.shape(run.dataset.shape)
    inputs = torch.rand(count, *shape, device=run.device)
    targets = torch.zeros(count, dtype=torch.long, device=run.device)
    step = _step(run, objective, Split(inputs, targets))

    fast = faster(objective)

    def forward() -> None:
        with evaluating(fast):
            for some_inputs, some_targets in batches(inputs, targets):
                fast(some_inputs, some_targets)

    per_example = []
    for work in (step, forward):
        times = []
        for _ in range(3):
            started = time.perf_counter()
            work()
            if run.device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
        per_example.append(min(times[1:]) / count)
    return per_example[0], per_example[1]


def _step(run: Run, objective: Objective, data: Split) -> Callable[[], None]:
    """A step on all of `data`, taken as the run would take it."""
    if run.step is Step.graph:
        try:
            step = stacked_step([run], [objective], data)
        except NotStackableError:
            pass
        else:
            batches, noise = whole(len(data), 1, run.device), [generator(run.config.seed, "noise", run.device)]
            step.make_room(batches.length)
            return lambda: step.take(batches, 0, noise)
    gradient_engine = engine(run.config, objective)

    def eager() -> None:
        gradient_sum(run.clipping, gradient_engine, data.images, data.targets, run.physical_batch)

    return eager

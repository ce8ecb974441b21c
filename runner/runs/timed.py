"""How long a run will take on this machine, from a few timed steps on made-up data.

On a CPU they are timed in processor time: what else the machine is busy with just now says little of the hours that a
plan is for.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig

from runner.clipping import gradient_sum
from runner.config import FIELDS, StepMode
from runner.config.fields import Cost
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.mechanism.seeds import generator
from runner.records.identity import plain
from runner.runs.paces import MINOR, START_SECONDS
from runner.speed.faster import fastest_to_evaluate
from runner.speed.inference import batches, evaluating
from runner.speed.machine import keep_freed_memory
from runner.training.diagnostics.hessian import GRADIENTS
from runner.training.diagnostics.interface import FIXED
from runner.training.prepare import Run, stacked_step
from runner.training.stacked import NotStackableError, whole

_LEAST_TIMED, _MOST_TIMED = 32, 256  # examples
_FORWARD = 0.03  # seconds of evaluating the examples that are timed: a step on them takes about four times as long
_FEWEST, _MOST = 2, 10  # pieces of work; the first includes the trials of ways to compute them, and is not counted
_ENOUGH = 0.6  # seconds in all, after which no more are timed


def timed_seconds(config: DictConfig, run: Run) -> float:
    """Seconds that one run of a resolved config, prepared as `run`, takes: alone on the device, with the threads that
    PyTorch uses now.

    Good to a factor of about 1.5: steps are timed for a fraction of a second, once for all runs that differ in nothing
    that costs time. The Hessian's share is the most that it can take.
    """
    key = json.dumps(_costly(plain(config)) | {"examples": _examples(config.batch_size, config)}, sort_keys=True)
    if key not in _measured:
        _measured[key] = _seconds_per_example(run)
    training, evaluation = _measured[key]
    epochs = usual_epochs(run)
    evaluations = 1 + run.mechanism.steps_per_epoch * run.rule.evaluations_per_step
    examples = run.mechanism.examples + (GRADIENTS * FIXED if "hessian" in config.diagnostics else 0)
    per_epoch = examples * training + evaluations * run.dataset.test_examples * evaluation
    return START_SECONDS + epochs * per_epoch


def usual_epochs(run: Run) -> float:
    """How many epochs a run is to be expected to take, not all of them whole."""
    steps = run.mechanism.steps_per_epoch
    return run.rule.usual_steps(run.epochs * steps, run.paid_for) / steps


def _costly(config: dict[str, Any]) -> dict[str, Any]:
    """What of a config the time of one example depends on, but for what hardly matters beside a network."""
    costs = {name: value for name, value in config.items() if name not in MINOR}
    whole = {name: value for name, value in costs.items() if FIELDS[name].cost is Cost.all}
    return whole | _classes({name: value for name, value in costs.items() if FIELDS[name].cost is Cost.class_only})


def _classes(groups: dict[str, Any]) -> dict[str, Any]:
    """The classes of groups, without their arguments; null where one is left out."""
    return {name: value and value["_target_"] for name, value in groups.items()}


_measured: dict[str, tuple[float, float]] = {}  # by everything in a config that costs time


def _examples(at_once: int, config: DictConfig) -> int:
    """How many examples to time: on a CPU, where time grows with their number, no more than tell."""
    cpu = config.runtime.device == "cpu" or not torch.cuda.is_available()
    most: int = config.batch_size
    return min(most, at_once, _MOST_TIMED if cpu else most)


def _seconds_per_example(run: Run) -> tuple[float, float]:
    """Seconds an example of training and of evaluation takes: the fastest of a few timed pieces of a batch."""
    keep_freed_memory()  # as a run does
    objective = run.new_objective()
    # One of its own: evaluating may keep weights that a step has to compute anew.
    fast = fastest_to_evaluate(run.new_objective())

    def forward(data: Split) -> None:
        with evaluating(fast):
            for some_inputs, some_targets in batches(data.images, data.targets):
                fast(some_inputs, some_targets)

    count = _examples(max(run.physical_batch, _LEAST_TIMED), run.config)
    if run.device.type == "cpu" and count > _LEAST_TIMED:  # each may cost milliseconds: no more than tell
        few = _made_up(run, _LEAST_TIMED)
        each = _seconds(partial(forward, few), run, _FEWEST) / _LEAST_TIMED
        count = min(count, max(_LEAST_TIMED, int(_FORWARD / each)))
    data = _made_up(run, count)
    return _seconds(_step(run, objective, data), run) / count, _seconds(partial(forward, data), run) / count


def _made_up(run: Run, count: int) -> Split:
    """Examples of every class, with inputs of length 1: where a sharp loss is sure of its answer, its gradients are so
    small that the processor takes several times as long for them, which no run does."""
    shape = run.features.shape(run.dataset.shape)
    inputs = torch.randn(count, *shape, device=run.device) / math.prod(shape) ** 0.5
    return Split(inputs, torch.arange(count, device=run.device) % run.dataset.classes)


def _seconds(work: Callable[[], None], run: Run, most: int = _MOST) -> float:
    """The least that a piece of work takes, of a few that are timed."""
    clock = time.process_time if run.device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    times: list[float] = []
    while len(times) < _FEWEST or (len(times) < most and sum(times) < _ENOUGH):
        started = clock()
        work()
        if run.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - started)
    return min(times[1:])


def _step(run: Run, objective: Objective, data: Split) -> Callable[[], None]:
    """A step on all of `data`, taken as the run would take it."""
    if run.step is StepMode.graph:
        try:
            step = stacked_step([run], [objective], data)
        except NotStackableError:
            pass
        else:
            batches, noise = whole(len(data), 1, run.device), [generator(run.config.seed, "noise", run.device)]
            step.make_room(batches.length)
            return lambda: step.take(batches, 0, noise)
    gradient_engine = run.engine(objective)

    def eager() -> None:
        groups = run.mechanism.noise_groups
        gradient_sum(run.clipping, gradient_engine, data.images, data.targets, run.physical_batch, groups)

    return eager

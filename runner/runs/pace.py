"""Time an epoch of a setting that no record is like, by single steps on made-up examples on one core of a CPU.

Measured seconds are kept in results/epochs.csv, so that plans and pages say the same on every machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from omegaconf import DictConfig

from runner.build.prepare import prepare
from runner.clipping import gradient_sum

_EXAMPLES = 256  # of a timed batch, at most; a larger batch is taken to need as much time for each example
_STEPS = 3


def seconds_of_epoch(config: DictConfig) -> float:
    """Return the processor's seconds of an epoch: of its steps, and of the pass over the test images.

    Raises:
        ConfigError: the config cannot be run.
    """
    run = prepare(config)
    objective, mechanism = run.new_objective(), run.mechanism
    objective.start_epoch(0)
    shape = run.features.shape(run.dataset.shape)
    count = min(_EXAMPLES, run.config.batch_size)
    images, targets = torch.rand(count, *shape), torch.arange(count) % run.dataset.classes
    if run.augmentation is not None:
        images = run.augmentation(images, run.augmentation.draw(count, torch.Generator()))
        objective.views = run.augmentation.views
    engine, noise = run.engine(objective), torch.Generator()
    clipping = mechanism.applied(run.clipping, count)
    groups = mechanism.noise_groups

    def release() -> None:
        mechanism.at(0).release(
            gradient_sum(clipping, engine, images, targets, run.physical_batch, groups).gradients, noise
        )

    def evaluate() -> None:
        objective.views = 1
        with torch.no_grad():
            objective(images if run.augmentation is None else images[:, 0], targets)

    step = _seconds(release) * math.ceil(run.config.batch_size / count)
    return float(mechanism.steps_per_epoch * step) + float(_seconds(evaluate) * run.dataset.test_examples / count)


def _seconds(work: Callable[[], None]) -> float:
    """Return the least of some times of a piece of work, after a first one that allocates."""
    work()
    seconds = []
    for _ in range(_STEPS):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)

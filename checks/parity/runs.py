"""Small whole runs on one device: steps as a graph against single calls.

They use float64, so that differences come from the computation and not from rounding.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial

import torch

from checks.parity.cases import RUNS, case, prepared
from checks.parity.step import Difference, difference, made_up
from runner.config import StepMode, options_of
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.training.loop import Trained, train
from runner.training.run import Run

Comparison = tuple[str, Callable[[], Difference]]

AGREE = 1e-8
SMALL = (
    "epochs=2", "batch_size=8", "noise_multiplier=0.7", "target_epsilon=null", "optimizer.lr=0.02", "evaluation=test",
    "dataset.train_examples=16",
)  # fmt: skip
# Settings with their own code for a step as one fixed sequence that are no options of a group
WAYS: dict[str, tuple[str, ...]] = {
    "momentum": ("optimizer.momentum=0.9",),
    "sampling=shuffled": ("sampling=shuffled",),
    "physical_batch=7": ("runtime.physical_batch=7",),
}
# Options whose steps are compiled: compilation takes seconds, and PyTorch's compiler sees the same calls as a graph
COMPILED = (
    ("clipping", "flat"), ("clipping", "per_layer"), ("constraint", "spectral"), ("augmentation", "views"),
)  # fmt: skip


class _Doubled(Run):
    def new_objective(self) -> Objective:
        return super().new_objective().double()


def on(run: Run, device: str, step: StepMode = StepMode.auto, dtype: torch.dtype = torch.float64) -> Run:
    """Return the run on another device, with another way to take steps."""
    kind = _Doubled if dtype == torch.float64 else Run
    changed = {name.name: getattr(run, name.name) for name in fields(run)}
    changed |= {"config": copy.deepcopy(run.config), "device": torch.device(device)}
    changed["config"].runtime.step = step
    return kind(**changed)


def trained(run: Run, dtype: torch.dtype = torch.float64) -> Trained:
    """Train a run on made-up images."""
    inputs, targets = made_up(run, run.mechanism.examples)
    data = Split(inputs.to(run.device, dtype), targets.to(run.device))
    return train(run, (data, *run.rule.split(data)), lambda row: None)


def graph_against_eager(device: str) -> Iterator[Comparison]:
    """Compare each option and each way: the default step of the device, a graph if possible, with single calls."""
    for group in RUNS:
        for option in options_of(group):
            yield f"run: {group}={option}", partial(_against_eager, device, partial(case, group, option, *SMALL))
    for name, overrides in WAYS.items():
        yield f"run: {name}", partial(_against_eager, device, partial(prepared, *SMALL, *overrides))


def compiled_against_eager(device: str) -> Iterator[Comparison]:
    """Compare compiled steps of some options with single calls."""
    for group, option in COMPILED:
        build = partial(case, group, option, *SMALL)
        yield f"compiled: {group}={option}", partial(_against_eager, device, build, StepMode.compiled)


def _against_eager(device: str, build: Callable[[], Run], step: StepMode = StepMode.auto) -> Difference:
    run = build()
    eager, other = (trained(on(run, device, mode)) for mode in (StepMode.eager, step))
    if step is StepMode.compiled and other.step != step.value:
        raise RuntimeError("its step is not compiled")
    return apart(other, eager)


def apart(actual: Trained, expected: Trained, agree: float = AGREE) -> Difference:
    """Return the difference of the last weights, in units of `agree` times their norm."""
    weights = [
        torch.cat([p.detach().flatten().double().cpu() for p in side.objective.parameters()])
        for side in (actual, expected)
        if side.objective is not None
    ]
    times = ((weights[0] - weights[1]).norm() / (agree * weights[1].norm())).item()
    return difference(times, f"weights, step {actual.step}")

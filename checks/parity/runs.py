"""Small whole runs on one device: steps as a graph against steps call by call, runs in lockstep against each alone.

They use float64, so that differences come from the computation and not from rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache, partial

import torch

from checks.parity.cases import prepared
from checks.parity.step import Difference, made_up
from runner.data.datasets import Split
from runner.gradients import Objective
from runner.training.loop import Trained, training
from runner.training.prepare import Run

Comparison = tuple[str, Callable[[], Difference]]

AGREE = 1e-8
_SMALL = ("epochs=2", "batch_size=20", "noise_multiplier=0.7", "optimizer.lr=0.3", "dataset.train_examples=100")
_EXAMPLES = 100
# Options with separate code for a step as one fixed sequence, and numbers in which runs of a lockstep may differ
WAYS: dict[str, tuple[str, ...]] = {
    "flat": (),
    "per layer": ("clipping=per_layer",),
    "automatic": ("clipping=automatic",),
    "momentum": ("optimizer.momentum=0.9",),
    "adam": ("optimizer=adam", "optimizer.lr=0.01"),
    "a loss with a threshold": ("loss=losing_less",),
    "shuffled": ("sampling=shuffled",),
}
_TOGETHER = (("seed=0",), ("seed=1", "optimizer.lr=0.1"), ("seed=2", "clipping.norm=0.5"))


class _Doubled(Run):
    """A run in float64."""

    def new_objective(self) -> Objective:
        return super().new_objective().double()


def run_of(device: str, step: str, *overrides: str) -> Run:
    """Prepare a run of ten steps, on made-up images."""
    run = prepared(*_SMALL, *overrides, f"runtime.device={device}", f"runtime.step={step}")
    return _Doubled(**{each.name: getattr(run, each.name) for each in fields(run)})


def trained(runs: Sequence[Run]) -> list[Trained]:
    """Train these runs, in lockstep if there are several."""
    inputs, targets = made_up(runs[0], _EXAMPLES)
    data = Split(inputs.double().to(runs[0].device), targets.to(runs[0].device))
    return training(runs, (data, data))([lambda row: None] * len(runs))


def graph_against_eager(device: str) -> Iterator[Comparison]:
    """Compare each way of training as a graph and call by call."""
    for name, overrides in WAYS.items():
        yield f"graph: {name}", partial(_graph, device, overrides)


def _graph(device: str, overrides: Sequence[str]) -> Difference:
    (eager,) = trained([run_of(device, "eager", *overrides)])
    (graph,) = trained([run_of(device, "graph", *overrides)])
    assert (eager.step, graph.step) == ("eager", "graph")
    return apart(graph, eager)


def together_against_alone(device: str) -> Iterator[Comparison]:
    """Compare runs that differ in seed and numbers in lockstep with each of them alone."""
    together = cache(lambda: trained([run_of(device, "graph", *overrides) for overrides in _TOGETHER]))
    for place, overrides in enumerate(_TOGETHER):
        yield f"lockstep: {', '.join(overrides)}", partial(_lockstep, device, overrides, place, together)


def _lockstep(device: str, overrides: Sequence[str], place: int, together: Callable[[], list[Trained]]) -> Difference:
    found = together()[place]
    assert found.lockstep == len(_TOGETHER)
    (alone,) = trained([run_of(device, "eager", *overrides)])
    return apart(found, alone)


def apart(found: Trained, expected: Trained) -> Difference:
    """Return the difference of the last weights, in units of `AGREE` times their norm."""
    weights = [
        torch.cat([p.detach().flatten() for p in each.objective.parameters()])
        for each in (found, expected)
        if each.objective is not None
    ]
    times = ((weights[0] - weights[1]).norm() / (AGREE * weights[1].norm())).item()
    return Difference(math.inf if math.isnan(times) else times, "weights")

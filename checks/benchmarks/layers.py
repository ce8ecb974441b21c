"""Costs of layers and steps of Lipschitz networks, relative to ordinary ones: `python -m checks benchmark-layers`.

It compares GroupSort2 with ReLU, L2 pooling with max-pooling (forward and backward, as the engines use them), and the
clipless step with an ordinary one of the same network. It takes the process's own time, in turns, with one thread, and
prints medians of ratios. Other processes hardly affect them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from checks.benchmarks.command import Command
from checks.benchmarks.measure import interleaved
from checks.benchmarks.methods import methods
from checks.benchmarks.own import Step
from checks.benchmarks.problems import problem
from runner.networks.lipschitz.layers import GroupSort2, L2Pool2d
from runner.speed import machine
from runner.speed.faster import faster
from runner.speed.slices import channels_last

_ROUNDS, _SECONDS = 31, 60.0
_SHAPES = ((128, 16, 28, 28), (64, 32, 32, 32), (32, 64, 16, 16))


def both_ways(layer: nn.Module, shape: tuple[int, ...]) -> Step:
    """Make a step that passes made-up numbers through a layer, as `faster` has it, and a gradient back."""
    torch.manual_seed(0)
    fast, x = faster(layer), channels_last(torch.randn(shape)).requires_grad_()
    upstream = torch.randn_like(fast(x))

    def step() -> None:
        torch.autograd.grad(fast(x), x, upstream)

    return step


def ratio(steps: Mapping[str, Step], rounds: int = _ROUNDS) -> float:
    """Return the second step's time over the first's: the median over rounds."""
    first, second = interleaved(steps, rounds, _SECONDS, time.process_time).values()
    return statistics.median(own / other for other, own in zip(first, second, strict=True))


def main(arguments: Sequence[str]) -> int:
    """Print a line for each comparison."""
    Command(prog="python -m checks benchmark-layers", description=__doc__).options(arguments)
    torch.set_num_threads(1)
    machine.set_up(1)
    for shape in (*_SHAPES, (4000, 256)):
        steps = {"relu": both_ways(nn.ReLU(), shape), "sort": both_ways(GroupSort2(), shape)}
        print(f"GroupSort2 over ReLU, {shape}: {ratio(steps):.2f}", flush=True)
    for shape in _SHAPES:
        steps = {"max": both_ways(nn.MaxPool2d(2), shape), "l2": both_ways(L2Pool2d(2), shape)}
        print(f"L2 pooling over max-pooling, {shape}: {ratio(steps):.2f}", flush=True)
    for batch in (128, 512):
        found = {name: methods("VGG5")[name](problem("VGG5", batch)) for name in ("clipless", "non_private_faster")}
        print(f"an ordinary step over a clipless one, VGG5, batch {batch}: {ratio(found, 7):.2f}", flush=True)
    return 0

"""References of tests: gradients of one example at a time in float64, their sums, and runs that were resumed."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runner.data.datasets import Split
from runner.training.loop import Trained, training
from runner.training.run import Run

Gradients = Mapping[str, Tensor]


class Upstream(nn.Module):
    """A loss with a chosen gradient: the targets are the gradients of the outputs, of the same shape."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs * targets).flatten(1).sum(1)


def per_example(objective: nn.Module, inputs: Tensor, targets: Tensor) -> list[dict[str, Tensor]]:
    """Return the gradients of each example in float64."""
    exact = copy.deepcopy(objective).double()
    parameters = dict(exact.named_parameters())
    found = []
    for x, y in zip(inputs.double(), targets, strict=True):
        gradients = torch.autograd.grad(exact(x[None], y[None]).sum(), list(parameters.values()))
        found.append(dict(zip(parameters, gradients, strict=True)))
    return found


def norm(gradients: Gradients, names: Iterable[str] | None = None) -> float:
    """Return the norm of some of the gradients, by default of all."""
    chosen = gradients if names is None else names
    return math.sqrt(sum(float(gradients[name].double().square().sum()) for name in chosen))


def clipped_sum(
    examples: Sequence[Gradients], bound: float, groups: Sequence[Sequence[str]] | None = None
) -> dict[str, Tensor]:
    """Return the sum of gradients that are cut to `bound` in every group; by default all are one group."""
    total = {name: torch.zeros_like(gradient) for name, gradient in examples[0].items()}
    for gradients in examples:
        for group in groups or [list(gradients)]:
            factor = min(1.0, bound / max(norm(gradients, group), 1e-300))
            for name in group:
                total[name] += factor * gradients[name]
    return total


def distance(one: Gradients, other: Gradients, names: Iterable[str] | None = None) -> float:
    """Return the norm of the difference, of some parameters or of all of `other`."""
    chosen = other if names is None else names
    return norm({name: one[name].double() - other[name].double() for name in chosen})


def error(found: Gradients, expected: Gradients) -> float:
    """Return the distance over the norm of what is expected."""
    return distance(found, expected) / norm(expected)


def flat(gradients: Gradients) -> Tensor:
    """Return all numbers in one vector."""
    return torch.cat([gradient.flatten() for gradient in gradients.values()]).double()


def whole_and_resumed(
    run: Run, data: tuple[Split, ...], kept: Callable[[Any], Any] = copy.deepcopy
) -> tuple[Trained, Trained, Any]:
    """Train a run whole, and again from the state after its first epoch. Return both, and that state."""
    states: list[Any] = []
    whole = training(run, data, on_state=lambda state: states.append(kept(state())))(lambda row: None)
    resumed = training(run, data, state=kept(states[0]))(lambda row: None)
    return whole, resumed, states[0]

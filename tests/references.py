"""Gradients of one example at a time by ordinary autograd in float64, and sums of them to compare others with."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

Gradients = Mapping[str, Tensor]


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

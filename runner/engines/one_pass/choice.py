"""Which method a layer gets: the exact one with the fewest operations, a pure function of its geometry.

An operation is one multiplication and addition of a matrix product. Passing over memory is dearer than its count of
operations: a number that is written, then read for the norm and again for the sum, counts as `_STORED` of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from runner.engines.one_pass.geometry import Geometry

_STORED = 16.0


@dataclass(frozen=True)
class Choice:
    """A method and what every method would cost: operations per example, the weighted sum included."""

    method: str
    costs: dict[str, float]


def choose(shape: Geometry) -> Choice:
    """The cheapest exact method for a layer."""
    t, k, o, c = shape.positions, math.prod(shape.kernel), shape.channels_out, shape.channels_in
    product = t * shape.weights
    if shape.groups > 1:
        costs = {"one_by_one": product + _STORED * shape.weights}
    elif t == 1 and k == 1:
        costs = {"outer": product + 2 * (o + c)}
    else:
        padded = math.prod(shape.padded)
        costs = {
            "instantiate": product + _STORED * shape.weights,
            "gram": product + padded**2 * c + t**2 * o + _STORED / 2 * (padded**2 + t**2 * (k + 1)),
        }
    return Choice(min(costs, key=lambda method: costs[method]), costs)

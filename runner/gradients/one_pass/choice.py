"""The method with the fewest operations for a layer, from its geometry alone. All methods are exact.

An operation is one multiplication and addition of an ordinary weight gradient. The constants are the costs of other
work in this unit, measured on CPUs with AVX2 and AVX-512. They choose the method and never change its result.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from runner.networks.geometry import Geometry

_STORED = 4  # a number written, whose square is added before it leaves the cache, and read again for the sum
_TRANSFORMED = 18  # a number that `winograd` makes of a tile's inputs or output gradients
_TRANSFORMED_BACK = 26  # a weight's gradient, from 36 numbers


def choose(shape: Geometry, compiled: Collection[str]) -> str:
    """Return the name of the cheapest exact method for a layer.

    compiled: the compiled methods that this machine has for it.
    """
    o, c = shape.channels_out, shape.channels_in
    if shape.positions == math.prod(shape.kernel) == math.prod(shape.padded) == 1:
        return "outer"
    if "kernel" not in compiled:
        return "instantiate"
    costs = {"kernel": float(shape.positions * shape.weights + _STORED * shape.weights)}
    if "winograd" in compiled:
        numbers = 36 * shape.views * math.prod(math.ceil(size / 4) for size in shape.output)  # of a channel
        stored = (_TRANSFORMED_BACK + _STORED) * shape.weights
        costs["winograd"] = numbers * c * o + _TRANSFORMED * numbers * (c + o) + stored
    return min(costs, key=lambda method: costs[method])

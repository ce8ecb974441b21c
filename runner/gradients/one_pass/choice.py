"""The method with the fewest operations for a layer, from its geometry alone. All methods are exact.

An operation is one multiplication and addition of an ordinary weight gradient. The constants are the costs of other
work in this unit, measured on CPUs with AVX2 and AVX-512. They choose the method and never change its result.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from runner.networks.geometry import Geometry

_STORED = 16  # a number written, then read for the norm and again for the sum
_STORED_BY_KERNEL = 4  # the same by `kernel`, which takes the norm before the number leaves the cache
_ADDED = 40  # a number added from a strided block
_TRANSFORMED = 18  # a number that `winograd` makes of a tile's inputs or output gradients
_TRANSFORMED_BACK = 26  # a weight's gradient, from 36 numbers
_SMALL_PRODUCT = 1.5  # an operation of a batched product of small matrices


def choose(shape: Geometry, compiled: Collection[str], *, formed: bool = False) -> str:
    """Return the name of the cheapest exact method for a layer.

    Args:
        compiled: the compiled methods that this machine has for it: "kernel" replaces "instantiate", and "gram" for
            windows of more than one pixel.
        formed: only methods that form each example's gradient.
    """
    t, k, o, c = shape.positions, math.prod(shape.kernel), shape.channels_out, shape.channels_in
    product = t * shape.weights
    costs: dict[str, float]
    if t == 1 and k == 1 and math.prod(shape.padded) == 1:
        costs = {"outer": product + o + c}
    else:
        padded = math.prod(shape.padded)
        if "kernel" in compiled:
            costs = {"kernel": product + _STORED_BY_KERNEL * shape.weights}
        else:
            costs = {"instantiate": _SMALL_PRODUCT * product + _STORED * shape.weights}
        if "winograd" in compiled:
            numbers = 36 * shape.views * math.prod(math.ceil(size / 4) for size in shape.output)  # of a channel
            stored = (_TRANSFORMED_BACK + _STORED_BY_KERNEL) * shape.weights
            costs["winograd"] = numbers * c * o + _TRANSFORMED * numbers * (c + o) + stored
        if shape.views == 1 and not formed and (k == 1 or "kernel" not in compiled):
            costs["gram"] = product + _SMALL_PRODUCT * (padded**2 * c + t**2 * o) + _ADDED * (k + 1) * t**2
    return min(costs, key=lambda method: costs[method])

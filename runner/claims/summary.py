"""Summary statistics of several runs of one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Statistics of n values. All but n are None if n is 0. So is std if n is 1 or a value is not finite."""

    n: int
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    median: float | None = None
    max: float | None = None

    def columns(self, prefix: str) -> dict[str, float | None]:
        """Return the statistics without n as columns of a table: {prefix}_mean, {prefix}_std, ..."""
        return {f"{prefix}_{name}": getattr(self, name) for name in ("mean", "std", "min", "median", "max")}


def summarise(values: Sequence[float]) -> Summary:
    """Compute mean, standard deviation with n - 1 in the denominator, minimum, median and maximum."""
    if not values:
        return Summary(0)
    import numpy as np  # here, because every table imports this module and few need a statistic

    array = np.asarray(values, dtype=float)
    std = float(array.std(ddof=1)) if len(array) > 1 and np.isfinite(array).all() else None
    mean, low, median, high = (float(of(array)) for of in (np.mean, np.min, np.median, np.max))
    return Summary(len(array), mean, std, low, median, high)

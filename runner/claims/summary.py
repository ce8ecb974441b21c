"""The numbers that describe several runs of one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Statistics of n values; everything but n is None where n is 0, and std where n is 1 or one is not finite."""

    n: int
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    median: float | None = None
    max: float | None = None

    def columns(self, prefix: str) -> dict[str, float | None]:
        """The statistics as columns of a table, less n: {prefix}_mean, {prefix}_std, ..."""
        return {f"{prefix}_{name}": getattr(self, name) for name in ("mean", "std", "min", "median", "max")}


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation with n - 1 in the denominator, minimum, median and maximum."""
    if not values:
        return Summary(0)
    import numpy as np  # both not above: whatever shows a table imports this, and few need a statistic
    import pandas as pd

    series = pd.Series(values, dtype="float64")
    std = float(series.std(skipna=False)) if len(series) > 1 and np.isfinite(series).all() else None
    mean, low, median, high = (float(getattr(series, name)(skipna=False)) for name in ("mean", "min", "median", "max"))
    return Summary(len(series), mean, std, low, median, high)

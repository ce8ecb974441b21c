"""Summary statistics of several runs of one setting."""

from __future__ import annotations

from collections.abc import Sequence


def summarise(values: Sequence[float]) -> dict[str, float | None]:
    """Compute mean, standard deviation with n - 1 in the denominator, minimum, median and maximum.

    All are None without values. So is the standard deviation of one value, or if a value is not finite.
    """
    if not values:
        return dict.fromkeys(("mean", "std", "min", "median", "max"))
    import numpy as np  # here, because every table imports this module and few need a statistic

    array = np.asarray(values, dtype=float)
    std = float(array.std(ddof=1)) if len(array) > 1 and np.isfinite(array).all() else None
    mean, low, median, high = (float(of(array)) for of in (np.mean, np.min, np.median, np.max))
    return {"mean": mean, "std": std, "min": low, "median": median, "max": high}

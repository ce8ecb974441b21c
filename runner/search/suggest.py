"""Suggestions of Optuna: which values of searched fields are tried next, given the trials so far.

The first `draws` trials are random, the later ones come from the tree-structured Parzen estimator. Nothing is kept
between two calls, so a search goes on from its records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from runner.config import ConfigError, Dimension

Value: TypeAlias = float | str | bool
Point: TypeAlias = Mapping[str, Value]
AT_ONCE = 4  # suggestions between two looks at the trials; fixed, so that no result depends on the number of cores
_DIGITS = 3
_MOST_ASKED = 1000  # suggestions that are known already


@dataclass(frozen=True)
class Tried:
    """Values that were tried, and the accuracy on held-out images (percent)."""

    values: Point
    accuracy: float


def rounded(value: float) -> float:
    """Round a number to three significant digits."""
    return float(f"{value:.{_DIGITS}g}")


def within(dimension: Dimension, value: float) -> float:
    """Round a number, within a range."""
    return min(max(rounded(value), dimension.low), dimension.high)


def suggested(
    space: Mapping[str, Dimension | Sequence[Value]], trials: Sequence[Tried], wanted: int, draws: int
) -> list[Point]:
    """Return points to try next, none of them tried before.

    Args:
        space: by field, the range or the listed values.
        trials: the trials so far.
        wanted: the number of points.
        draws: the number of trials that are random.

    Raises:
        ConfigError: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("a search needs Optuna: pip install -e '.[search]'.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    of = {name: _distribution(values, optuna.distributions) for name, values in space.items()}
    sampler = optuna.samplers.TPESampler(seed=len(trials), n_startup_trials=draws, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in trials:
        made = optuna.trial.create_trial(params=dict(trial.values), distributions=of, value=trial.accuracy)
        study.add_trial(made)
    known, found = [dict(trial.values) for trial in trials], list[Point]()
    for _ in range(_MOST_ASKED):
        if len(found) == wanted:
            break
        asked = study.ask(of).params
        point = {name: within(s, asked[name]) if isinstance(s, Dimension) else asked[name] for name, s in space.items()}
        if point not in known:
            known.append(point)
            found.append(point)
    return found


def _distribution(values: Any, kinds: Any) -> Any:
    if isinstance(values, Dimension):
        return kinds.FloatDistribution(values.low, values.high, log=values.log)
    return kinds.CategoricalDistribution(values)

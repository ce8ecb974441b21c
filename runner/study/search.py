"""The search of a setting: which values are tried next, and which are chosen.

Everything follows from the trials that are recorded, so a study goes on where it was stopped. Listed values are tried
in all combinations if the number of trials allows it. Otherwise Optuna suggests values: at random in the first half of
the trials, which are the same for arms with the same search, then by its tree-structured Parzen estimator.

A range whose best value is at its edge is widened by one trial beyond it. All other arms on the same data set at the
same epsilon get one more trial, too, between their best value and its better neighbour. So all arms have the same
number of trials. This is repeated `MOST_WIDENED` times at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.config import ConfigError, Dimension
from runner.study.definition import Space, Value, combinations_of, grid
from runner.study.plan import rounded

MOST_WIDENED = 3
_AT_ONCE = 4  # suggestions between two looks at the trials; fixed, so that no result depends on the number of cores
_EDGE = 0.05  # of a range, at whose end a value is at the edge
_STEP = 0.25  # of a range, by which it is widened
_MOST_ASKED = 1000  # suggestions that are known already

Point = Mapping[str, Value]


@dataclass(frozen=True)
class Trial:
    """Searched values, and the accuracy on held-out images (percent)."""

    values: Point
    accuracy: float


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the most accurate trial, the first one of several."""
    return max(trials, key=lambda trial: trial.accuracy)


def next_points(space: Space, trials: Sequence[Trial], number: int | None) -> list[Point]:
    """Return what is to be tried next, before any range is widened; nothing if all trials are made.

    The trials are in the order in which they were suggested. `number`: how many are to be made; None for all
    combinations.
    """
    if not space:
        return []
    size = combinations_of(space)
    if number is None or number == size:
        return list(grid(space)[len(trials) :])
    half = math.ceil(number / 2)
    wanted = half - len(trials) if len(trials) < half else min(_AT_ONCE, number - len(trials))
    return _suggested(space, trials, wanted, half)


def _suggested(space: Space, trials: Sequence[Trial], wanted: int, draws: int) -> list[Point]:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("a search of ranges needs Optuna: pip install -e '.[search]'.") from error
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
        point = {name: s.rounded(asked[name]) if isinstance(s, Dimension) else asked[name] for name, s in space.items()}
        if point not in known:
            known.append(point)
            found.append(point)
    return found


def _distribution(values: Any, kinds: Any) -> Any:
    if isinstance(values, Dimension):
        return kinds.FloatDistribution(values.low, values.high, log=values.log)
    return kinds.CategoricalDistribution(values)


def widened(arms: Sequence[tuple[Space, Sequence[Trial]]], *, equal: bool) -> list[Point | None]:
    """Return one more trial of each arm if the best value of any of them is at an edge; else nothing for all of them.

    An arm whose values are no numbers has none. If trials need not be equal, only arms at an edge have one.
    """
    beyond = [_beyond(space, trials) for space, trials in arms]
    if not equal or not any(beyond):
        return beyond
    return [point or _between(*arm) for point, arm in zip(beyond, arms, strict=True)]


def at_edge(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """Return the value beyond the edge, by field, of each field whose best value is at the edge of what was tried."""
    best = best_of(trials).values if trials else {}
    beyond = {name: _next_beyond(space[name], _tried(name, trials), best[name]) for name in space if trials}
    return {name: value for name, value in beyond.items() if value is not None}


def _beyond(space: Space, trials: Sequence[Trial]) -> Point | None:
    first = next(iter(at_edge(space, trials).items()), None)
    return None if first is None else {**best_of(trials).values, first[0]: first[1]}


def _tried(name: str, trials: Sequence[Trial]) -> list[float]:
    """Return the numbers that were tried of a field, in order; nothing if there is another value among them."""
    values = {trial.values[name] for trial in trials}
    numbers = sorted(value for value in values if isinstance(value, float))
    return numbers if len(numbers) == len(values) else []


def _next_beyond(of: Any, tried: Sequence[float], best: Any) -> float | None:
    """Return the value beyond the edge at which the best one is, or None if it is at none."""
    if len(tried) < 2 or best not in (tried[0], tried[-1]):
        return None
    if isinstance(of, Dimension):
        there, back = _scale(of.log)
        width = there(of.high) - there(of.low)
        end, step = (of.low, -_STEP * width) if best == tried[0] else (of.high, _STEP * width)
        if (there(best) - there(end)) * step < -_EDGE * width * abs(step):
            return None  # inside
        return rounded(back(there(best) + step))
    neighbour = tried[1] if best == tried[0] else tried[-2]
    there, back = _scale(tried[0] > 0)
    return rounded(back(2 * there(best) - there(neighbour)))


def _between(space: Space, trials: Sequence[Trial]) -> Point | None:
    """Return the point between the best value of the first field of numbers and its better neighbour."""
    best = best_of(trials) if trials else None
    for name in space:
        tried = _tried(name, trials)
        if best is None or len(tried) < 2:
            continue
        place = tried.index(float(best.values[name]))
        near = [tried[at] for at in (place - 1, place + 1) if 0 <= at < len(tried)]
        accuracy = {value: max(t.accuracy for t in trials if t.values[name] == value) for value in near}
        there, back = _scale(tried[0] > 0)
        for neighbour in sorted(near, key=lambda value: -accuracy[value]):
            point = {**best.values, name: rounded(back((there(tried[place]) + there(neighbour)) / 2))}
            if point not in [dict(trial.values) for trial in trials]:
                return point
    return None


def _scale(log: bool) -> tuple[Any, Any]:
    return (math.log, math.exp) if log else (float, float)

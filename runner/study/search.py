"""The search of a setting: which values are tried next, and which values are chosen.

Everything follows from the trials that are recorded, so a study goes on where it was stopped. Listed values are tried
in all combinations if the number of trials allows it. Otherwise a sampler of Optuna suggests values, `_AT_ONCE` at a
time: at random in the first half of the trials, which are the same for arms with the same search, then by the trials
before. The tree-structured Parzen estimator and the Gaussian process are Bayesian. `random` never looks at trials, and
a generation of NSGA-II is a quarter of the trials.

The value of a trial is the accuracy after its last epoch within epsilon. For a front it is the mean, over epsilons from
0 to the largest of the study, of the best accuracy that the trial has reached within each. This is the area below its
own front. A trial that `runner.study.pruning` stopped has the value that it had then.

A range whose best value is at its edge is widened by one trial beyond it. All other arms on the same data set at the
same epsilon get one more trial, too, between their best value and its better neighbour. So all arms have the same
number of trials. This is repeated `MOST_WIDENED` times at most.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.config import ConfigError
from runner.study.definition import SEARCH_SEED, Dimension, Space, Value, combinations_of, grid
from runner.study.plan import rounded

MOST_WIDENED = 3
_AT_ONCE = 4  # suggestions between two looks at the trials; fixed, so that no result depends on the number of cores
_EDGE = 0.05  # of a range, at whose end a value is at the edge
_STEP = 0.25  # of a range, by which it is widened
_MOST_ASKED = 200  # suggestions that are known already

Point = Mapping[str, Value]


@dataclass(frozen=True)
class Trial:
    """Searched values, and the accuracy on held-out images (percent).

    Attributes:
        stopped: the number of epochs after which it was stopped, if its accuracy within epsilon could still change.
    """

    values: Point
    accuracy: float
    stopped: int | None = None


def best_of(trials: Sequence[Trial]) -> Trial:
    """Return the most accurate trial that was not stopped, the first one of several."""
    return max([trial for trial in trials if not trial.stopped] or trials, key=lambda trial: trial.accuracy)


def suggestions(
    space: Space, number: int | None, sampler: str = "tpe", *, prune: bool = False
) -> Generator[list[Point], Sequence[float], None]:
    """Yield what is to be tried next, before any range is widened, and be sent its values; nothing is yielded last.

    `number`: how many trials are to be made; None for all combinations.

    >>> rounds = suggestions({"optimizer.lr": (0.5, 1.0)}, None)
    >>> next(rounds)
    [{'optimizer.lr': 0.5}, {'optimizer.lr': 1.0}]
    >>> rounds.send([80.0, 81.0])
    []
    """
    if space and number in (None, combinations_of(space)):
        points: list[Point] = list(grid(space))
        step = _AT_ONCE if prune else len(points)
        for start in range(0, len(points), step):
            yield points[start : start + step]
    elif space and number is not None:
        yield from _suggested(space, number, sampler, prune)
    yield []


def _suggested(space: Space, number: int, sampler: str, prune: bool) -> Generator[list[Point], Sequence[float], None]:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("a search of ranges needs Optuna: pip install -e '.[search]'.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=_sampler(sampler, number))
    ranges: dict[str, Any] = {}
    for name, values in space.items():
        if not isinstance(values, Dimension):
            ranges[name] = optuna.distributions.CategoricalDistribution(values)
        elif values.integer:
            ranges[name] = optuna.distributions.IntDistribution(int(values.low), int(values.high), log=values.log)
        else:
            ranges[name] = optuna.distributions.FloatDistribution(values.low, values.high, log=values.log)
    tried, draws = list[Point](), math.ceil(number / 2)
    for _ in range(number):  # rounds
        first = len(tried) < draws and not prune
        wanted = draws - len(tried) if first else min(_AT_ONCE, number - len(tried))
        points, running = list[Point](), []
        for _ in range(_MOST_ASKED):
            if len(points) == wanted:
                break
            trial = study.ask(ranges)
            point = {
                name: kind.rounded(value) if isinstance(kind := space[name], Dimension) else value
                for name, value in trial.params.items()
            }
            if point in tried:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)  # which no sampler learns from
                continue
            tried.append(point)
            points.append(point)
            running.append(trial)
        if not points:
            return
        worths = yield points
        for trial, value in zip(running, worths, strict=True):
            study.tell(trial, value)


def _sampler(name: str, trials: int) -> Any:
    """Return a sampler that makes the same suggestions after the same trials."""
    import optuna

    half, seed = math.ceil(trials / 2), SEARCH_SEED
    with warnings.catch_warnings():  # some options of Optuna are experimental
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == "gp":
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=half)
        if name == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        if name == "nsga-ii":
            return optuna.samplers.NSGAIISampler(seed=seed, population_size=max(2, trials // 4))
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=half, constant_liar=True)


def widened(arms: Sequence[tuple[Space, Sequence[Trial]]], *, equal: bool) -> list[Point | None]:
    """Return one more trial of each arm if the best value of any of them is at an edge; else nothing for all of them.

    An arm whose values are no numbers has none. If trials need not be equal, only arms at an edge have one.
    """
    beyond: list[Point | None] = []
    for space, trials in arms:
        edges = [*edges_reached(space, trials).items()]
        beyond.append({**best_of(trials).values, **dict(edges[:1])} if edges else None)
    if not equal or not any(beyond):
        return beyond
    return [point or _between(*arm) for point, arm in zip(beyond, arms, strict=True)]


def edges_reached(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """Return the value beyond the edge, by field, of each field whose best value is at the edge of what was tried."""
    best = best_of(trials).values if trials else {}
    beyond = {name: _next_beyond(space[name], _tried(name, trials), best[name]) for name in space if trials}
    return {name: value for name, value in beyond.items() if value is not None}


def _tried(name: str, trials: Sequence[Trial]) -> list[float]:
    """Return the numbers that were tried of a field, in order; nothing if there is another value among them."""
    values = {trial.values[name] for trial in trials}
    numbers = sorted(value for value in values if isinstance(value, float))
    return numbers if len(numbers) == len(values) else []


def _next_beyond(values: Any, tried: Sequence[float], best: Any) -> float | None:
    """Return the value beyond the edge at which the best one is, or None if it is at none."""
    if len(tried) < 2 or best not in (tried[0], tried[-1]):
        return None
    if isinstance(values, Dimension):
        scale, unscale = _scale(values.log)
        width = scale(values.high) - scale(values.low)
        end, step = (values.low, -_STEP * width) if best == tried[0] else (values.high, _STEP * width)
        if (scale(best) - scale(end)) * step < -_EDGE * width * abs(step):
            return None  # inside
        beyond = rounded(unscale(scale(best) + step))
        return float(round(beyond)) if values.integer else beyond
    neighbour = tried[1] if best == tried[0] else tried[-2]
    scale, unscale = _scale(tried[0] > 0)
    return rounded(unscale(2 * scale(best) - scale(neighbour)))


def _between(space: Space, trials: Sequence[Trial]) -> Point | None:
    """Return the point between the best value of the first field of numbers and its better neighbour."""
    best = best_of(trials) if trials else None
    for name in space:
        tried = _tried(name, trials)
        if best is None or len(tried) < 2:
            continue
        place = tried.index(float(best.values[name]))
        near = [*tried[max(0, place - 1) : place], *tried[place + 1 : place + 2]]
        accuracy = {value: max(t.accuracy for t in trials if t.values[name] == value) for value in near}
        scale, unscale = _scale(tried[0] > 0)
        for neighbour in sorted(near, key=lambda value: -accuracy[value]):
            point = {**best.values, name: rounded(unscale((scale(tried[place]) + scale(neighbour)) / 2))}
            if point not in [dict(trial.values) for trial in trials]:
                return point
    return None


def _scale(log: bool) -> tuple[Any, Any]:
    return (math.log, math.exp) if log else (float, float)

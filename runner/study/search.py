"""The search of a setting: which values are tried next, and which values are chosen.

Everything follows from the trials that are recorded, so a study goes on where it was stopped. Listed values are tried
in all combinations if the number of trials allows it. Otherwise a sampler of Optuna suggests values, `_AT_ONCE` at a
time. docs/extending.md explains the samplers.

The value of a trial is the accuracy after its last epoch within epsilon. For a front it is the mean, over epsilons from
0 to the largest of the study, of the best accuracy that the trial has reached within each. This is the area below its
own front. A trial that Hyperband stopped has the value that it had then.

A range whose best value is at its edge is widened by one trial beyond it. All other arms on the same data set at the
same epsilon get one more trial, too, between their best value and its better neighbour. So all arms have the same
number of trials. This is repeated `MOST_WIDENED` times at most.

Hyperband (Li et al., 2018) stops trials that fall behind. At a rung, a trial goes on if it is among the best third of
the trials of its bracket that have come so far. A rung is a share of a trial's own epochs, so trials with different
numbers of epochs are compared at the same share of their budgets. A trial is compared only with trials that were
suggested in earlier rounds. So no decision depends on the number of processes, and a recorded trial is judged again as
it was when it ran.
"""

import math
import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from runner.claims.intervals import pareto
from runner.config import ConfigError
from runner.records.disk import rounded, upper_bound
from runner.study.definition import SEARCH_SEED, Dimension, Space, Value, combinations_of, three_digits

MOST_WIDENED = 3
_AT_ONCE = 4  # suggestions between two looks at the trials; fixed, so that no result depends on the number of cores
_EDGE = 0.05  # of a range, at whose end a value is at the edge
_STEP = 0.25  # of a range, by which it is widened
_MOST_ASKED = 200  # suggestions that are known already
ETA = 3  # one trial in three goes on at each rung

Row = Mapping[str, Any]  # of a run's history

Point = Mapping[str, Value]


@dataclass(frozen=True)
class Trial:
    """Searched values, and the accuracy on held-out images (percent)."""

    values: Point
    accuracy: float
    stopped: int | None = None  # the epochs after which it was stopped, if its accuracy within epsilon could change


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
        listed: Any = space.values()  # no range is among them
        points: list[Point] = [dict(zip(space, values, strict=True)) for values in product(*listed)]
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
    study = optuna.create_study(direction="maximize", sampler=_sampler(optuna, sampler, number))
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


def _sampler(optuna: Any, name: str, trials: int) -> Any:
    """Return a sampler that makes the same suggestions after the same trials."""
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
    beyond: dict[str, float] = {}
    for name, values in space.items() if trials else ():
        tried, best = _tried(name, trials), best_of(trials).values[name]
        if len(tried) < 2 or not isinstance(best, float) or best not in (tried[0], tried[-1]):
            continue
        if isinstance(values, Dimension):
            scale, unscale = _scale(values.log)
            width = scale(values.high) - scale(values.low)
            end, step = (values.low, -_STEP * width) if best == tried[0] else (values.high, _STEP * width)
            if (scale(best) - scale(end)) * step < -_EDGE * width * abs(step):
                continue  # inside
            value = three_digits(unscale(scale(best) + step))
            beyond[name] = float(round(value)) if values.integer else value
        else:
            scale, unscale = _scale(tried[0] > 0)
            neighbour = tried[1] if best == tried[0] else tried[-2]
            beyond[name] = three_digits(unscale(2 * scale(best) - scale(neighbour)))
    return beyond


def _tried(name: str, trials: Sequence[Trial]) -> list[float]:
    """Return the numbers that were tried of a field, in order; nothing if there is another value among them."""
    values = {trial.values[name] for trial in trials}
    numbers = sorted(value for value in values if isinstance(value, float))
    return numbers if len(numbers) == len(values) else []


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
            point = {**best.values, name: three_digits(unscale((scale(tried[place]) + scale(neighbour)) / 2))}
            if point not in [dict(trial.values) for trial in trials]:
                return point
    return None


def _scale(log: bool) -> tuple[Any, Any]:
    return (math.log, math.exp) if log else (float, float)


@dataclass(frozen=True)
class Curve:
    """Sound epsilons and accuracies (percent) of the first epochs of a trial, and the number of all its epochs."""

    epsilons: tuple[float, ...]
    accuracies: tuple[float, ...]
    epochs: int

    @classmethod
    def of(cls, rows: Sequence[Row], epochs: int) -> "Curve":
        """Return the curve of a history, with the digits that a record has."""
        recorded = [rounded({name: row.get(name) for name in ("epsilon_sound", "test_accuracy")}) for row in rows]
        epsilons = tuple(upper_bound(row["epsilon_sound"]) for row in recorded)
        return cls(epsilons, tuple(float(row["test_accuracy"]) for row in recorded), epochs)

    def until(self, epoch: int) -> "Curve":
        return Curve(self.epsilons[:epoch], self.accuracies[:epoch], self.epochs)

    def accuracy_within(self, epsilon: float) -> float:
        """Return the accuracy after the last epoch within a sound epsilon, 0 if there is none."""
        pairs = zip(self.epsilons, self.accuracies, strict=True)
        return next((accuracy for spent, accuracy in reversed(list(pairs)) if spent <= epsilon), 0.0)

    def area(self, limit: float) -> float:
        """Return the mean of the best accuracy within epsilon, over epsilons from 0 to the limit (percent).

        It is the share of the hypervolume below the trial's own front.

        >>> Curve((1.0, 2.0, 5.0), (60.0, 90.0, 99.0), 3).area(4.0)  # (0 + 60 + 90 + 90) / 4
        60.0
        """
        front = [point for point in pareto([(self.epsilons, self.accuracies)]) if point[0] <= limit]
        steps = pairwise([*front, (limit, 0.0)])
        return sum(accuracy * (end - start) for (start, accuracy), (end, _) in steps) / limit


@dataclass(frozen=True)
class Judge:
    """Decides after each epoch whether a trial goes on: see `Job.goes_on`."""

    limit: float  # a sound epsilon beyond which no epoch counts
    front: bool  # whether a trial is worth the area below its front, instead of its accuracy within the limit
    epochs: int  # of the whole trial
    rungs: tuple[tuple[int, tuple[float, ...]], ...] = ()  # epochs of comparison, with the worth of earlier trials

    def worth(self, curve: Curve) -> float:
        """Return the value of a trial so far, which is to be as large as possible."""
        return curve.area(self.limit) if self.front else curve.accuracy_within(self.limit)

    def beyond(self, curve: Curve) -> bool:
        """Return True if later epochs cannot count."""
        return curve.epsilons[-1] > self.limit

    def __call__(self, rows: Sequence[Row]) -> bool:
        return self.stays(Curve.of(rows, self.epochs))

    def stays(self, curve: Curve) -> bool:
        """Return whether a trial goes on after the epochs of a curve."""
        if self.beyond(curve):
            return False
        worth, epoch = self.worth(curve), len(curve.epsilons)
        compared = [earlier for rung, earlier in self.rungs if rung == epoch < self.epochs]
        return all(sum(other > worth for other in e) < max(1, (len(e) + 1) // ETA) for e in compared)

    def stopped(self, curve: Curve) -> bool:
        """Return True if the trial with this curve was stopped as it fell behind."""
        return not self.beyond(curve) and not self.stays(curve)

    def after(self, earlier: Sequence[Curve], number: int, most: int) -> "Judge":
        """Return the judge of trial `number`, from 0, after the earlier trials.

        `most` is the number of epochs of the longest trial. With 0, nothing is compared.
        """
        if not most:
            return self
        bracket, rungs = bracket_of(number, most), []
        curves = [curve for place, curve in enumerate(earlier) if bracket_of(place, most) == bracket]
        for rung in (ETA**power for power in range(bracket, _brackets(most)) if ETA**power < most):
            ends = [(_epoch(rung, curve.epochs, most), curve) for curve in curves]
            reached = [curve.until(end) for end, curve in ends if len(curve.epsilons) >= end or self.beyond(curve)]
            rungs.append((_epoch(rung, self.epochs, most), tuple(map(self.worth, reached))))
        return Judge(self.limit, self.front, self.epochs, tuple(rungs))


def bracket_of(number: int, most: int) -> int:
    """Return the bracket of a trial, whose first rung is after `ETA**bracket` of at most `most` epochs.

    Brackets take turns in the numbers of trials that Hyperband gives them, those that stop trials early first.

    >>> [bracket_of(number, 9) for number in range(18)]
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 0]
    """
    count = _brackets(most)
    sizes = [math.ceil(count * ETA ** (count - 1 - place) / (count - place)) for place in range(count)]
    turns = [place for place, size in enumerate(sizes) for _ in range(size)]
    return turns[number % len(turns)]


def _brackets(most: int) -> int:
    return next(power for power in range(most + 1) if ETA ** (power + 1) > most) + 1


def _epoch(rung: int, epochs: int, most: int) -> int:
    return math.ceil(rung * epochs / most)

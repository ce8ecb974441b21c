"""The search of a study: equal and equally drawn trials, and ranges that are widened."""

from __future__ import annotations

import math

import pytest

from runner.study.definition import SAMPLERS, Dimension
from runner.study.search import MOST_WIDENED, Trial, best_of, edges_reached, suggestions, widened

RATES = {"optimizer.lr": (0.5, 1.0, 2.0)}
RANGE = {"optimizer.lr": Dimension(0.1, 10.0, log=True)}


def tried(space, best: float, number: int | None = None, sampler: str = "tpe", **how) -> list[Trial]:
    """Carry out a search whose accuracy falls with the distance of each value from the best one, in magnitudes."""
    trials: list[Trial] = []
    rounds = suggestions(space, number, sampler, **how)
    points = next(rounds)
    while points:
        round_trials = [Trial(p, 90 - sum(abs(math.log(value / best)) for value in p.values())) for p in points]
        trials += round_trials
        points = rounds.send([trial.accuracy for trial in round_trials])
    return trials


def test_listed_values_are_tried_in_all_combinations_and_once() -> None:
    rounds = suggestions({**RATES, "clipping.norm": (0.1, 1.0)}, None)
    points = next(rounds)
    assert len(points) == len({tuple(point.values()) for point in points}) == 6
    assert rounds.send([1.0] * 6) == []
    assert next(suggestions({}, None)) == next(suggestions({}, 4)) == []


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_arms_begin_with_the_same_draws_and_end_near_the_best(sampler: str) -> None:
    space = RANGE if sampler != "nsga-ii" else {**RANGE, "clipping.norm": RANGE["optimizer.lr"]}  # it has to cross
    low, high = tried(space, 0.2, 24, sampler), tried(space, 5.0, 24, sampler)
    assert len(low) == len(high) == len({tuple(t.values.values()) for t in low}) == 24
    assert [t.values for t in low[:12]] == [t.values for t in high[:12]]
    assert ([t.values for t in low] == [t.values for t in high]) is (sampler == "random")
    for trials, best in ((low, 0.2), (high, 5.0)):
        assert all(0.1 <= t.values["optimizer.lr"] <= 10 for t in trials)
        if sampler in ("tpe", "gp"):
            assert best_of(trials).values["optimizer.lr"] == pytest.approx(best, rel=0.2)
    assert tried(space, 0.2, 24, sampler) == low, "a search that is stopped goes on as it would have"


def test_whole_numbers_and_uniform_ranges() -> None:
    space = {"optimizer.lr": Dimension(1.0, 9.0, integer=True)}
    numbers = [t.values["optimizer.lr"] for t in tried(space, 3.0, 5)]
    assert all(number in range(1, 10) and isinstance(number, float) for number in numbers)
    assert len(set(numbers)) == 5
    uniform = tried({"optimizer.lr": Dimension(1, 1000, log=False)}, 1.0, 20, "random")
    values = [t.values["optimizer.lr"] for t in uniform]
    assert 300 < sum(values) / 20 < 700
    assert all(value == float(f"{value:.3g}") for value in values)


def test_with_hyperband_rounds_are_small_from_the_start() -> None:
    assert [len(next(suggestions(RANGE, 24, prune=prune))) for prune in (False, True)] == [12, 4]
    assert [len(next(suggestions({"optimizer.lr": tuple(range(9))}, None, prune=p))) for p in (False, True)] == [9, 4]


def test_a_stopped_trial_is_not_chosen() -> None:
    stopped, complete = Trial({"optimizer.lr": 1.0}, 95.0, stopped=3), Trial({"optimizer.lr": 2.0}, 90.0)
    assert best_of([stopped, complete]) is complete


def test_fewer_trials_than_combinations_are_different_ones() -> None:
    space = {"optimizer.lr": tuple(float(n) for n in range(1, 11))}
    trials = tried(space, 3.0, 8)
    assert len({t.values["optimizer.lr"] for t in trials}) == 8


@pytest.mark.parametrize(("best", "beyond"), [(0.1, 0.25), (9.0, 4.0), (1.0, None)])
def test_a_best_value_at_the_edge_gets_the_next_one_beyond(best: float, beyond: float | None) -> None:
    trials = tried(RATES, best)
    assert widened([(RATES, trials)], equal=True) == [beyond and {"optimizer.lr": beyond}]
    assert edges_reached(RATES, trials) == ({"optimizer.lr": beyond} if beyond else {})


def test_all_arms_get_one_trial_more_if_one_is_at_the_edge() -> None:
    """The other is best at 1, and better at 2 than at 0.5: the next is at the square root of 2."""
    arms = [(RATES, tried(RATES, 9.0)), (RATES, tried(RATES, 1.2))]
    points = widened(arms, equal=True)
    assert points == [{"optimizer.lr": 4.0}, {"optimizer.lr": 1.41}]
    assert widened(arms, equal=False) == [{"optimizer.lr": 4.0}, None]
    for _ in range(MOST_WIDENED - 1):
        for (_, trials), point in zip(arms, points, strict=True):
            trials.append(Trial(point, 90 - abs(math.log(point["optimizer.lr"] / 9.0))))
        points = widened(arms, equal=True)
        assert all(points)
    assert len(arms[0][1]) == len(arms[1][1]) == 5


def test_a_range_is_widened_near_its_end_only() -> None:
    """It covers two magnitudes: a quarter more is half a magnitude, from 9.5 to 30."""
    inside = [Trial({"optimizer.lr": rate}, accuracy) for rate, accuracy in ((0.3, 80.0), (6.0, 90.0))]
    outside = [*inside, Trial({"optimizer.lr": 9.5}, 91.0)]
    assert widened([(RANGE, inside)], equal=True) == [None]
    assert widened([(RANGE, outside)], equal=True) == [{"optimizer.lr": 30.0}]


def test_values_that_are_no_numbers_have_no_edge() -> None:
    trials = [Trial({"clipping.norm": value}, accuracy) for value, accuracy in (("a", 1.0), ("b", 2.0))]
    assert widened([({"clipping.norm": ("a", "b")}, trials)], equal=True) == [None]

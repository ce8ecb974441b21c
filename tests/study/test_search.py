"""The search of a study: equal and equally drawn trials, ranges that are widened, and what Hyperband stops."""

import math
import pickle
import random

import optuna
import pytest

from runner.study.definition import SAMPLERS, Dimension
from runner.study.search import (
    MOST_WIDENED,
    Curve,
    Judge,
    Trial,
    best_of,
    bracket_of,
    edges_reached,
    suggestions,
    widened,
)

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
    fewer = tried({"optimizer.lr": tuple(float(n) for n in range(1, 11))}, 3.0, 8)
    assert len({trial.values["optimizer.lr"] for trial in fewer}) == 8


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_arms_begin_with_the_same_draws_and_end_near_the_best(sampler: str) -> None:
    space = RANGE if sampler != "nsga-ii" else {**RANGE, "clipping.norm": RANGE["optimizer.lr"]}  # it has to cross
    low, high = tried(space, 0.2, 16, sampler), tried(space, 5.0, 16, sampler)
    assert len(low) == len(high) == len({tuple(t.values.values()) for t in low}) == 16
    assert [t.values for t in low[:8]] == [t.values for t in high[:8]]
    assert ([t.values for t in low] == [t.values for t in high]) is (sampler == "random")
    for trials, best in ((low, 0.2), (high, 5.0)):
        assert all(0.1 <= t.values["optimizer.lr"] <= 10 for t in trials)
        if sampler in ("tpe", "gp"):
            assert best_of(trials).values["optimizer.lr"] == pytest.approx(best, rel=0.2)
    assert tried(space, 0.2, 16, sampler) == low, "a search that is stopped goes on as it would have"


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
    """It covers two magnitudes: a quarter more is half a magnitude, from 9.5 to 30. A stopped trial is not chosen."""
    inside = [Trial({"optimizer.lr": rate}, accuracy) for rate, accuracy in ((0.3, 80.0), (6.0, 90.0))]
    outside = [*inside, Trial({"optimizer.lr": 9.5}, 91.0)]
    stopped = [*inside, Trial({"optimizer.lr": 9.5}, 91.0, stopped=3)]
    assert widened([(RANGE, inside)], equal=True) == widened([(RANGE, stopped)], equal=True) == [None]
    assert widened([(RANGE, outside)], equal=True) == [{"optimizer.lr": 30.0}]
    words = [Trial({"clipping.norm": value}, accuracy) for value, accuracy in (("a", 1.0), ("b", 2.0))]
    assert widened([({"clipping.norm": ("a", "b")}, words)], equal=True) == [None], "no numbers have no edge"


def curve(accuracies: list[float], epsilons: list[float] | None = None, epochs: int = 9) -> Curve:
    return Curve(tuple(epsilons or [0.1] * len(accuracies)), tuple(accuracies), epochs)


def rows(accuracies: list[float]) -> list[dict[str, float]]:
    return [{"epoch": e, "epsilon_sound": 0.1, "test_accuracy": a} for e, a in enumerate(accuracies, 1)]


def test_a_trials_worth_is_its_accuracy_or_the_area_of_its_front() -> None:
    """By hand, to ε = 4: nothing until 1, 60 until 2, 90 until 4; the fall to 50 is no part of a front."""
    trial = curve([60.0, 90.0, 50.0, 99.0], [1.0, 2.0, 3.0, 4.5])
    assert Judge(4.0, True, 9).worth(trial) == pytest.approx((0 + 60 + 90 + 90) / 4)
    assert Judge(4.0, False, 9).worth(trial) == 50.0
    assert Judge(0.5, True, 9).worth(trial) == Judge(0.5, False, 9).worth(trial) == 0.0


@pytest.mark.parametrize("front", [False, True])
def test_successive_halving_stops_what_that_of_optuna_stops(front: bool) -> None:
    """Trials of the bracket whose first rung is after three epochs, one after another."""
    draws, study = random.Random(3), optuna.create_study(direction="maximize")
    study.pruner = optuna.pruners.SuccessiveHalvingPruner(1, reduction_factor=3, min_early_stopping_rate=1)
    numbers = [number for number in range(200) if bracket_of(number, 27) == 1][:40]
    earlier, answers = {number: curve([0.0], epochs=27) for number in range(200)}, []
    for number in numbers:
        accuracies, trial = [draws.uniform(0, 100)], study.ask()
        for epoch in range(1, 27):
            judge = Judge(1.0, front, 27).after([earlier[place] for place in range(number)], number, 27)
            stays = judge.stays(curve(accuracies, epochs=27))
            trial.report(judge.worth(curve(accuracies, epochs=27)), epoch)
            assert stays is not trial.should_prune()
            if not stays:
                break
            accuracies.append(draws.uniform(0, 100))
        earlier[number] = curve(accuracies, epochs=27)
        study.tell(trial, accuracies[-1])
        answers.append(stays)
    assert True in answers
    assert answers.count(False) > 20


def test_brackets_have_the_shares_of_hyperband() -> None:
    """R = 81, η = 3: 81, 34, 15, 8 and 5 trials, as in table 1 of Li et al. (2018)."""
    turns = [bracket_of(number, 81) for number in range(143)]
    assert [turns.count(bracket) for bracket in range(5)] == [81, 34, 15, 8, 5]
    assert [bracket_of(number, 1) for number in range(3)] == [0, 0, 0]


def test_trials_are_compared_after_equal_shares_of_their_epochs() -> None:
    """The rung at 3 of 9 epochs is after the second of 6; the last epoch is compared with nothing."""
    judge = Judge(3.0, False, 6).after([curve([0, 0, 80.0], epochs=9), curve([0, 70.0], epochs=6)], 2, 9)
    assert judge.rungs == ((1, (0.0, 0.0)), (2, (80.0, 70.0)))
    assert not judge.stays(curve([1.0, 79.0], epochs=6))
    assert judge.stays(curve([1.0, 81.0], epochs=6))
    assert Judge(3.0, False, 1, ((1, (99.0,)),)).stays(curve([1.0], epochs=1))


def test_a_trial_ends_when_no_later_epoch_can_count() -> None:
    judge = Judge(3.0, True, 9)
    ended = curve([60.0, 70.0], [2.0, 3.1])
    assert not judge.stays(ended)
    assert not judge.stopped(ended), "it did not fall behind"
    assert not judge.stays(curve([60.0], [math.inf])), "nothing is guaranteed"
    assert judge.after([ended], 1, 9).rungs[1][1] == (judge.worth(ended),), "it is compared at later rungs, too"


def test_a_judge_rounds_as_records_do_and_can_be_sent() -> None:
    """70.00004 is 70.000 in a record, so it is no better than that; a trial judged again from its record ends alike."""
    judge = pickle.loads(pickle.dumps(Judge(3.0, False, 9, ((1, (70.0, 70.0)),))))
    assert judge(rows([69.99996]))
    assert not judge(rows([69.99]))
    assert not judge([{"epoch": 1, "epsilon_sound": None, "test_accuracy": 99.0}])

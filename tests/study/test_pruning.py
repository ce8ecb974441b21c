"""What a trial is worth, and which trials Hyperband stops: the same as Optuna's successive halving does."""

from __future__ import annotations

import math
import pickle
import random

import optuna
import pytest

from runner.study.search import Curve, Judge, bracket_of


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

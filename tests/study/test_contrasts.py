"""Paired gains: by hand, against SciPy, and their error rates in simulated studies."""

import math
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from runner.study.outcome import (
    ALL,
    LEFT,
    LESS,
    SUM,
    Effect,
    cells_alone,
    errors_left,
    estimate,
    holm,
    weights_of,
    weights_of_sums,
)
from runner.study.page import _sums

ERROR = 0.05  # the probability of any wrong word
GAIN = {"arm": 1.0, "first": -1.0}


def gain_of(arm, first):
    return estimate({"arm": dict(enumerate(arm)), "first": dict(enumerate(first))}, GAIN)


def test_p_value_and_interval_match_the_paired_t_test() -> None:
    random = np.random.default_rng(0)
    arm, first = random.normal(82, 0.5, 5), random.normal(81, 0.3, 5)
    contrast, theirs = gain_of(arm, first), stats.ttest_rel(arm, first)
    assert contrast.p == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval(0.95)
    assert (contrast.interval.low, contrast.interval.high) == pytest.approx((interval.low, interval.high))


def test_without_a_spread_nothing_is_decided() -> None:
    for arm in ([82.0], [82.0, 82.0]):
        contrast = gain_of(arm, [81.0] * len(arm))
        assert (contrast.p, contrast.seeds_to_decide(1)) == (1.0, None)


def test_sums_of_seeds_that_agree_decide_nothing() -> None:
    """Two seeds with the same gains, as a small test set has: no interval is shown, in no column."""
    cells = {(): 80.0, ("a",): 81.0, ("b",): 81.0, ("a", "b"): 81.5}
    accuracies = {("a" in cell, "b" in cell): {1: value, 2: value} for cell, value in cells.items()}
    sums = {name: estimate(accuracies, weights) for name, weights in weights_of_sums(2).items()}
    sums[LEFT] = errors_left(accuracies, 2)
    study: Any = SimpleNamespace(arms=[SimpleNamespace(name="plain")])
    (row,) = _sums(study, [Effect(("MNIST", "3"), name, contrast) for name, contrast in sums.items()]).rows
    assert row == ["MNIST", "3", "+2.00", "+1.50", "−0.50", "seeds that all agree cannot tell", "1.02"]


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.02, 0.03, 0.4 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.4, never falling."""
    assert holm([0.4, 0.01, 0.03, 0.02]) == pytest.approx([0.4, 0.04, 0.06, 0.06])
    assert holm([]) == []
    assert holm([0.7, 0.9]) == [1.0, 1.0]


def test_the_number_of_seeds_has_the_stated_power() -> None:
    """A true gain of one standard deviation of the differences, at 5%: ten seeds have a power of 80.3%, nine 75.0%."""
    differences = [1.0 - math.sqrt(0.5), 1.0 + math.sqrt(0.5)]  # mean 1, standard deviation 1
    assert gain_of(differences, [0.0, 0.0]).seeds_to_decide(1) == 10
    draws = np.random.default_rng(0).normal(1.0, 1.0, (20_000, 10))
    power = (stats.ttest_1samp(draws, 0.0, axis=1).pvalue <= ERROR).mean()
    assert power == pytest.approx(0.803, abs=0.01)
    assert gain_of(differences, [0.0, 0.0]).seeds_to_decide(10) > 10
    assert gain_of([1e-4, -1e-4, 1e-9], [0.0] * 3).seeds_to_decide(1) is None


def test_error_rates_in_simulated_studies() -> None:
    """Four arms of equal accuracy, of five seeds each; each arm stands at the best of five rates by a noisy trial.

    Seeds that are luckier in all arms, and arms of different spreads, change no rate. Any wrong word: at most 5% with
    Holm's correction, 12% without. An arm that is better by three points is found, and the others' error stays.
    """
    random, studies = np.random.default_rng(2), 1000
    wrong = {"holm": 0, "uncorrected": 0, "one true": 0}
    held = found_better = 0
    for _ in range(studies):
        luck = random.normal(0, 0.5, 5)
        rates = random.normal(90, 0.01, (4, 5))  # true accuracies at five rates, nearly equal
        chosen = [int(np.argmax(accuracies + random.normal(0, 0.5, 5))) for accuracies in rates]
        arms = [
            accuracies[rate] + luck + random.normal(0, spread, 5)
            for accuracies, rate, spread in zip(rates, chosen, (0.3, 0.3, 0.6, 1.0), strict=True)
        ]
        gains = [gain_of(arm, arms[0]) for arm in arms[1:]]
        wrong["holm"] += min(holm([gain.p for gain in gains])) <= ERROR
        wrong["uncorrected"] += min(gain.p for gain in gains) <= ERROR
        held += gains[0].interval.low <= 0 <= gains[0].interval.high
        better = [gain_of(arms[1] + 3, arms[0]), *gains[1:]]
        adjusted = holm([gain.p for gain in better])
        found_better += adjusted[0] <= ERROR
        wrong["one true"] += min(adjusted[1:]) <= ERROR
    assert held / studies == pytest.approx(0.95, abs=0.015)
    assert wrong["holm"] / studies <= 0.05 + 0.01
    assert 0.09 < wrong["uncorrected"] / studies < 0.15
    assert wrong["one true"] / studies <= 0.05 + 0.01
    assert found_better / studies > 0.95


def test_effects_of_a_factorial_of_two_parts_by_hand() -> None:
    """80 with none, 82 and 83 with one, 88 with both: effects (85 - 81.5), (85.5 - 81), interaction (5 - 2) / 2."""
    cells = {(False, False): 80.0, (True, False): 82.0, (False, True): 83.0, (True, True): 88.0}
    runs = {cell: {0: value} for cell, value in cells.items()}
    values = [estimate(runs, weights_of(places, 2)).value for places in ((0,), (1,), (0, 1))]
    assert values == pytest.approx([3.5, 4.5, 1.5])
    assert [estimate(runs, weights_of_sums(2)[name]).value for name in (LESS, SUM, ALL)] == pytest.approx([3, 5, 8])


GAINS = (2.0, 0.5, -0.25, 4.0)
CELLS = list(product((False, True), repeat=4))
ALONE = cells_alone(4)


def test_parts_that_add_up_have_their_own_gains_and_nothing_else() -> None:
    exact = {cell: {0: 80 + sum(gain for gain, new in zip(GAINS, cell, strict=True) if new)} for cell in CELLS}
    for place, gain in enumerate(GAINS):
        for weights in (weights_of([place], 4), {ALONE[place]: 1.0, CELLS[0]: -1.0}):
            assert estimate(exact, weights).value == pytest.approx(gain)
    pairs_and_more = [places for size in (2, 3, 4) for places in combinations(range(4), size)]
    assert [estimate(exact, weights_of(places, 4)).value for places in pairs_and_more] == pytest.approx([0.0] * 11)
    assert [estimate(exact, weights_of_sums(4)[name]).value for name in (ALL, LESS)] == pytest.approx([6.25, 0])


def test_only_seeds_that_all_cells_have_count() -> None:
    cells = {CELLS[0]: {0: 80.0, 1: 81.0, 3: 79.0}, ALONE[0]: {3: 82.0, 1: 85.0, 2: 0.0}}
    contrast = estimate(cells, {ALONE[0]: 1.0, CELLS[0]: -1.0})
    assert (len(contrast.by_seed), contrast.value) == (2, pytest.approx(3.5))
    assert estimate(cells, weights_of_sums(4)[ALL]) is None


def test_errors_left_are_relative_to_independent_shares() -> None:
    """Of 10 errors parts leave 0.5, 0.8, 0.9 and 1: all four leave 3.6 if independent; here 7.2.

    Two seeds: the logarithm is 0.008 above and below, so its interval is t(1) = 12.706205 times 0.008 on either side.
    """
    alone = {cell: {0: 100 - 10 * share} for cell, share in zip(ALONE, (0.5, 0.8, 0.9, 1.0), strict=True)}
    cells = {CELLS[0]: {0: 90.0}, CELLS[-1]: {0: 92.8}, **alone}
    contrast = errors_left(cells, 4)
    assert (contrast.value, contrast.interval) == (pytest.approx(2), None)
    assert errors_left({**cells, CELLS[-1]: {0: 96.4}}, 4).value == pytest.approx(1)
    assert errors_left({**cells, CELLS[-1]: {0: 100.0}}, 4) is None
    assert errors_left(alone, 4) is None
    noisy = {
        cell: {seed: 100 - (100 - accuracies[0]) * math.exp(0.001 * (-1) ** (seed + sum(cell))) for seed in (0, 1)}
        for cell, accuracies in cells.items()
    }
    interval = errors_left(noisy, 4).interval
    half = 12.706205 * 0.008
    assert (interval.low, interval.high) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))

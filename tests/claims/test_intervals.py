"""Intervals, compared with values computed by hand, by another library, and by drawing."""

import math

import numpy as np
import pytest
from scipy import stats

from runner.claims import intervals
from runner.claims.intervals import Mean, Spread, measured_mean
from runner.claims.measurement import compare_samples, interval_of
from tests.claims.made_up import claim

FIVE = [98.0, 98.1, 98.2, 98.3, 98.4]  # mean 98.2, standard deviation sqrt(0.025) = 0.158114


@pytest.mark.parametrize(
    ("mean", "claimed", "runs", "level", "middle", "half"),
    [
        # t(4) = 2.776445; half: 2.776445 * 0.158114 * sqrt(2/5) = 0.277645; at 90% 2.131847 for t
        (measured_mean(FIVE), 98.0, 5, 0.95, 0.2, 0.277645),
        (measured_mean(FIVE), 98.0, 5, 0.9, 0.2, 0.213185),
        # a single run is a prediction: 2.776445 * 0.158114 * sqrt(1 + 1/5)
        (measured_mean(FIVE), 98.0, 1, 0.95, 0.2, 0.480895),
        # t(9) = 2.262157, half 2.262157 * 3.14 * sqrt(1.1) = 7.449871
        (Mean(76.86, 10, Spread(3.14, 9)), 79, 1, 0.95, -2.14, 7.449871),
    ],
)
def test_a_mean_against_a_claim_by_hand(
    mean: Mean, claimed: float, runs: int, level: float, middle: float, half: float
) -> None:
    interval = intervals.less_claim([mean], claimed, runs, level)
    assert (interval.low, interval.high) == pytest.approx((middle - half, middle + half), abs=1e-5)


def test_means_have_student_and_differences_welch_intervals() -> None:
    second = [97.0, 98.0, 99.0]
    for interval, test in (
        (intervals.mean_of(FIVE), stats.ttest_1samp(FIVE, 0)),
        (intervals.difference(FIVE, second), stats.ttest_ind(FIVE, second, equal_var=False)),
    ):
        expected = test.confidence_interval()
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_a_typical_spread_is_the_median_by_degrees_of_freedom() -> None:
    """Of 4 and 1 degrees of freedom the first decides. Tables have 3.357 as the median of chi2 with 4."""
    interval = intervals.typical([FIVE, [1.0, 30.0], [7.0]])
    assert interval is not None
    assert (interval.std, interval.freedom) == (pytest.approx(math.sqrt(0.025 / (3.357 / 4)), rel=1e-4), 2)
    assert intervals.typical([[7.0]]) is None


def test_the_typical_spread_misses_a_single_run_in_one_of_twenty() -> None:
    stream, beyond = np.random.default_rng(0), []
    for _ in range(1000):
        interval = intervals.typical(stream.standard_normal((3, 3)).tolist())
        assert interval is not None
        beyond.append(abs(stream.standard_normal()) > interval.std * stats.t.ppf(0.975, interval.freedom))
    assert 0.01 < np.mean(beyond) < 0.065


def test_a_claimed_ratio_is_of_runs_that_spread_too() -> None:
    """Logs of FIVE and of FIVE: variance 2 s^2 (1/5 + 1) against 2 s^2 / 5, the same degrees of freedom."""
    both = compare_samples("ratio", "geometric", tuple(FIVE), tuple(FIVE))
    alone = interval_of(claim(compare="ratio", direction="above", level=0.0), both)
    beside = interval_of(claim(compare="ratio", direction="match", claimed="0", of="single"), both)
    assert alone is not None
    assert beside is not None
    assert math.log(beside.high) == pytest.approx(math.sqrt(6) * math.log(alone.high))
    assert alone.low * alone.high == pytest.approx(1)


def test_the_best_of_one_is_students_t() -> None:
    for n in (2, 5, 10):
        expected = stats.t.ppf(0.975, n - 1) * math.sqrt(1 + 1 / n)
        assert intervals.best(1, n, n - 1, 0.975) == pytest.approx(expected, rel=2e-2 if n == 2 else 1e-3)


@pytest.mark.parametrize(("runs", "measured"), [(5, 10), (10, 3)])
def test_the_best_of_several_covers_as_often_as_it_says(runs: int, measured: int) -> None:
    draws = np.random.default_rng(0)
    old, new = draws.normal(size=(20_000, measured)), draws.normal(size=(20_000, runs)).max(1)
    scaled = (new - old.mean(1)) / old.std(1, ddof=1)
    inside = (intervals.best(runs, measured, measured - 1, 0.025) <= scaled) & (
        scaled <= intervals.best(runs, measured, measured - 1, 0.975)
    )
    assert inside.mean() == pytest.approx(0.95, abs=0.006)


def test_a_bootstrap_of_one_mean_is_its_standard_error() -> None:
    draws = intervals.redrawn(lambda means: float(means[0]), [3.0], [0.5])
    low, high = np.quantile(draws, (0.025, 0.975))
    assert (low, high) == (pytest.approx(3 - 1.96 * 0.5, abs=0.06), pytest.approx(3 + 1.96 * 0.5, abs=0.06))
    assert intervals.redrawn(lambda means: float(means[0]), [3.0], [0.5]).tolist() == draws.tolist()


def test_two_bests_of_settings_that_are_known_are_two_maxima() -> None:
    """P(D < q) is the integral of F(x + q) dF(x), with F the distribution function of the maximum of five."""
    exact = Mean(0.0, 10**9, Spread(1.0, 10**9))
    x = np.linspace(-6, 8, 20_001)
    mass = np.diff(stats.norm.cdf(x) ** 5)
    below = [float((stats.norm.cdf((x[1:] + x[:-1]) / 2 + q) ** 5 * mass).sum()) for q in (1.8, 1.85, 1.9, 1.95)]
    expected = float(np.interp(0.975, below, (1.8, 1.85, 1.9, 1.95)))
    interval = intervals.bests_less_claim(exact, exact, 0.0, 5)
    assert (interval.low, interval.high) == pytest.approx((-expected, expected), abs=0.03)
    assert intervals.bests_less_claim(exact, exact, 1.0, 5).low == pytest.approx(interval.low - 1)


def test_a_true_difference_of_bests_is_missed_in_one_of_twenty() -> None:
    """By drawing: five runs here and five of the paper, of two settings, and the second spreads twice as much."""
    dice, missed = np.random.default_rng(0), 0
    for _ in range(500):
        (first, theirs), (second, their_other) = (dice.normal(0, std, (2, 5)) for std in (1.0, 2.0))
        claimed = float(theirs.max() - their_other.max())
        interval = intervals.bests_less_claim(measured_mean(list(first)), measured_mean(list(second)), claimed, 5)
        missed += not interval.low <= 0 <= interval.high
    assert missed / 500 == pytest.approx(0.045, abs=0.02)

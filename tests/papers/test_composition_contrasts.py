"""The factorial's contrasts: by hand, and against least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from runner.papers.composition.design import (
    ALONE,
    CELLS,
    GAIN_OF_ALL,
    MORE_THAN_PARTS,
    NEW,
    OLD,
    PARTS,
    effect_of,
    effects,
    estimate,
    gain_alone,
    spread_within,
)
from runner.report.statistics import Interval

GAINS = (2.0, 0.5, -0.25, 4.0)


def added_up(cell, pair: float = 0.0) -> float:
    """A cell's accuracy where parts add up but for the first two, which together give `pair` more."""
    return 80 + sum(gain for gain, new in zip(GAINS, cell, strict=True) if new) + pair * (cell[0] and cell[1])


def test_parts_that_add_up_have_their_own_gains_and_nothing_else() -> None:
    exact = {cell: [added_up(cell)] for cell in CELLS}
    for part, gain in zip(PARTS, GAINS, strict=True):
        for weights in (effect_of([part]), gain_alone(part)):
            assert estimate(exact, weights).value == pytest.approx(gain)
    assert all(estimate(exact, effect_of(parts)).value == pytest.approx(0) for parts in effects() if len(parts) > 1)
    assert estimate(exact, GAIN_OF_ALL).value == pytest.approx(6.25)
    assert estimate(exact, MORE_THAN_PARTS).value == pytest.approx(0)
    assert len(effects()) == len(CELLS) - 1


def test_what_two_parts_give_together() -> None:
    """One point, where both are new: half of the cells of either have it, and its half is their interaction."""
    exact = {cell: [added_up(cell, pair=1.0)] for cell in CELLS}
    assert estimate(exact, effect_of(PARTS[:1])).value == pytest.approx(GAINS[0] + 0.5)
    assert estimate(exact, gain_alone(PARTS[0])).value == pytest.approx(GAINS[0])
    assert estimate(exact, effect_of(PARTS[:2])).value == pytest.approx(0.5)
    assert estimate(exact, effect_of(PARTS[2:])).value == pytest.approx(0)
    assert estimate(exact, MORE_THAN_PARTS).value == pytest.approx(1)


def test_intervals_by_hand() -> None:
    """Two runs a cell, 0.1 on either side: s^2 = 0.02 with 16 degrees of freedom, of which t is 2.1199.

    An effect has variance 0.02 x 16 / 64 / 2 = 0.05^2, the gains of all less those of each 0.02 x 14 / 2 = 0.14.
    """
    cells = {cell: [added_up(cell) - 0.1, added_up(cell) + 0.1] for cell in CELLS}
    freedom, spread = spread_within(cells)
    assert (freedom, spread) == (16, pytest.approx(0.02**0.5))
    effect, more = estimate(cells, effect_of(PARTS[:1])), estimate(cells, MORE_THAN_PARTS)
    assert (effect.interval.low, effect.interval.high) == pytest.approx((2 - 0.105995, 2 + 0.105995), abs=1e-5)
    assert more.interval.high == pytest.approx(2.119905 * 0.14**0.5, abs=1e-5)
    assert more.interval.low == pytest.approx(-more.interval.high)


def test_least_squares_give_the_same_with_other_numbers_of_runs_in_every_cell() -> None:
    """The model with all interactions, x = +-1: an effect is twice its coefficient."""
    random = np.random.default_rng(0)
    cells = {cell: list(random.normal(added_up(cell, 0.7), 0.4, 1 + i % 4)) for i, cell in enumerate(CELLS)}
    y = np.concatenate([cells[cell] for cell in CELLS])
    signs = np.array([[1 if new else -1 for new in cell] for cell in CELLS for _ in cells[cell]])
    sets = [(), *effects()]
    x = np.stack([signs[:, [PARTS.index(part) for part in of]].prod(axis=1) for of in sets], axis=1)
    coefficients, residual, rank, _ = np.linalg.lstsq(x, y, rcond=None)
    freedom = len(y) - rank
    errors = np.sqrt(residual[0] / freedom * np.diag(np.linalg.inv(x.T @ x)))
    t = stats.t.ppf(0.975, freedom)
    for of, coefficient, error in list(zip(sets, coefficients, errors, strict=True))[1:]:
        found = estimate(cells, effect_of(of))
        assert found.value == pytest.approx(2 * coefficient)
        assert (found.interval.low, found.interval.high) == pytest.approx(
            (2 * (coefficient - t * error), 2 * (coefficient + t * error))
        )


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of 2,000 repetitions 95% plus or minus 1.5 (three standard errors)."""
    random = np.random.default_rng(1)
    held = 0
    for _ in range(2000):
        cells = {cell: random.normal(0, 1, 2).tolist() for cell in (OLD, NEW, *ALONE)}
        interval = estimate(cells, MORE_THAN_PARTS).interval
        held += interval.low <= 0 <= interval.high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_no_number_without_all_its_runs_and_no_interval_without_a_second() -> None:
    single = {cell: [added_up(cell)] for cell in CELLS if cell != NEW}
    assert estimate(single, effect_of(PARTS[:1])) is None
    assert estimate(single, GAIN_OF_ALL) is None
    alone = estimate(single, gain_alone(PARTS[0]))
    assert (alone.value, alone.interval) == (pytest.approx(GAINS[0]), None)
    one_more = {**single, CELLS[3]: [80.0, 82.0]}  # not of this contrast, but its spread is the runs'
    assert isinstance(estimate(one_more, gain_alone(PARTS[0])).interval, Interval)

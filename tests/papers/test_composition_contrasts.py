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
    spreads,
)

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
    """Two runs a cell, 0.1 on either side: s^2 = 0.02 in each, a degree of freedom.

    An effect has variance 0.02 x 16 / 64 / 2 = 0.05^2 and 16 degrees of freedom. The gains of all less those of each
    have the squared weights 1 (five times) and 9: a variance of 0.02 x 14 / 2 = 0.14, and 14^2 / (5 + 81) degrees.
    """
    cells = {cell: [added_up(cell) - 0.1, added_up(cell) + 0.1] for cell in CELLS}
    assert spreads(cells, GAIN_OF_ALL) == pytest.approx([0.02**0.5] * 2)
    effect, more = estimate(cells, effect_of(PARTS[:1])), estimate(cells, MORE_THAN_PARTS)
    assert (effect.interval.low, effect.interval.high) == pytest.approx((2 - 0.105995, 2 + 0.105995), abs=1e-5)
    assert more.interval.high == pytest.approx(stats.t.ppf(0.975, 196 / 86) * 0.14**0.5)
    assert more.interval.low == pytest.approx(-more.interval.high)


def test_of_two_cells_the_interval_is_that_of_scipy() -> None:
    random = np.random.default_rng(0)
    cells = {OLD: random.normal(80, 0.5, 5).tolist(), ALONE[0]: random.normal(82, 0.1, 4).tolist()}
    found = estimate(cells, gain_alone(PARTS[0]))
    theirs = stats.ttest_ind(cells[ALONE[0]], cells[OLD], equal_var=False).confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((theirs.low, theirs.high))


def test_least_squares_give_the_same_with_other_numbers_of_runs_in_every_cell() -> None:
    """The model with all interactions, x = +-1: an effect is twice its coefficient."""
    random = np.random.default_rng(0)
    cells = {cell: list(random.normal(added_up(cell, 0.7), 0.4, 1 + i % 4)) for i, cell in enumerate(CELLS)}
    y = np.concatenate([cells[cell] for cell in CELLS])
    signs = np.array([[1 if new else -1 for new in cell] for cell in CELLS for _ in cells[cell]])
    sets = [(), *effects()]
    x = np.stack([signs[:, [PARTS.index(part) for part in of]].prod(axis=1) for of in sets], axis=1)
    coefficients, *_ = np.linalg.lstsq(x, y, rcond=None)
    for of, coefficient in list(zip(sets, coefficients, strict=True))[1:]:
        assert estimate(cells, effect_of(of)).value == pytest.approx(2 * coefficient)


@pytest.mark.parametrize("spread", [1.0, 0.2])
def test_the_interval_holds_the_truth_as_often_as_it_says(spread: float) -> None:
    """Of 4,000 repetitions 95% plus or minus 1.5, also where the cells with new parts spread less.

    With one spread for all cells it would be 70% there.
    """
    random = np.random.default_rng(1)
    held = 0
    for _ in range(4000):
        cells = {cell: random.normal(0, 1 if cell == OLD else spread, 5).tolist() for cell in (OLD, NEW, *ALONE)}
        interval = estimate(cells, MORE_THAN_PARTS).interval
        held += interval.low <= 0 <= interval.high
    assert held / 4000 == pytest.approx(0.95, abs=0.015)


def test_no_number_without_all_its_runs_and_no_interval_without_a_second() -> None:
    single = {cell: [added_up(cell)] for cell in CELLS if cell != NEW}
    assert estimate(single, effect_of(PARTS[:1])) is None
    assert estimate(single, GAIN_OF_ALL) is None
    alone = estimate(single, gain_alone(PARTS[0]))
    assert (alone.value, alone.interval) == (pytest.approx(GAINS[0]), None)
    assert estimate({**single, OLD: [80.0, 82.0]}, gain_alone(PARTS[0])).interval is None

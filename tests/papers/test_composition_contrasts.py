"""The factorial's contrasts: by hand, and against least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from runner.claims.contrasts import estimate
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
    gain_alone,
    spreads,
)

GAINS = (2.0, 0.5, -0.25, 4.0)


def added_up(cell, pair: float = 0.0) -> float:
    """A cell's accuracy where parts add up but for the first two, which together give `pair` more."""
    return 80 + sum(gain for gain, new in zip(GAINS, cell, strict=True) if new) + pair * (cell[0] and cell[1])


def runs_of(*values: float) -> dict[int, float]:
    """The accuracies of seeds 0, 1 and so on."""
    return dict(enumerate(values))


def test_parts_that_add_up_have_their_own_gains_and_nothing_else() -> None:
    exact = {cell: runs_of(added_up(cell)) for cell in CELLS}
    for part, gain in zip(PARTS, GAINS, strict=True):
        for weights in (effect_of([part]), gain_alone(part)):
            assert estimate(exact, weights).value == pytest.approx(gain)
    assert all(estimate(exact, effect_of(parts)).value == pytest.approx(0) for parts in effects() if len(parts) > 1)
    assert estimate(exact, GAIN_OF_ALL).value == pytest.approx(6.25)
    assert estimate(exact, MORE_THAN_PARTS).value == pytest.approx(0)
    assert len(effects()) == len(CELLS) - 1


def test_intervals_by_hand() -> None:
    """Two seeds that shift all cells by the same change no contrast; of one cell they change its weight times that."""
    cells = {cell: runs_of(added_up(cell) - 0.1, added_up(cell) + 0.1) for cell in CELLS}
    assert spreads({cell: {**cells[cell], 9: 0.0} for cell in GAIN_OF_ALL}, (0, 1)) == pytest.approx([0.02**0.5] * 2)
    together = estimate(cells, MORE_THAN_PARTS)
    assert (together.interval.low, together.interval.high) == pytest.approx((0, 0))
    cells[OLD] = runs_of(80 + 0.1, 80 - 0.1)  # weight 3: all else gives the seeds 0.3 and -0.3, this as much again
    apart = estimate(cells, MORE_THAN_PARTS).interval  # 0.6 and -0.6: s = 0.6 sqrt(2), half t s / sqrt(2)
    half = stats.t.ppf(0.975, 1) * 0.6
    assert (apart.low, apart.high) == pytest.approx((-half, half))


def test_of_two_cells_the_interval_is_that_of_scipy_s_paired_test() -> None:
    random = np.random.default_rng(0)
    one, other = random.normal(80, 0.5, 5), random.normal(82, 0.1, 5)
    found = estimate({OLD: runs_of(*one), ALONE[0]: runs_of(*other)}, gain_alone(PARTS[0]))
    theirs = stats.ttest_rel(other, one).confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((theirs.low, theirs.high))


def test_only_seeds_that_all_cells_have_count() -> None:
    cells = {OLD: {0: 80.0, 1: 81.0, 3: 79.0}, ALONE[0]: {3: 82.0, 1: 85.0, 2: 0.0}}
    assert estimate(cells, gain_alone(PARTS[0])).seeds == (1, 3)
    both = {cell: {seed: cells[cell][seed] for seed in (1, 3)} for cell in cells}
    assert estimate(cells, gain_alone(PARTS[0])) == estimate(both, gain_alone(PARTS[0]))
    assert estimate(both, gain_alone(PARTS[0])).value == pytest.approx(3.5)


def test_least_squares_with_a_level_of_each_seed_give_the_same() -> None:
    """The model with all interactions, x = +-1, and a level a seed: an effect is twice its coefficient."""
    random = np.random.default_rng(0)
    cells = {cell: runs_of(*random.normal(added_up(cell, 0.7), 0.4, 3)) for cell in CELLS}
    y = np.concatenate([list(cells[cell].values()) for cell in CELLS])
    signs = np.array([[1 if new else -1 for new in cell] for cell in CELLS for _ in cells[cell]])
    products = [signs[:, [PARTS.index(part) for part in of]].prod(axis=1) for of in effects()]
    levels = np.tile(np.eye(3), (len(CELLS), 1))
    coefficients, *_ = np.linalg.lstsq(np.concatenate([np.stack(products, axis=1), levels], axis=1), y, rcond=None)
    for of, coefficient in zip(effects(), coefficients, strict=False):
        assert estimate(cells, effect_of(of)).value == pytest.approx(2 * coefficient)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of 1,000 repetitions 95% plus or minus 2.5, as spreads differ and seeds are luckier with a part.

    Welch's interval treats the cells as independent, and would hold in 55%.
    """
    random = np.random.default_rng(1)
    weights, held = effect_of(PARTS[:1]), 0
    for _ in range(1000):
        with_part = random.normal(0, 1.0, 5)
        cells = {
            cell: runs_of(*(cell[0] * with_part + random.normal(0, 0.2 + 0.8 * (cell == OLD), 5))) for cell in CELLS
        }
        interval = estimate(cells, weights).interval
        held += interval.low <= 0 <= interval.high
    assert held / 1000 == pytest.approx(0.95, abs=0.025)


def test_no_number_without_all_its_runs_and_no_interval_without_a_second() -> None:
    single = {cell: runs_of(added_up(cell)) for cell in CELLS if cell != NEW}
    assert estimate(single, effect_of(PARTS[:1])) is None
    assert estimate(single, GAIN_OF_ALL) is None
    alone = estimate(single, gain_alone(PARTS[0]))
    assert (alone.value, alone.interval) == (pytest.approx(GAINS[0]), None)
    assert estimate({**single, OLD: runs_of(80.0, 82.0)}, gain_alone(PARTS[0])).interval is None
    assert estimate({**single, OLD: {1: 80.0}}, gain_alone(PARTS[0])) is None

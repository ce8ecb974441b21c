"""The composition study: its settings, the rates that its searches choose, and what its pages say of made-up runs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest
from scipy import stats

from runner.claims.evidence import Evidence, collect
from runner.claims.runs import PlannedRun, Runs
from runner.claims.verdicts import judge
from runner.config.chosen import chosen
from runner.papers.composition import choose, measures, tables
from runner.papers.composition.choices import RATE, at_chosen_rates, best_cell, choices
from runner.papers.composition.design import ALONE, CELLS, NEW, OLD, by_cell, errors_left
from runner.records.jobs import sweep_jobs
from runner.report.papers import load
from runner.training.prepare import prepare

MNIST = "composition/mnist"
SEARCH = tuple(
    f"composition/mnist_search_{epsilon}_{loss}" for epsilon in (1, 3) for loss in ("cross_entropy", "losing_less")
)
LOSING_LESS = SEARCH[1]
STUDENT = stats.t.ppf(0.975, 1)  # two seeds
MORE = STUDENT * 0.08  # half of an interval: 0.01 by the weights 1, 1 (four times) and 3, see `accuracy`


def planned(*sweeps: str, epsilon: float = 1.0) -> Runs:
    listed = [job for sweep in sweeps for job in sweep_jobs(sweep, ("scale=paper",))]
    return Runs(PlannedRun(job, None) for job in listed if job.config.target_epsilon == epsilon)


def claim(number: str, dataset: str = "MNIST", **columns: str):
    every = load("composition").claims
    found = [c for c in every if (c.number, c.dataset, c.at_epsilon) == (number, dataset, "1")]
    return next(c for c in found if all(getattr(c, name) == value for name, value in columns.items()))


def accuracy(cell, runs: int) -> list[float]:
    """Return accuracies: 90, 1 more for every new part, 2 less if the first two are new; 0.01 on either side.

    The even seed is the better one if an even number of parts is new.
    """
    middle = 90 + sum(cell) - 2 * (cell[0] and cell[1])
    return [middle + 0.01 * (-1) ** (seed + sum(cell)) for seed in range(runs)]


@cache
def rates_of_experiments() -> dict:
    """The rate that each cell's experiment has now, by the committed table of chosen ones."""
    return {cell: float(runs[0].field(RATE)) for cell, runs in by_cell(planned(MNIST)).items()}


def chosen_rate(cell, searched: Runs) -> float:
    """Return the rate that the search of a cell chooses: the experiments' rate, or another one if all is new."""
    rates = sorted(float(rate) for rate in searched.by_value(RATE))
    own = rates_of_experiments()[cell]
    return next(rate for rate in rates if rate != own) if cell == NEW else own


@pytest.fixture
def evidence(tmp_path, fabricate) -> Evidence:
    """Searches at epsilon 1 that chose the rate of the experiments in all cells but the last, and two runs a cell."""
    for cell, runs in by_cell(planned(*SEARCH)).items():
        best = chosen_rate(cell, runs)
        for rate, (run,) in runs.by_value(RATE).items():
            fabricate(run.job, [88.0 if rate == best else 87.0], sound=1.0)
    for cell, runs in by_cell(planned(MNIST)).items():
        for run, value in zip(runs[:2], accuracy(cell, 2), strict=True):
            fabricate(run.job, [value], epsilon=1.0, sound=1.0)
    return collect([MNIST, *SEARCH], results_root=tmp_path)


@pytest.fixture
def complete(evidence) -> Evidence:
    """The same, had the search chosen that rate in the last cell, too."""
    only, rate = by_cell(Runs(evidence.sweeps[LOSING_LESS])), rates_of_experiments()[NEW]
    kept = [run for cell, runs in only.items() for run in runs if cell != NEW or float(run.field(RATE)) == rate]
    return replace(evidence, sweeps={**evidence.sweeps, LOSING_LESS: Runs(kept)})


def test_every_cell_is_planned_with_five_seeds_and_searched_at_the_rates_of_its_loss() -> None:
    for epsilon in (1.0, 3.0):
        cells = by_cell(planned(MNIST, epsilon=epsilon))
        assert set(cells) == set(CELLS)
        assert {tuple(run.seed for run in runs) for runs in cells.values()} == {(0, 1, 2, 3, 4)}
        searched = by_cell(planned(*SEARCH, epsilon=epsilon))
        rates = {cell: tuple(float(run.field(RATE)) for run in runs) for cell, runs in searched.items()}
        old, new = {1: ((0.5, 1, 2, 4, 8), (0.25, 0.5, 1, 2)), 3: ((1, 2, 4, 8, 16), (0.5, 1, 2, 4))}[epsilon]
        assert rates == {cell: new if cell[1] else old for cell in CELLS}
        evaluations = {run.field("evaluation") for runs in searched.values() for run in runs}
        assert evaluations == {"holdout"}


@pytest.mark.slow
def test_all_cells_get_the_same_noise_and_cost_what_they_were_calibrated_to() -> None:
    noises = set()
    for run in (runs[0] for cell, runs in by_cell(planned(MNIST)).items() if cell in (OLD, NEW)):
        ready = prepare(run.job.config)
        noises.add(ready.mechanism.noise_multiplier)
        releases = ready.mechanism.charges_of_epochs(ready.epochs)
        assert releases.claimed == releases.actual  # the features are normalised without a release
        assert 0.99 < ready.accountant.epsilon(releases.actual, 1e-5) <= 1
    assert len(noises) == 1


def test_the_searches_choose_and_only_runs_at_chosen_rates_count(evidence) -> None:
    found = choices(evidence, SEARCH)
    assert sum(choice.rate is not None for choice in found.values()) == 16  # of 32: epsilon 3 has not run
    counted = by_cell(at_chosen_rates(evidence, MNIST))
    assert set(counted) == set(CELLS) - {NEW}
    measured = measures.gain_of_all(claim("gain_of_all"), evidence)
    assert (measured.value, measured.n, measured.planned) == (None, 2, 10)
    assert best_cell(evidence) is None  # the other data set and epsilon have not been searched


def test_a_search_that_has_not_ended_chooses_nothing(evidence) -> None:
    last = Runs(run for run in evidence.sweeps[LOSING_LESS] if run.record is not None)[0]
    cut = [replace(run, record=None) if run is last else run for run in evidence.sweeps[LOSING_LESS]]
    found = choices(replace(evidence, sweeps={**evidence.sweeps, LOSING_LESS: Runs(cut)}), SEARCH)
    assert sum(choice.rate is not None for choice in found.values()) == 15


def test_does_it_add_up(complete) -> None:
    """One point for each of four parts alone; together four less two: two seeds, 0.08 above that and below."""
    found = measures.more_than_parts(claim("more_than_parts"), complete)
    assert (found.value, found.n, found.planned) == (pytest.approx(-2), 12, 30)
    interval = found.interval_at(0.95)
    assert (interval.low, interval.high) == pytest.approx((-2 - MORE, -2 + MORE))
    assert (found.epsilon, found.epsilon_sound) == (1.0, 1.0)
    judged = judge(claim("more_than_parts"), found, "paper")
    assert (judged.verdict, judged.interval) == ("not judged", interval)
    effect = measures.main_effect(claim("main_effect", method="tanh for ReLU"), complete)
    assert (effect.value, effect.n) == (pytest.approx(0), 32)


def test_an_effect_is_of_the_seeds_that_all_cells_have(complete, tmp_path, fabricate) -> None:
    """A third run of one cell, far off, is in no number of them all: not in how many there are, nor in their spread."""
    third = next(run for run in by_cell(planned(MNIST))[OLD] if run.seed == 2)
    fabricate(third.job, [10.0], epsilon=9.0, sound=9.0)
    more = collect([MNIST], results_root=tmp_path).sweeps[MNIST]
    uneven = replace(complete, sweeps={**complete.sweeps, MNIST: more})
    effects, before = (tables.effects_of("mnist")(evidence, []) for evidence in (uneven, complete))
    assert effects == before
    found, before = (measures.gain_of_all(claim("gain_of_all"), evidence) for evidence in (uneven, complete))
    assert (found.value, found.interval_at(0.95), found.n) == (before.value, before.interval_at(0.95), 4)
    alone = [run for run in more if run.seed == 1 or by_cell(Runs([run])).keys() != {NEW}]
    found = measures.gain_of_all(
        claim("gain_of_all"), replace(complete, sweeps={**complete.sweeps, MNIST: Runs(alone)})
    )
    assert (found.n, found.interval_at) == (2, None)


def test_the_loss_has_other_parameters_in_the_sweep_that_asks_for_it_alone() -> None:
    """Table 6 of the paper: for pixels in all cells, for ScatterNet where that is what is measured."""
    cells = {run.field("loss.beta") for run in planned(MNIST, "composition/fashion_mnist") if run.field("loss.beta")}
    assert cells == {1.0}
    for dataset, own in (("mnist", (2.0, 11.0, 10.0)), ("fashion_mnist", (2.0, 51.0, 2.0))):
        runs = planned(f"composition/loss_{dataset}")
        names = ("loss.threshold_epoch", "loss.beta", "loss.gamma")
        found = runs.by(lambda run, names=names: tuple(run.field(name) for name in names))
        assert {values: len(of) for values, of in found.items()} == {(0.0, 1.0, 5.0): 5, own: 5}
        assert set(by_cell(runs)) == {NEW}


def test_errors_left_are_those_of_independent_shares_where_each_part_takes_its_own() -> None:
    """Of 10 errors parts leave 0.5, 0.8, 0.9 and 1: all four leave 3.6 if independent; here 7.2."""
    shares = (0.5, 0.8, 0.9, 1.0)
    alone = {cell: {0: 100 - 10 * x} for cell, x in zip(ALONE, shares, strict=True)}
    cells = {OLD: {0: 90.0}, NEW: {0: 92.8}, **alone}
    found = errors_left(cells)
    assert (found.value, found.interval) == (pytest.approx(2), None)
    assert errors_left({**cells, NEW: {0: 96.4}}).value == pytest.approx(1)
    assert errors_left({**cells, NEW: {0: 100.0}}) is None
    assert errors_left({cell: of for cell, of in cells.items() if cell != OLD}) is None
    noisy = {
        cell: {seed: 100 - (100 - of[0]) * math.exp(0.001 * (-1) ** (seed + sum(cell))) for seed in (0, 1)}
        for cell, of in cells.items()
    }
    interval = errors_left(noisy).interval  # of logarithms, a tenth of what it is above
    half = MORE / 10
    assert (interval.low, interval.high) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))


def test_what_is_chosen_reaches_the_experiments(tmp_path, evidence) -> None:
    table = tmp_path / "chosen.csv"
    assert choose.write(replace(evidence, sweeps={name: evidence.sweeps[name] for name in SEARCH}), table) == (16, 32)
    for cell, runs in by_cell(planned(MNIST)).items():
        config = runs[0].job.config
        node = config.optimizer._get_node("lr")
        assert chosen(tmp_path, table.name, 9.0, node=node, root=config) == chosen_rate(
            cell, by_cell(planned(*SEARCH))[cell]
        )
    config = planned(MNIST, epsilon=3.0)[0].job.config
    assert chosen(tmp_path, table.name, 9.0, node=config.optimizer._get_node("lr"), root=config) == 9.0
    table.write_text(table.read_text() + "".join(table.read_text().splitlines(keepends=True)[1:]))
    config = by_cell(planned(MNIST))[OLD][0].job.config
    with pytest.raises(ValueError, match="2 rows for one setting"):
        chosen(tmp_path, table.name, 9.0, node=config.optimizer._get_node("lr"), root=config)


def test_what_is_added_counts_beside_the_best_cell_only(tmp_path, fabricate, evidence) -> None:
    """The cell that the experiments have, all new, searched at one epsilon only: nothing is known to be the best."""
    one = claim("added", quantity="gain")
    sweeps = {name: evidence.sweeps[name] for name in (MNIST, *SEARCH)}
    best = collect([one.sweep, *one.searches], results_root=tmp_path)
    found = measures.added(one, replace(best, sweeps={**best.sweeps, **sweeps}))
    assert (found.value, found.planned) == (None, 10)


def test_one_seed_a_corner_has_no_interval(tmp_path, fabricate) -> None:
    (one,) = (c for c in load("composition").claims if (c.item, c.number) == ("cifar10", "added"))
    for job in sweep_jobs(one.sweep, ("scale=paper",)):
        if job.config.seed == 0:
            fabricate(job, [60.0 if job.experiment == one.experiments[0] else 55.0], sound=3.0)
    found = measures.added(one, collect([one.sweep], results_root=tmp_path))
    assert (found.value, found.interval_at, found.n, found.planned) == (5.0, None, 2, 6)
    assert judge(one, found, "paper").verdict == "not judged"

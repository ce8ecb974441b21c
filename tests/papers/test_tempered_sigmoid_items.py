"""The items of Tempered Sigmoid that need no run, and its measurements on small made-up numbers."""

import math

import pytest
import torch

from runner.claims.evidence import collect, last_accuracy
from runner.claims.measure import measure
from runner.claims.verdicts import judge
from runner.networks.activations import TemperedSigmoid
from runner.papers.tempered_sigmoid import figures, theorem_1
from runner.records.jobs import sweep_jobs
from runner.report.papers import claims_of, load
from tests.claims.made_up import NOTHING


def test_figure_1_tanh_is_tanh():
    x = torch.linspace(-20, 20, 4001, dtype=torch.float64)
    assert (TemperedSigmoid(*figures.TANH)(x) - x.tanh()).abs().max() < 1e-12


def test_the_quoted_epsilon_is_not_what_60_epochs_cost():
    claim = next(c for c in load("tempered_sigmoid").claims if c.quantity == "epsilon")
    measured = figures.standard_setting_epsilon(claim, NOTHING)
    assert measured.value == pytest.approx(3.007, abs=5e-4)
    assert measured.epsilon_sound == pytest.approx(2.380, abs=2e-3)


def test_theorem_1_bias_is_bounded_and_zero_without_clipping():
    biases = theorem_1.biases()
    assert len(biases) == 2 * len(theorem_1.TEMPERATURES) * len(theorem_1.CLIPPING_NORMS)
    for bias in biases:
        assert bias.stationarity < 1e-8
        assert bias.excess_risk >= -theorem_1.SOLVER_TOLERANCE
        assert bias.excess_risk <= bias.bound + theorem_1.SOLVER_TOLERANCE
    assert {b.bound for b in biases if b.temperature <= b.clipping_norm} == {0.0}
    assert max(b.excess_risk for b in biases) > 1  # there is bias to bound
    assert 0 < theorem_1.largest_ratio() < 1


def test_theorem_1_bound_by_hand():
    # 2 (T - C) diam, with a ball of radius 2, whose diameter is 4
    by_hand = {(2.0, 0.5): 12.0, (1.5, 1.0): 4.0, (6.0, 4.0): 16.0, (1.0, 1.0): 0.0, (0.5, 2.0): 0.0}
    rows = theorem_1.table(NOTHING, ()).rows
    for (temperature, norm), bound in by_hand.items():
        assert [row[4] for row in rows if tuple(row[1:3]) == (temperature, norm)] == [bound, bound]
    worst = max(row[3] / row[4] for row in rows if row[4])
    assert theorem_1.largest_ratio() == pytest.approx(worst, rel=1e-12)


def test_gradient_norms_are_bounded_and_the_bounds_are_reached():
    ratios = theorem_1.gradient_ratios()
    assert all(ratio <= 1 + 1e-12 for name, ratio in ratios.items() if name.startswith("logistic"))
    assert all(ratio <= math.sqrt(2) + 1e-12 for name, ratio in ratios.items() if "classes" in name)
    assert ratios["logistic, adversarial"] > 1 - 1e-9
    assert ratios["10 classes, adversarial"] > math.sqrt(2) - 1e-9


@pytest.mark.parametrize("table", ["table_3", "table_4"])
def test_runs_at_chosen_rates_are_at_what_the_whole_search_chose(table: str) -> None:
    """By the records of this repository: a rate in sweeps/ is not written from hope."""
    claims = [c for c in load("tempered_sigmoid").claims if c.sweep == f"tempered_sigmoid/{table}_chosen"]
    evidence = collect(dict.fromkeys(sweep for claim in claims for sweep in (claim.sweep, *claim.searches)))
    for claim, experiment in ((c, name) for c in claims for name in c.experiments):
        searched = [run for sweep in claim.searches for run in evidence.planned(sweep, experiment)]
        assert searched
        assert all(run.record for run in searched), f"{experiment}: the search is not done"
        best = max(searched, key=last_accuracy).field("optimizer.lr")
        assert {run.field("optimizer.lr") for run in evidence.planned(claim.sweep, experiment)} == {best}


def test_tanh_and_relu_are_compared_at_their_chosen_rates(tmp_path, fabricate) -> None:
    """The searches choose what the committed table has; one run that is at another rate does not count."""
    method = "tanh above ReLU, each at its best"
    (claim,) = claims_of("tempered_sigmoid", method=method, dataset="MNIST", reading="")
    chosen, searched = (sweep_jobs(sweep, ("scale=paper",)) for sweep in (claim.sweep, claim.searches[0]))
    rates = {job.experiment: job.config.optimizer.lr for job in chosen}
    reached = dict(zip(claim.experiments, (98.0, 96.5), strict=True))
    for job in chosen:
        if job.experiment in reached and job.config.seed < 2:
            fabricate(job, [reached[job.experiment] + job.config.seed], sound=2.0)
    sweeps = [claim.sweep, *claim.searches]
    measured = measure(claim, collect(sweeps, results_root=tmp_path), {})
    assert (measured.value, measured.n, measured.planned) == (None, 4, 20)
    assert measured.explanation.count("the search has not run (0 of 8 settings)") == 2

    for job in searched:
        if job.experiment in reached:
            fabricate(job, [95.0 if job.config.optimizer.lr == rates[job.experiment] else 94.0], sound=2.0)
    measured = measure(claim, collect(sweeps, results_root=tmp_path), {})
    assert (measured.value, measured.reference, measured.n, measured.epsilon_sound) == (98.5, 97.0, 4, 2.0)
    assert (measured.comparison, measured.sample, measured.against) == ("order", (98.0, 99.0), (96.5, 97.5))

    relu = claim.experiments[1]
    other = next(job for job in searched if job.experiment == relu and job.config.optimizer.lr != rates[relu])
    next(tmp_path.rglob(f"{other.run_id}.json")).unlink()
    fabricate(other, [96.0], sound=2.0)  # it is chosen now, and has no run
    measured = measure(claim, collect(sweeps, results_root=tmp_path), {})
    assert measured.value is None
    assert "not run" in measured.explanation


def test_triples_are_compared_with_relu_and_tanh(tmp_path, fabricate, jobs) -> None:
    """Of triples at 60 to 89, 20 are above the 69.5 of ReLU, and the best is what tanh has in the mean."""
    sweep, names = "tempered_sigmoid/fig_2", ("mnist_relu", "mnist_tanh")
    triples = [job for job in sweep_jobs(sweep, ("scale=paper",)) if job.experiment.endswith("/mnist_triple")]
    for place, job in enumerate(triples[:30]):
        fabricate(job, [60.0 + place], sound=2.0)
    for name, accuracies in zip(names, ((69.0, 70.0), (88.0, 90.0, 89.0)), strict=True):
        for job, accuracy in zip(jobs("fig_3", name), accuracies, strict=False):
            fabricate(job, [accuracy], sound=2.0)
    of_mnist = [c for c in load("tempered_sigmoid").claims if (c.item, c.dataset) == ("fig-2", "MNIST")]
    evidence = collect(of_mnist[0].sweeps, results_root=tmp_path)
    share, lead = (getattr(figures, claim.number.name)(claim, evidence) for claim in of_mnist[:2])
    assert (share.value, sum(share.values), share.n, share.planned) == (pytest.approx(20 / 30), 20, 30, 60)
    assert (lead.value, lead.values, lead.n, lead.planned) == (0.0, (-1.0, 1.0, 0.0), 3, 10)
    assert share.interval_at is None is judge(of_mnist[0], share, "paper").interval_low, "two runs of ReLU"
    assert lead.interval_at is not None
    assert lead.interval_at(0.95).high == pytest.approx(4.3027 * math.sqrt(1 / 3 + 1), rel=1e-4), "the best is one run"
    fabricate(jobs("fig_3", "mnist_relu")[2], [69.5], sound=2.0)
    share = figures.triples_above_relu(of_mnist[0], collect(of_mnist[0].sweeps, results_root=tmp_path))
    assert share.interval_at is not None
    without_relu = 1.96 * math.sqrt(20 / 30 * 10 / 30 / 30)
    assert without_relu < share.interval_at(0.95).half_width < 1.5 * without_relu

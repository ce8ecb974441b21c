"""The items of Losing Less: claims judged on fabricated records, figures, and the tables that are computed.

In each pair of runs the paper's loss and cross-entropy differ, so that a test fails where the two are exchanged.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.colors import to_rgba

from runner.claims.evidence import Evidence, collect
from runner.claims.measure import measure
from runner.claims.measurement import Measured
from runner.claims.numbers import PRE_ACTIVATIONS, WEIGHTS
from runner.claims.verdicts import ClaimRow, judge
from runner.papers.losing_less import dynamics, figures
from runner.papers.losing_less.figures import smoothness_ratio
from runner.report.papers import claims_of, load
from runner.report.plots import LOOKS
from tests.claims.made_up import NOTHING

PAPER = load("losing_less")
OURS, CE = (to_rgba(LOOKS[look][0]) for look in ("losing-less loss", "tanh"))


@pytest.fixture
def record(tmp_path, fabricate, jobs) -> Callable[..., Path]:
    """`record("fig_3", "mnist_ours", [90.0, 98.0], seed=1, ...)`: fabricate one run's record."""

    def write(sweep: str, experiment: str, accuracy=(90.0,), seed: int = 0, **fields) -> Path:
        (job,) = (job for job in jobs(sweep, experiment, paper="losing_less") if job.config.seed == seed)
        return fabricate(job, list(accuracy), **fields)

    return write


def only_verdict(root: Path, item: str, **fields: str) -> tuple[Measured, ClaimRow]:
    """Measure and judge the only such claim."""
    (claim,) = claims_of(PAPER.name, item=item, **fields)
    measured = measure(claim, collect(claim.sweeps, results_root=root), PAPER.formulas)
    return measured, judge(claim, measured, "paper")


def evidence_of(root: Path, item: str) -> Evidence:
    chosen = PAPER.item(item)
    return PAPER.evidence_of(chosen, collect(PAPER.needs(chosen), results_root=root))


def lines(axes) -> dict[tuple, tuple[list[float], list[float]]]:
    """x and y of the lines with data, by colour; the first drawn where there are several."""
    measured: dict[tuple, tuple[list[float], list[float]]] = {}
    for line in axes.lines:
        if len(line.get_xdata()) and line.get_linestyle() in "-:":  # one run is dotted
            measured.setdefault(to_rgba(line.get_color()), (list(line.get_xdata()), list(line.get_ydata())))
    return measured


def norms(layers: int, weights: float, pre_activations: float, last: float) -> dict:
    """Norms before training and after an epoch: of all layers, and `last` times as much for the last."""
    epochs = {"epoch": [0, 1]}
    for kind, norm in ((WEIGHTS, weights), (PRE_ACTIVATIONS, pre_activations)):
        epochs[kind] = {str(layer): [1.0, norm * (last if layer == layers - 1 else 1)] for layer in range(layers)}
    return {"layer_norms": epochs}


def test_the_best_of_the_runs_below_the_budget_by_hand(tmp_path, record):
    # The last epoch is the one for 3, whose 3.005 the paper rounds; below 1.5 is the first.
    for seed, last in enumerate((61.0, 60.0, 59.2)):
        spent = {"epsilon": [1.4, 2.99, 3.005], "sound": [0.8, 1.6, 2.365]}
        record("fig_3", "cifar10_ours", (55.0 - seed, 70.0 + seed, last), seed, **spent)
    measured, row = only_verdict(tmp_path, "fig-3", at_epsilon="<3", claimed="63.2")
    assert (measured.value, list(measured.values), measured.n, measured.planned) == (61.0, [61.0, 60.0, 59.2], 3, 5)
    assert (measured.epsilon, measured.epsilon_sound) == (3.005, 2.365)
    assert measured.best == pytest.approx((70.0 + 71.0 + 72.0) / 3)
    assert (row.verdict, row.difference, row.guarantee) == ("open", -2.2, "guaranteed")
    assert (row.mean, row.median) == (pytest.approx(60.0667, abs=1e-4), 60.0)
    assert measured.explanation.startswith("the best of the runs after epoch 3")
    half, row = only_verdict(tmp_path, "fig-3", at_epsilon="<1.5", claimed="55.4")
    assert (half.value, half.epsilon, row.verdict) == (55.0, 1.4, "open")
    assert (row.mean, row.median) == (54.0, 54.0)
    assert half.explanation.startswith("the best of the runs after epoch 1, the last below 1.5")
    rows = figures.budgets_3(collect(["losing_less/fig_3"], results_root=tmp_path), ()).rows
    cells = next(r for r in rows if r[:3] == ["CIFAR-10", "losing-less", "2"])
    assert cells[3:] == ["3 of 5", "1", "55.00", "54.00", "54.00", "53.00", "2", "72.00", "71.00", "71.00", "70.00"]


def test_the_gain_on_cifar10_is_above_the_others_seed_by_seed(tmp_path, record):
    """Gains of 5 and 3 on CIFAR-10 and of 1 and 2 on MNIST; a seed without its pair does not count."""
    for dataset, seeds in (("cifar10", ((64, 59), (62, 59))), ("mnist", ((98, 97), (99, 97)))):
        for seed, (ours, ce) in enumerate(seeds):
            record("fig_3", f"{dataset}_ours", [float(ours)], seed)
            record("fig_3", f"{dataset}_ce", [float(ce)], seed)
    record("fig_3", "mnist_ours", [10.0], 2)
    measured, _ = only_verdict(tmp_path, "fig-3", number="gain_beyond_the_others")
    assert (measured.value, measured.reference) == (2.5, 0.0)
    assert (measured.sample, measured.against) == ((5.0, 3.0), (1.0, 2.0))
    assert (measured.n, measured.planned) == (9, 30)
    assert "cifar10_ours 4.00, mnist_ours 1.50" in measured.explanation


def test_ratios_of_norms_are_cross_entropys_over_ours(tmp_path, record):
    record("fig_1", "cifar10_ours", diagnostics=norms(8, 4.0, 5.0, 2))
    record("fig_1", "cifar10_ce", diagnostics=norms(8, 6.0, 10.0, 3))
    for item, ratio in (("fig-1a", 30 / 10), ("fig-1b", 18 / 8)):
        measured, row = only_verdict(tmp_path, item)
        assert (measured.value, row.verdict) == (pytest.approx(ratio), "open")
    for draw, ours, ce in ((dynamics.figure_1a, 10.0, 30.0), (dynamics.figure_1b, 8.0, 18.0)):
        (axes,) = draw(evidence_of(tmp_path, "fig-1a")).axes
        assert lines(axes) == {OURS: ([0, 1], [1.0, ours]), CE: ([0, 1], [1.0, ce])}


def test_other_seeds_of_a_setting_are_in_its_mean_and_range(tmp_path, record):
    """The item plans seed 0; figure 3 plans five. Of norms 1 and 3 after an epoch the mean is 2, the range 1 to 3."""
    for seed, (sweep, norm_) in enumerate((("fig_1", 1.0), ("fig_3", 3.0))):
        record(sweep, "cifar10_ours", seed=seed, diagnostics=norms(8, 4.0, norm_, 1))
    (axes,) = dynamics.figure_1a(evidence_of(tmp_path, "fig-1a")).axes
    assert lines(axes)[OURS][1] == [1.0, 2.0]
    (area,) = axes.collections
    assert area.get_datalim(axes.transData).extents[[1, 3]].tolist() == [1.0, 3.0]
    assert "losing-less loss, n = 2 of 5" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_table_5_has_readings_with_and_without_early_releases():
    """The paper names no statistics: its 3 is the steps' on MNIST's features, on CIFAR-10's it is with two releases."""
    costs = {
        (claim.dataset, claim.number.name): judge(claim, getattr(figures, claim.number.name)(claim, NOTHING), "paper")
        for claim in claims_of(PAPER.name, item="table-5")
        if "ScatterNet" in claim.method
    }
    measured = {key: (round(judged.measured, 3), judged.verdict) for key, judged in costs.items()}
    assert measured == {
        ("MNIST", "steps_epsilon"): (3.005, "holds"),
        ("MNIST", "setting_epsilon"): (3.135, "fails"),
        ("CIFAR10", "steps_epsilon"): (2.856, "fails"),
        ("CIFAR10", "setting_epsilon"): (2.997, "holds"),
        ("FashionMNIST", "setting_epsilon"): (3.003, "holds"),
    }
    with_ours = {key for key, judged in costs.items() if "two noisy releases" in judged.claim.open}
    assert with_ours == {("MNIST", "setting_epsilon"), ("CIFAR10", "setting_epsilon")}


def test_gradients_differ_by_no_more_than_the_hessian_allows():
    (claim,) = claims_of(PAPER.name, item="lemma-1")
    judged = judge(claim, smoothness_ratio(claim, NOTHING), "paper")
    assert judged.computed
    assert 0.9 < judged.measured <= 1, "nearly as much: the directions are the worst"

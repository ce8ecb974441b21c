"""Losing Less: accuracies, their gains and their dependence on the loss, against numbers taken by hand."""

from __future__ import annotations

import pytest

from runner.claims.evidence import collect
from runner.papers.losing_less import tables
from tests.papers.losing_less import only_verdict


def test_the_best_of_the_runs_below_the_budget_by_hand(tmp_path, record):
    # The last epoch is the one for 3, whose 3.005 the paper rounds; below 1.5 is the first.
    for seed, at in enumerate((61.0, 60.0, 59.2)):
        spent = {"epsilon": [1.4, 2.99, 3.005], "sound": [0.8, 1.6, 2.365]}
        record("fig_3", "cifar10_ours", (55.0 - seed, 70.0 + seed, at), seed, **spent)
    three = only_verdict(tmp_path, "fig-3", at_epsilon="<3", claimed="63.2")
    measured = three.measured
    assert (measured.value, list(measured.values), measured.n, measured.planned) == (61.0, [61.0, 60.0, 59.2], 3, 5)
    assert (measured.epsilon, measured.epsilon_sound) == (3.005, 2.365)
    assert measured.best == pytest.approx((70.0 + 71.0 + 72.0) / 3)
    assert (three.verdict, three.row.difference, three.row.guarantee) == ("too few runs", -2.2, "guaranteed")
    assert (three.row.mean, three.row.median) == (pytest.approx(60.0667, abs=1e-4), 60.0)
    assert measured.explanation.startswith("the best of the runs after epoch 3")
    half = only_verdict(tmp_path, "fig-3", at_epsilon="<1.5", claimed="55.4")
    assert (half.measured.value, half.measured.epsilon, half.verdict) == (55.0, 1.4, "too few runs")
    assert (half.row.mean, half.row.median) == (54.0, 54.0)
    assert half.measured.explanation.startswith("the best of the runs after epoch 1, the last below 1.5")
    rows = tables.budgets_3(collect(["losing_less/fig_3"], results_root=tmp_path), ()).rows
    row = next(r for r in rows if r[:3] == ["CIFAR-10", "losing-less", "2"])
    assert row[3:] == ["3 of 5", "1", "55.00", "54.00", "54.00", "53.00", "2", "72.00", "71.00", "71.00", "70.00"]


def test_the_gain_on_cifar10_is_above_the_others_seed_by_seed(tmp_path, record):
    """Gains of 5 and 3 on CIFAR-10 and of 1 and 2 on MNIST; a seed without its pair does not count."""
    for dataset, seeds in (("cifar10", ((64, 59), (62, 59))), ("mnist", ((98, 97), (99, 97)))):
        for seed, (ours, ce) in enumerate(seeds):
            record("fig_3", f"{dataset}_ours", [float(ours)], seed)
            record("fig_3", f"{dataset}_ce", [float(ce)], seed)
    record("fig_3", "mnist_ours", [10.0], 2)
    found = only_verdict(tmp_path, "fig-3", number="gain_beyond_the_others").measured
    assert (found.value, found.reference) == (2.5, 0.0)
    assert (found.sample.values, found.against.values) == ((5.0, 3.0), (1.0, 2.0))
    assert (found.n, found.planned) == (9, 30)
    assert "cifar10_ours 4.00, mnist_ours 1.50" in found.explanation

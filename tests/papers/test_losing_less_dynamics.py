"""Losing Less: norms, gradients, curvature and confusion during training, against numbers taken by hand."""

from __future__ import annotations

import pytest

from runner.claims.runs import Sample
from runner.papers.losing_less import dynamics
from tests.papers.losing_less import (
    CE,
    OURS,
    claims,
    evidence_of,
    gradients,
    lines,
    norms,
    only_verdict,
    verdict,
)


def test_ratios_of_norms_are_cross_entropys_over_ours(tmp_path, record):
    record("fig_1", "cifar10_ours", diagnostics=norms(8, 4.0, 5.0, 2))
    record("fig_1", "cifar10_ce", diagnostics=norms(8, 6.0, 10.0, 3))
    logits, weights = only_verdict(tmp_path, "fig-1a"), only_verdict(tmp_path, "fig-1b")
    assert (logits.measured.value, logits.verdict) == (pytest.approx(3.0), "too few runs")  # 30 over 10
    assert (weights.measured.value, weights.verdict) == (pytest.approx(2.25), "too few runs")  # 18 over 8
    for draw, ours, ce in ((dynamics.figure_1a, 10.0, 30.0), (dynamics.figure_1b, 8.0, 18.0)):
        (axes,) = draw(evidence_of(tmp_path, "fig-1a")).axes
        assert lines(axes) == {OURS: ([0, 1], [1.0, ours]), CE: ([0, 1], [1.0, ce])}


def test_figure_5_has_weights_above_pre_activations(tmp_path, record):
    for dataset, layers in (("cifar10", 8), ("fashion_mnist", 4)):
        record("fig_5", f"{dataset}_ours", diagnostics=norms(layers, 4.0, 5.0, 2))
        record("fig_5", f"{dataset}_ce", diagnostics=norms(layers, 6.0, 20.0, 3))
    ratios = {(c.dataset, c.number): verdict(c, tmp_path).measured.value for c in claims("fig-5")}
    assert ratios == {
        ("CIFAR10", "mean_weight_norm"): pytest.approx(5 / 3),  # (7 * 6 + 18) / (7 * 4 + 8)
        ("FashionMNIST", "mean_weight_norm"): pytest.approx(1.8),  # (3 * 6 + 18) / (3 * 4 + 8)
        ("CIFAR10", "hidden_weight_norms"): pytest.approx(1.5),
        ("CIFAR10", "pre_activation_norms"): pytest.approx(4.0),
        ("FashionMNIST", "last_weight_norm"): pytest.approx(2.25),
        ("FashionMNIST", "hidden_weight_norms"): pytest.approx(1.5),
        ("FashionMNIST", "pre_activation_norms"): pytest.approx(4.0),
    }


def test_norms_of_gradients(tmp_path, record):
    record("fig_1", "cifar10_ours", diagnostics=gradients((2.0, 4.0), 1.0, (4, 8)))  # runs that fig_11 has, too
    record("fig_1", "cifar10_ce", diagnostics=gradients((5.0, 10.0), 4.0, (10, 200)))
    smaller = only_verdict(tmp_path, "fig-1c", number="gradient_norm")
    denser = only_verdict(tmp_path, "fig-1c", number="gradient_norm_spread")
    assert (smaller.measured.value, smaller.verdict) == (pytest.approx(2.5), "too few runs")
    assert (denser.measured.value, denser.verdict) == (pytest.approx(4.0), "too few runs")
    every = only_verdict(tmp_path, "fig-6")
    assert (every.measured.value, every.verdict) == (pytest.approx(2.5), "too few runs")  # 7.5 over 3
    assert {verdict(c, tmp_path).verdict for c in claims("fig-14")} == {"not run"}  # the other data sets


def test_the_hessian(tmp_path, record):
    # Nine values: epochs 0 to 2 are early. Signs do not count.
    for name, values in (("ours", [-1.0] * 3 + [8.0] * 6), ("ce", [4.0] * 3 + [-16.0] * 6)):
        hessian = {"epoch": list(range(9)), "eigenvalue": values, "residual": [0.0] * 9}
        record("fig_2", f"mnist_{name}_hessian", [97.0] * 8, diagnostics={"hessian": hessian})
    every = only_verdict(tmp_path, "fig-2", number="eigenvalue")
    early = only_verdict(tmp_path, "fig-2", number="early_eigenvalue")
    assert every.measured.value == pytest.approx((0.25**3 * 0.5**6) ** (1 / 9))
    own, others = ((1.0**3 * 8.0**6) ** (1 / 9), (4.0**3 * 16.0**6) ** (1 / 9))
    assert (every.measured.sample, every.measured.against) == (
        Sample((pytest.approx(own),), (0,)), Sample((pytest.approx(others),), (0,)),
    )  # fmt: skip
    assert (every.measured.statistic, every.measured.comparison) == ("geometric", "ratio")
    assert every.verdict == "too few runs"
    assert early.measured.value == pytest.approx((1 / 8) / (4 / 16))
    assert (early.measured.comparison, early.measured.against.values) == ("ratio", (pytest.approx(1 / 4),))
    assert early.verdict == "too few runs"


def test_other_seeds_of_a_setting_are_in_its_mean_and_range(tmp_path, record):
    """The item plans seed 0; figure 3 plans five. Of norms 1 and 3 after an epoch the mean is 2, the range 1 to 3."""
    for seed, (sweep, norm_) in enumerate((("fig_1", 1.0), ("fig_3", 3.0))):
        record(sweep, "cifar10_ours", seed=seed, diagnostics=norms(8, 4.0, norm_, 1))
    (axes,) = dynamics.figure_1a(evidence_of(tmp_path, "fig-1a")).axes
    assert lines(axes)[OURS][1] == [1.0, 2.0]
    (area,) = axes.collections
    assert area.get_datalim(axes.transData).extents[[1, 3]].tolist() == [1.0, 3.0]
    assert "losing-less loss, n = 2 of 5" in [text.get_text() for text in axes.get_legend().get_texts()]

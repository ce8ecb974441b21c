"""Losing Less: norms, gradients, curvature and confusion during training, against numbers taken by hand."""

from __future__ import annotations

import pytest

from runner.papers.losing_less import dynamics
from tests.papers.losing_less import (
    CE,
    OURS,
    evidence_of,
    lines,
    norms,
    only_verdict,
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


def test_other_seeds_of_a_setting_are_in_its_mean_and_range(tmp_path, record):
    """The item plans seed 0; figure 3 plans five. Of norms 1 and 3 after an epoch the mean is 2, the range 1 to 3."""
    for seed, (sweep, norm_) in enumerate((("fig_1", 1.0), ("fig_3", 3.0))):
        record(sweep, "cifar10_ours", seed=seed, diagnostics=norms(8, 4.0, norm_, 1))
    (axes,) = dynamics.figure_1a(evidence_of(tmp_path, "fig-1a")).axes
    assert lines(axes)[OURS][1] == [1.0, 2.0]
    (area,) = axes.collections
    assert area.get_datalim(axes.transData).extents[[1, 3]].tolist() == [1.0, 3.0]
    assert "losing-less loss, n = 2 of 5" in [text.get_text() for text in axes.get_legend().get_texts()]

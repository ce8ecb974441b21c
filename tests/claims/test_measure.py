"""What a measure says of the runs that it is of."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest
from runner.report.claims import claims_path, read_claims

from runner.claims.evidence import Evidence, collect
from runner.claims.measured import of_sample, of_two
from runner.claims.runs import Sample
from runner.report import charges, measures
from runner.report.papers import known, load

ONE, OTHER = Sample((98.0, 96.0, 97.5), (0, 1, 2)), Sample((95.0, 97.0), (0, 3))


@pytest.mark.parametrize(
    ("statistic", "value"), [("mean", 291.5 / 3), ("best", 98.0), ("geometric", (98 * 96 * 97.5) ** (1 / 3))]
)
def test_a_statistic_of_a_sample_keeps_the_sample(statistic, value):
    found = of_sample(statistic, ONE)
    assert found.value == pytest.approx(value, rel=1e-15)
    assert (found.sample, found.statistic, found.values) == (ONE, statistic, ONE.values)
    assert (found.against, found.comparison) == (None, None)


def test_a_comparison_keeps_both_samples():
    gain = of_two("difference", "best", ONE, OTHER)
    assert (gain.value, gain.sample, gain.against) == (1.0, ONE, OTHER)
    assert not gain.values  # no run has a difference of its own
    ratio = of_two("ratio", "geometric", Sample((3.0,), (0,)), Sample((1.5,), (0,)))
    assert (ratio.value, ratio.comparison, ratio.reference) == (pytest.approx(2.0, rel=1e-15), "ratio", None)
    order = of_two("order", "mean", ONE, OTHER)
    assert (order.value, order.reference, order.values) == (pytest.approx(291.5 / 3), 96.0, ONE.values)


def test_runs_are_counted_and_carried_with_their_seeds(tmp_path, fabricate, jobs):
    tanh = jobs("fig_3", "mnist_tanh")
    for job, accuracies in zip(tanh[1:4], ([97.0, 99.0], [96.0, 98.0], [90.0, 95.0]), strict=True):
        fabricate(job, accuracies, epsilon=[1.0, 4.0])
    evidence = collect(["tempered_sigmoid/fig_3"], results_root=tmp_path)
    claims = read_claims(claims_path("tempered_sigmoid"))
    claim = next(c for c in claims if (c.item, c.experiment) == ("fig-3", tanh[0].experiment))
    claim = replace(claim, privacy_epsilon="3")
    seeds = tuple(job.config.seed for job in tanh[1:4])
    whole = measures.test_accuracy(claim, evidence)
    assert whole.sample == Sample((99.0, 98.0, 95.0), seeds)
    assert (whole.value, whole.n, whole.planned, whole.epsilon) == (fmean((99.0, 98.0, 95.0)), 3, 10, 4.0)
    within = measures.accuracy_within_epsilon(claim, evidence)
    assert within.sample == Sample((97.0, 96.0, 90.0), seeds)
    assert (within.value, within.epsilon) == (fmean((97.0, 96.0, 90.0)), 1.0)
    none = measures.accuracy_within_epsilon(replace(claim, privacy_epsilon="0.5"), evidence)
    assert (none.value, none.n, none.epsilon) == (None, 3, None)
    assert none.explanation == "no epoch of these runs stays below 0.5"
    assert measures.test_accuracy(claim, Evidence("paper", {})).value is None


@pytest.mark.parametrize("name", known())
def test_a_paper_has_no_measure_that_no_claim_names(name):
    named = {claim.measure for claim in read_claims(claims_path(name))}
    shared = {*vars(measures), *vars(charges)}
    own = set(load(name).measures) - shared
    assert own <= named

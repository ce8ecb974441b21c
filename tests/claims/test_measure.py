"""Measuring: numbers of a run by hand, epochs, samples, comparisons, counts and costs."""

import math

import pytest

from runner.claims.claim import Call
from runner.claims.evidence import Evidence
from runner.claims.measure import measure
from runner.claims.measurement import compare_samples, measure_sample
from runner.claims.numbers import READERS, check_call, epochs_of, reader_of
from runner.claims.verdicts import judge
from runner.report.papers import load
from tests.claims.made_up import claim, evidence, run
from tests.tracked import tracked_papers

ONE, OTHER = (98.0, 96.0, 97.5), (95.0, 97.0)
INF = (math.inf,) * 4


@pytest.mark.parametrize(
    ("statistic", "value"), [("mean", 291.5 / 3), ("best", 98.0), ("geometric", (98 * 96 * 97.5) ** (1 / 3))]
)
def test_a_statistic_of_a_sample_keeps_the_sample(statistic, value):
    result = measure_sample(statistic, ONE)
    assert result.value == pytest.approx(value, rel=1e-15)
    assert (result.sample, result.statistic, result.values) == (ONE, statistic, ONE)
    assert (result.against, result.comparison) == (None, None)


def test_a_comparison_keeps_both_samples():
    gain = compare_samples("difference", "best", ONE, OTHER)
    assert (gain.value, gain.sample, gain.against) == (1.0, ONE, OTHER)
    assert not gain.values  # no run has a difference of its own
    ratio = compare_samples("ratio", "geometric", (3.0,), (1.5,))
    assert (ratio.value, ratio.comparison, ratio.reference) == (pytest.approx(2.0, rel=1e-15), "ratio", None)
    order = compare_samples("order", "mean", ONE, OTHER)
    assert (order.value, order.reference, order.values) == (pytest.approx(291.5 / 3), 96.0, ONE)


@pytest.mark.parametrize(
    ("epoch", "epochs"),
    [
        ("last", [7]),
        ("first", [0]),
        ("quarter", [1]),
        ("epoch(3)", [2]),
        ("epoch(9)", [None]),
        ("below", [1]),  # epsilon is 1 to 8: the last below 3 is 2
        ("within", [2]),
        ("sound_within(3)", [5]),  # the sound one is half of it
        ("each_fifth", [0, 2, 3, 5, 7]),
    ],
)
def test_the_epoch_of_a_run(epoch, epochs):
    subject = run(accuracy=tuple(range(90, 98)))
    assert [epoch(subject) for epoch in epochs_of(claim(at=epoch, at_epsilon="<3"))] == epochs
    check_call("epoch", Call(epoch))


def test_runs_are_counted_and_charged_up_to_their_epoch():
    runs = [run(seed=seed, accuracy=(90.0, 92.0 + seed, 91.0)) for seed in range(2)]
    planned = evidence(*runs, run(seed=2, recorded=False))
    full = measure(claim(), planned, {})
    assert (full.value, full.sample, full.best) == (91.0, (91.0, 91.0), 92.5)
    assert (full.n, full.planned, full.epsilon, full.epsilon_sound, full.delta) == (2, 3, 3.0, 1.5, 1e-5)
    below = measure(claim(at="below", at_epsilon="3"), planned, {})
    assert (below.value, below.n, below.epsilon, below.epsilon_sound) == (92.5, 2, 2.0, 1.0)
    best = measure(claim(at="within", at_epsilon="2", statistic="best"), planned, {})
    assert (best.value, best.statistic, best.epsilon) == (93.0, "best", 2.0)
    none = measure(claim(at="below", at_epsilon="1"), planned, {})
    assert (none.value, none.n, none.epsilon) == (None, 2, None)
    assert none.explanation == "no epoch of these runs stays below 1"
    assert measure(claim(), Evidence("paper", {}), {}).value is None


def test_the_largest_of_a_search_has_no_sample_to_compare():
    result = measure(claim(statistic="largest"), evidence(run(), run(seed=1, accuracy=(97.0, 93.0))), {})
    assert (result.value, result.values, result.sample, result.chosen_on_test) == (95.0, (95.0, 93.0), None, True)


def test_only_what_is_private_is_charged_where_something_is():
    pair = ("p/a", "p/b")
    runs = evidence(run("p/a", epsilon=INF), run("p/b", accuracy=(80.0,) * 4))
    result = measure(claim(pair, compare="difference", at="below", at_epsilon="<3"), runs, {})
    assert (result.value, result.epsilon, result.epsilon_sound, result.n, result.planned) == (15.0, 2.0, 1.0, 2, 2)
    free = measure(claim(("p/a",)), runs, {})
    assert free.epsilon == math.inf


def test_runs_made_for_another_epsilon_do_not_count():
    runs = evidence(
        run("p/a", target_epsilon=1.0, accuracy=(90.0,)),
        run("p/a", seed=1, target_epsilon=3.0, accuracy=(99.0,)),
        run("p/b", target_epsilon=None, accuracy=(95.0,), epsilon=(math.inf,)),
    )
    compared = claim(("p/b", "p/a"), compare="difference", where="target_epsilon = claimed", at_epsilon="1")
    result = measure(compared, runs, {})
    assert (result.value, result.n, result.planned) == (5.0, 2, 2)
    with pytest.raises(ValueError, match=r"claims.yaml, line 1: p/a has no field 'target_epsilom'"):
        measure(claim(where="target_epsilom = 3"), runs, {})


def test_the_least_favourable_pair_is_shown_and_all_are_recorded():
    accuracies = {"p/a": 90.0, "p/b": 80.0, "p/c": 88.0, "p/d": 60.0}
    runs = evidence(*(run(name, seed, (value + seed,)) for name, value in accuracies.items() for seed in range(2)))
    pairs = (("p/a", "p/b"), ("p/a", "p/c"))
    result = measure(claim(*pairs, compare="difference", direction="above_other"), runs, {})
    assert (result.value, result.reference, result.n, len(result.statements), result.lacking) == (2.0, 0.0, 4, 2, ())
    below = measure(claim(*pairs, compare="difference", direction="below", level=20.0), runs, {})
    assert below.value == 10.0, "the larger one, where less is claimed"
    order = measure(claim(("p/a", "p/c"), ("p/b", "p/d"), compare="order", direction="above_other"), runs, {})
    assert (order.value, order.reference) == (90.5, 88.5)


def test_a_setting_in_several_pairs_counts_after_all_have_run():
    runs = evidence(run("p/a"), run("p/b"), run("p/c", recorded=False), run("p/d"), run("p/e"))
    best = claim(("p/a", "p/b"), ("p/a", "p/c"), compare="difference", direction="above_other")
    assert measure(best, runs, {}).value is None
    interval = claim(("p/a", "p/c"), ("p/d", "p/e"), compare="difference", direction="above_other")
    result = measure(interval, runs, {})
    assert (result.value, result.lacking) == (0.0, ("c",))
    assert judge(interval, result, "paper").verdict == "open"


def test_every_number_of_a_reader_is_a_statement():
    def norms(weights):
        return {"layer_norms": {"pre_activations": {str(i): [1.0, w] for i, w in enumerate(weights)}, "weights": {}}}

    runs = evidence(run("p/a", diagnostics=norms((6.0, 2.0))), run("p/b", diagnostics=norms((2.0, 4.0))))
    compared = claim(
        ("p/a", "p/b"), number="pre_activation_norms", compare="ratio", statistic="geometric", direction="above"
    )
    result = measure(compared, runs, {})
    assert [subject.value for subject in result.statements] == [pytest.approx(3.0), pytest.approx(0.5)]
    assert result.value == pytest.approx(0.5)


def swept(*accuracies: float | None):
    """Make a run for each value of the field x, 1, 2, 3, ..., recorded if there is an accuracy."""
    cases = [(x, value) for x, value in enumerate(accuracies, 1)]
    return evidence(*(run(accuracy=(value or 0.0,), recorded=value is not None, x=x) for x, value in cases))


@pytest.mark.parametrize(
    ("statistic", "value"), [("best_value", 2.0), ("spread", 4.0), ("lowest", 93.0), ("correlation", -0.6)]
)
def test_accuracies_by_the_values_of_a_field(statistic, value):
    """The accuracies have the ranks 3, 4, 1, 2, each 2 off: 1 - 6 * 16 / (4 * 15) = -0.6."""
    result = measure(claim(by="x", statistic=statistic), swept(95.0, 97.0, 93.0, 94.0), {})
    assert result.value == pytest.approx(value)
    assert (result.n, result.planned) == (4, 4)


def seeds(*means: float, spread: float = 0.1):
    """Make three runs for each value of the field x, 1, 2, 3, ..., with these means and this standard deviation."""
    return evidence(
        *(run(accuracy=(0.0, mean + spread * step), seed=step + 1, x=x, dataset={"name": "MNIST"})
          for x, mean in enumerate(means, 1) for step in (-1, 0, 1))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("means", "ends"),
    [
        ((95.0, 97.0, 95.0), (2.0, 2.0)),  # means 2 apart with a standard error of 0.06: the best is certain
        ((93.0, 95.0, 97.0), (3.0, math.inf)),  # at an end of the values, one beyond may be better
        ((95.0, 95.01, 95.0), (-math.inf, math.inf)),
    ],
)
def test_the_best_value_is_bounded_unless_it_is_at_an_end(means, ends):
    result = measure(claim(by="x", statistic="best_value"), seeds(*means), {}).interval_at(0.95)
    assert (result.low, result.high) == ends


@pytest.mark.parametrize(("direction", "ends"), [("above", (2.0, 2.0)), ("match", (-math.inf, math.inf))])
def test_a_claimed_best_value_has_the_spread_of_the_papers_runs(direction, ends):
    """Means are 0.3 apart. Their difference has an error of 0.08, and with a run each of the paper's 0.16."""
    subject = claim(by="x", statistic="best_value", direction=direction)
    result = measure(subject, seeds(95.0, 95.3, 95.0), {}).interval_at(0.95)
    assert (result.low, result.high) == ends


def test_a_range_of_means_that_are_equal_may_be_nothing():
    """Tables have q = 5.910 for three means and three degrees of freedom: 5.910 * 0.1 / sqrt(3 ln 2) = 0.4098."""
    equal = measure(claim(by="x", statistic="spread"), seeds(95.0, 95.05, 95.0), {}).interval_at(0.95)
    assert equal.low == 0.0
    interval = measure(claim(by="x", statistic="spread"), seeds(95.0, 97.0, 95.0), {}).interval_at(0.95)
    assert (interval.low, interval.high) == pytest.approx((2 - 0.4098, 2 + 0.4098), abs=1e-4)


def test_single_runs_of_swept_values_confirm_nothing():
    """The spread is typical of the settings, and a range of 0.05 is surely below 3."""
    negligible = claim(by="x", statistic="spread", direction="below", level=3.0)
    assert judge(negligible, measure(negligible, seeds(95.0, 95.05), {}), "paper").verdict == "holds"
    compared = seeds(95.0, 95.05).sweeps["p/s"][:4]
    assert judge(negligible, measure(negligible, evidence(*compared), {}), "paper").verdict == "open"


def test_the_spread_of_a_data_set_pools_its_finished_settings():
    """Two settings of three runs, 0.1 and 0.3 apart: the larger by sqrt(ln 2), and two degrees of freedom.

    A run that diverged and runs of one epoch do not count.
    """
    name = {"name": "MNIST"}
    both = [
        run(setting, accuracy=(0.0, mean + interval * step), seed=step, dataset=name)
        for setting, mean, interval in (("p/a", 95, 0.1), ("p/b", 80, 0.3))
        for step in (-1, 0, 1)
    ]
    broken = run("p/b", accuracy=(0.0, 10.0), seed=5, dataset=name)
    broken.record["status"] = "diverged"
    first_steps = [run("p/c", accuracy=(mean,), seed=mean, dataset=name) for mean in (10, 20, 30, 40)]
    result = evidence(*both, broken, *first_steps).spread("MNIST")
    assert (result.std, result.freedom) == (pytest.approx(0.3 / math.log(2) ** 0.5), 2)
    assert evidence(*both).spread("CIFAR10") is None


def test_a_spread_needs_half_of_the_values_that_a_claim_names():
    assert measure(claim(by="x", statistic="spread"), swept(95.0, None, None), {}).value is None
    assert measure(claim(by="x", statistic="spread"), swept(95.0, 97.0, None, None), {}).value == 2.0
    result = measure(claim(by="x", statistic="spread", among=2.0), swept(80.0, 97.0, 95.0), {})
    assert (result.value, result.n, result.planned) == (2.0, 2, 2)
    with pytest.raises(ValueError, match="has no field 'y'"):
        measure(claim(by="y", statistic="spread"), swept(95.0, 97.0), {})


NORMS = {"epoch": [0, 1], "weights": {"0": [1.0, 2.0], "1": [1.0, 3.0]}, "pre_activations": {"0": [1, 5], "1": [1, 7]}}
HISTOGRAM = {"mean": [2.0, 4.0], "median": [1.0, 3.0], "p90": [4.0, 9.0], "counts": []}
STEPS = [0, 10, 20, 30, 40]  # the last quarter begins at 30
AT_STEPS = [9.0, 9.0, 2.0, 6.0, 10.0]
LEVEL = ((2 + 2 * 6 + 10) / 4 + (6 + 2 * 10) / 3) / 2  # of moving averages with the weights 1, 2, 1
COSINES = {"step": [0, 5, 9, 20], "cosine": [0.8, 0.1, 0.3, 0.4]}  # every 20 steps; an epoch has 10
HESSIAN = {"epoch": list(range(9)), "eigenvalue": [-1.0] * 3 + [8.0] * 6}
CONFUSION = {"epoch": [2, 4], "counts": [[[30, 10], [0, 20]], [[40, 0], [10, 10]]]}


@pytest.mark.parametrize(
    ("text", "epoch", "diagnostics", "value"),
    [
        ("test_accuracy", 1, {}, 92.0),
        ("mean_accuracy", 1, {}, 91.0),
        ("mean_less_end", 1, {}, 91.0 - 95.0),
        ("class_accuracy_std", 3, {"per_class_accuracy": [[0.0, 0.0], [94.0, 98.0]]}, 2.0),
        ("class_train_accuracy(0)", 1, {"confusion": CONFUSION}, 75.0),
        ("class_train_accuracy(1)", 3, {"confusion": CONFUSION}, 50.0),
        ("logit_norm", 3, {"layer_norms": NORMS}, 7.0),
        ("last_weight_norm", 3, {"layer_norms": NORMS}, 3.0),
        ("pre_activation_norms", 3, {"layer_norms": NORMS}, [5.0, 7.0]),
        ("mean_weight_norm", 3, {"layer_norms": NORMS}, 2.5),
        ("hidden_weight_norms", 3, {"layer_norms": NORMS}, [2.0]),
        ("gradient_norm", 0, {"gradient_histogram": HISTOGRAM}, 2.0),
        ("gradient_norm_of_all", 1, {"gradient_histogram": HISTOGRAM}, 3.0),
        ("gradient_norm_spread", 0, {"gradient_histogram": HISTOGRAM}, 3.0),
        ("mean_gradient_norm", 3, {"gradient_norms": {"step": STEPS, "mean": AT_STEPS}}, 36 / 5),
        ("gradient_norm_level", 3, {"gradient_norms": {"step": STEPS, "mean": AT_STEPS}}, LEVEL),
        ("late_gradient_p90", 3, {"gradient_norms": {"step": STEPS, "p90": AT_STEPS}}, 8.0),
        ("first_activation_level", 3, {"activation_norms": {"step": STEPS, "1": AT_STEPS, "4": [0.0] * 5}}, LEVEL),
        ("gradient_growth", 3, {"layer_gradients": {"total": [2.0, 9.0, 5.0]}}, 2.5),
        ("moved_gradient", 3, {"layer_gradients": {"moved": [0.0, 0.5, 0.25]}}, 0.25),
        ("cosine", 3, {"gradient_cosine": COSINES}, 0.6),
        ("first_epoch_cosine", 0, {"gradient_cosine": COSINES}, 0.4),
        ("eigenvalue", 3, {"hessian": HESSIAN}, (8.0**6) ** (1 / 9)),
        ("early_eigenvalue", 3, {"hessian": HESSIAN}, 1 / 8),
        ("largest_image_norm", 3, {"norm_histograms": {"inputs": {"largest": 41.5}}}, 41.5),
    ],
)
def test_a_number_by_hand(text, epoch, diagnostics, value):
    recorded = run(diagnostics=diagnostics, diagnostics_every=20)
    assert reader_of(Call(text))(recorded, epoch) == pytest.approx(value, rel=1e-12)


def test_every_reader_is_tried_above_and_named_by_a_claim() -> None:
    (marked,) = test_a_number_by_hand.pytestmark
    tried = {Call(case[0]).name for case in marked.args[1]}
    assert tried == set(READERS)
    assert tried <= {claim.number.name for name in tracked_papers() for claim in load(name).claims}


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("epoch", "lst", "no epoch 'lst': choose from last"),
        ("epoch", "last(3)", "last takes no argument in brackets"),
        ("number", "test_acuracy", "no number 'test_acuracy': choose from .*test_accuracy"),
        ("number", "class_train_accuracy", "class_train_accuracy takes an argument in brackets"),
        ("number", "config(a, (b))", "no number 'config"),
    ],
)
def test_a_misspelt_epoch_or_reader_is_refused(kind: str, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_call(kind, Call(text), ["theorem_1"])
    check_call("number", Call("theorem_1"), ["theorem_1"])


def test_a_norm_that_is_no_number_stays_one() -> None:
    recorded = run(diagnostics={"layer_norms": {**NORMS, "pre_activations": {"0": [1.0, "NaN"]}}})
    assert math.isnan(float(reader_of(Call("logit_norm"))(recorded, 0)))

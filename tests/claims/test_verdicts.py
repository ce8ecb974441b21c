"""Verdicts at their boundaries."""

import math
from dataclasses import replace
from functools import partial

import pytest

from runner.claims.claim import Claim
from runner.claims.intervals import best_less_claim, bests_less_claim, measured_mean
from runner.claims.measurement import Measured, compare_samples, measure_sample
from runner.claims.verdicts import judge
from tests.claims import made_up

claim = partial(made_up.claim, margin=0.5)


@pytest.mark.parametrize(
    ("direction", "claimed", "value", "verdict"),
    [
        ("higher", "96.6", 96.1, "holds"),  # 96.6 - 96.1 > 0.5 in floating point
        ("higher", "96.6", 96.09, "fails"),
        ("higher", "96.1", 96.61, "holds"),
        ("lower", "3", 2.4, "holds"),
        ("lower", "3", 3.6, "fails"),
        ("match", "1.97", 2.4, "holds"),
        ("match", "1.97", 2.5, "fails"),
        ("above", ">5", 5.01, "holds"),
        ("above", ">5", 5.0, "fails"),
        ("below", "1", 0.9, "holds"),
        ("below", "1", math.inf, "fails"),
        ("match", "~1", math.nan, "fails"),
    ],
)
def test_what_is_computed_is_judged_by_its_value(direction, claimed, value, verdict):
    judged = judge(claim(direction=direction, claimed=claimed), Measured(value=value, computed=True), "paper")
    assert judged.verdict == verdict


@pytest.mark.parametrize(("direction", "verdict"), [("above_other", "holds"), ("below_other", "fails")])
def test_the_difference_of_an_order_is_that_of_the_two(direction, verdict):
    subject = Measured(value=0.5, reference=0.4, computed=True)
    judged = judge(claim(direction=direction, claimed="0.27"), subject, "paper")
    assert (judged.verdict, judged.difference) == (verdict, pytest.approx(0.1))


FIVE = (98.0, 98.1, 98.2, 98.3, 98.4)  # mean 98.2, s = 0.158114


@pytest.mark.parametrize(
    ("aggregate", "claimed", "verdict"),
    [
        ("single", "98.78", "fails"),  # the mean, 98.03, is known to 0.225, and the margin is 0.5
        ("best of search", "98.78", "differs"),  # the best, 98.3, is 0.48 below
        ("best of search", "98.81", "fails"),
    ],
)
def test_a_mean_fails_against_a_best_if_its_best_does(aggregate, claimed, verdict):
    runs = mean_of(*[98.0] * 9, 98.3)
    assert judge(claim(claimed=claimed, of=aggregate), runs, "paper").verdict == verdict


def mean_of(*values: float, **columns: object) -> Measured:
    return replace(measure_sample("mean", values), n=len(values), planned=len(values), **columns)


def decided(subject: Claim, measured: Measured) -> tuple[str, float | None, float | None, int | None]:
    judged = judge(subject, measured, "paper")
    ends = (round(judged.interval.low, 4), round(judged.interval.high, 4)) if judged.interval else (None, None)
    return (judged.verdict, *ends, judged.runs_needed)


@pytest.mark.parametrize(
    ("direction", "claimed", "verdict"),
    [
        # t(4) s sqrt(1/5 + 1/5) = 2.776445 * 0.158114 * 0.632456 = 0.277645; at 90% 2.131847 for t: 0.213185
        ("higher", "98.2", ("holds", -0.2776, 0.2776, None)),
        ("higher", "98.48", ("holds", -0.5576, -0.0024, None)),  # at 90% [-0.4932, -0.0668]
        ("higher", "98.50", ("differs", -0.5776, -0.0224, None)),  # at 90% [-0.5132, -0.0868]
        ("higher", "97.4", ("holds", 0.5224, 1.0776, None)),
        ("match", "97.4", ("fails", 0.5224, 1.0776, None)),
        ("higher", "99.0", ("fails", -1.0776, -0.5224, None)),
        ("lower", "99.0", ("holds", -1.0776, -0.5224, None)),
    ],
)
def test_a_mean_of_five_by_its_intervals(direction, claimed, verdict):
    subject = claim(direction=direction, claimed=claimed, of="mean of 5")
    assert decided(subject, mean_of(*FIVE)) == verdict
    precision = judge(subject, mean_of(*FIVE), "paper").own_precision
    assert precision == pytest.approx(0.196324, abs=1e-5)  # t(4) s / sqrt(5), and t(4) = 2.776445
    assert judge(subject, replace(mean_of(*FIVE), at_least=True), "paper").own_precision is None


@pytest.mark.parametrize(
    ("margin", "verdict"),
    [
        # half of the 95% interval is 0.277645: two margins of 0.14 are wider, of 0.138 are not
        (0.22, ("holds", -0.2776, 0.2776, None)),
        (0.21, ("not contradicted", -0.2776, 0.2776, None)),
        (0.14, ("not contradicted", -0.2776, 0.2776, None)),
        # six runs: 2.570582 * 0.158114 * sqrt(1/6 + 1/5) = 0.246117
        (0.138, ("open", -0.2776, 0.2776, 6)),
        # no number of runs: the claim's own mean of five leaves 1.96 * 0.158114 / sqrt(5) = 0.138593
        (0.069, ("open", -0.2776, 0.2776, None)),
    ],
)
def test_an_interval_of_two_margins_does_not_contradict(margin, verdict):
    assert decided(claim(claimed="98.2", of="mean of 5", margin=margin), mean_of(*FIVE)) == verdict


def test_a_claimed_single_run_is_judged_by_prediction_interval():
    """2.776445 * 0.158114 * sqrt(1/5 + 1) = 0.480895: 0.3 off and inside."""
    for aggregation in ("single", "single run", "unspecified", ""):
        subject = claim(claimed="98.5", margin=0.25, of=aggregation)
        assert decided(subject, mean_of(*FIVE)) == ("not contradicted", -0.7809, 0.1809, None)
        assert judge(subject, mean_of(*FIVE), "paper").own_precision is None
    assert decided(claim(claimed="98.2"), mean_of(*FIVE)) == ("holds", -0.4809, 0.4809, None)


def test_one_run_without_a_known_spread_decides_nothing():
    judged = judge(claim(claimed="98.1"), mean_of(98.1), "paper")
    assert (judged.verdict, judged.interval) == ("open", None)


def test_a_best_of_five_is_judged_by_five_runs():
    subject = claim(claimed="98.4", of="max of 5 (not said)")
    four, five = (measure_sample("best", FIVE[:n]) for n in (4, 5))
    assert decided(subject, four)[0] == "open"
    judged = judge(subject, five, "paper")
    assert judged.interval == best_less_claim(measured_mean(FIVE), 98.4, 5)
    assert judged.verdict == "holds"


def test_a_number_says_what_it_is():
    for statistic, other, text in (
        ("mean", (), "mean of 5"),
        ("best", (), "best of 5"),
        ("mean", FIVE[:4], "means of 5 and 4"),
        ("mean", FIVE[:1], "mean of 5 and one run"),
        ("best", FIVE[:4], "bests of 5 and 4, by means 0.05"),  # 98.2 - 98.15
    ):
        judged = compare_samples("difference", statistic, FIVE, other) if other else measure_sample(statistic, FIVE)
        assert judged.what == text
    assert compare_samples("ratio", "geometric", FIVE, FIVE).what == "geometric means of 5 and 5"
    assert replace(measure_sample("mean", FIVE), at_least=True).what == "bound on the mean of 5"
    assert measure_sample("mean", (math.inf, *FIVE)).what == "by 1 of 6 runs"
    assert [Measured(1.0, computed=True).what, Measured(1.0, n=3).what] == ["by formula", "from 3 runs"]
    assert [mean_of(98.0).what, Measured().what] == ["one run", ""]


def test_a_difference_of_bests_has_an_interval_of_bests():
    """Single runs would have 2.306004 * 0.158114 * sqrt(2 (1/5 + 1)) = 0.564855 to either side."""
    subject = claim(claimed="0", of="max of 5", statistic="best")
    judged = judge(subject, compare_samples("difference", "best", FIVE, FIVE), "paper").interval
    assert judged == bests_less_claim(measured_mean(FIVE), measured_mean(FIVE), 0.0, 5)
    assert judged.high > 0.58


def test_better_by_an_epoch_picked_on_test_data_differs():
    subject = claim(claimed="97.4", of="mean of 5")
    judged = judge(subject, mean_of(*FIVE, chosen_on_test=True), "paper")
    assert judged.verdict == "differs"
    same = claim(claimed="98.2", of="mean of 5")
    assert judge(same, mean_of(*FIVE, chosen_on_test=True), "paper").verdict == "holds"


@pytest.mark.parametrize(
    ("direction", "target", "verdict"),
    [
        # Student's: 2.776445 * 0.158114 / sqrt(5) = 0.196324 around 98.2
        ("above", "98.0", "holds"),
        ("above", "98.1", "open"),
        ("above", "98.4", "fails"),
        ("below", "98.4", "holds"),
        ("below", "98.0", "fails"),
    ],
)
def test_a_level_is_passed_by_the_whole_interval(direction, target, verdict):
    judged = judge(claim(direction=direction, level=float(target), margin=None), mean_of(*FIVE), "paper")
    assert judged.verdict == verdict
    assert judged.interval.high + float(target) == pytest.approx(98.396324, abs=1e-6)


@pytest.mark.parametrize(
    ("shift", "direction", "verdict"),
    [
        # Welch, equal spreads: t(8) s sqrt(2/5) = 2.306004 * 0.158114 * 0.632456 = 0.230600
        (0.24, "above_other", "holds"),
        (0.22, "above_other", "open"),
        (-0.24, "above_other", "fails"),
        (-0.24, "below_other", "holds"),
        (0.0, "below_other", "open"),
    ],
)
def test_an_order_by_the_interval_of_the_difference(shift, direction, verdict):
    judgement = compare_samples("order", "mean", tuple(value + shift for value in FIVE), FIVE)
    judged = judge(claim(direction=direction, margin=None), judgement, "paper")
    assert (judged.verdict, judged.difference) == (verdict, pytest.approx(shift))
    assert judged.interval.low == pytest.approx(shift - 0.2306, abs=1e-5)


def test_of_several_statements_all_have_to_hold():
    subject = claim(direction="above", level=98, margin=None)
    high, unsure, low = mean_of(*FIVE), mean_of(98.0, 98.1, 98.2), mean_of(*(value - 1 for value in FIVE))
    for statements, verdict in (
        ((high, high), "holds"),
        ((high, unsure), "open"),
        ((unsure, low, high), "fails"),
    ):
        least = min(statements, key=lambda judged: judged.value)
        judged = judge(subject, replace(least, statements=statements), "paper")
        assert judged.verdict == verdict
        assert judged.interval == judge(subject, least, "paper").interval, "that of the value shown"
    single = mean_of(97.5)
    judged = judge(subject, replace(single, statements=(single, low)), "paper")
    assert (judged.verdict, judged.interval) == ("fails", None)
    assert judged.reason == "1 of 2 statements: fails, such as one with 97.2, which lies in [97, 97.4]"
    lacking = replace(high, statements=(high, high), lacking=("cifar10_ours",))
    assert judge(subject, lacking, "paper").verdict == "open"
    assert judge(subject, replace(low, lacking=("cifar10_ours",)), "paper").verdict == "fails"


def test_several_statements_fail_only_beyond_corrected_chance():
    """t(4) s/sqrt(5): 2.776445 * 0.070711 = 0.1963 at 95%, 3.960 * 0.070711 = 0.2800 at 98.33%, for one of three."""
    high, low = mean_of(*(value + 1 for value in FIVE)), mean_of(*FIVE)
    for target, verdict in (("98.41", "open"), ("98.47", "open"), ("98.49", "fails")):
        subject = claim(direction="above", level=float(target), margin=None)
        assert judge(subject, low, "paper").verdict == "fails"
        assert judge(subject, replace(low, statements=(low, high, high)), "paper").verdict == verdict


def test_few_runs_that_agree_are_no_proof_of_no_spread():
    subject = claim(direction="above", level=0.9, margin=None)
    assert judge(subject, mean_of(0.0, 0.0), "paper").verdict == "open"
    assert judge(subject, mean_of(*[0.0] * 5), "paper").verdict == "fails"


@pytest.mark.parametrize(
    ("never", "verdict"),
    # Fisher: 4 of 5 against 0 of 5 is C(5, 4) / C(10, 4) = 0.0238, 3 of 5 is C(5, 3) / C(10, 3) = 0.083
    [(1, "open"), (3, "open"), (4, "fails"), (5, "fails")],
)
def test_a_cost_that_some_runs_never_reach(never, verdict):
    judged = mean_of(*[math.inf] * never, *[2.5] * (5 - never))
    subject = claim(direction="lower", claimed="2.5", margin=0.2, of="mean of 5")
    assert judge(subject, judged, "paper").verdict == verdict
    beyond = claim(direction="above", claimed=">6", margin=0, of="mean of 5")
    assert judge(beyond, judged, "paper").verdict == ("holds" if never == 5 else "open")
    assert judge(beyond, mean_of(*[math.inf] * 4), "paper").verdict == "open", "half of all runs may reach it"


def test_what_the_paper_does_not_claim_is_not_judged():
    for columns in ({"direction": "none"}, {"of": "copied"}):
        judged = judge(claim(claimed="98.2", because="shown", **columns), mean_of(*FIVE), "paper")
        assert (judged.verdict, bool(judged.reason)) == ("", True)


@pytest.mark.parametrize(
    ("claimed", "at_delta", "sound", "least", "delta", "privacy"),
    [
        ("2.93", "", 2.93, None, 1e-5, "guaranteed"),
        ("2.93", "", 2.9301, None, 1e-5, "not guaranteed"),
        ("2.93", "", math.inf, None, 1e-5, "not guaranteed"),
        ("<3", "", 2.999, None, 1e-5, "guaranteed"),
        ("<3", "", 3.0, None, 1e-5, "not guaranteed"),
        ("inf", "", math.inf, None, 1e-5, ""),
        ("", "", 2.0, None, 1e-5, ""),
        ("2.93", "", None, None, 1e-5, ""),
        # at the claimed delta or a smaller one only
        ("2.93", "1e-5", 2.0, None, 1e-5, "guaranteed"),
        ("2.93", "1e-5", 2.0, None, 1e-6, "guaranteed"),
        ("2.93", "1e-5", 2.0, None, 1.1e-5, "not guaranteed"),
        ("2.93", "1e-5", 2.0, None, None, "not guaranteed"),
        ("2.93", "0", 2.0, None, 1e-3, "guaranteed"),
        ("2.93", "1e-5", 3.0, None, 1e-9, "not guaranteed"),
        # only a lower bound refutes: (3, delta) and with it (3, any smaller delta)
        ("3", "1e-5", 5.0, 3.1, 1e-5, "refuted"),
        ("3", "1e-5", 5.0, 3.1, 1e-4, "refuted"),
        ("3", "1e-5", 5.0, 3.1, 1e-6, "not guaranteed"),
        ("3", "1e-5", 5.0, 2.9, 1e-5, "not guaranteed"),
    ],
)
def test_privacy(claimed, at_delta, sound, least, delta, privacy):
    subject = claim(at_epsilon=claimed, at_delta=at_delta, claimed="98.1")
    measured = Measured(value=98.0, n=1, planned=1, epsilon=2.0, epsilon_sound=sound, epsilon_least=least, delta=delta)
    assert judge(subject, measured, "paper").guarantee == privacy


def test_nothing_is_judged_at_another_scale_but_what_is_computed():
    subject = claim(at_epsilon="2.93", claimed="98.1")
    judged = judge(subject, Measured(value=98.1, n=1, planned=1, epsilon_sound=1.0), "smoke")
    assert (judged.verdict, judged.guarantee, judged.difference) == ("", "", None)
    assert judge(subject, Measured(value=98.1, computed=True), "smoke").verdict == "holds"


def test_not_run_has_no_number():
    judged = judge(claim(at_epsilon="2.93", claimed="98.1"), Measured(planned=10), "paper")
    assert (judged.verdict, judged.guarantee, judged.difference) == ("open", "", None)
    assert judged.mean is None


@pytest.mark.parametrize(("bound", "verdict"), [(2.9, "open"), (3.3, "differs"), (3.31, "fails")])
def test_a_bound_decides_only_where_it_is_out_of_reach(bound, verdict):
    low = claim(claimed="3", margin=0.3, direction="lower")
    assert judge(low, mean_of(*[bound] * 5, at_least=True), "paper").verdict == verdict

"""Verdicts at their boundaries."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from runner.report.claims import Claim, read_claims
from runner.report.files import bound_text, number
from runner.report.measured import Measured
from runner.report.summary import summarise
from runner.report.verdicts import explanation, judge


def claim(**columns: str) -> Claim:
    return Claim(
        **{
            **{field.name: "" for field in fields(Claim)},
            "direction": "higher",
            "tolerance": "0.5",
            **columns,
        }
    )


@pytest.mark.parametrize(
    ("direction", "claimed", "value", "verdict"),
    [
        ("higher", "96.6", 96.1, "reproduced"),  # 96.6 - 96.1 > 0.5 in floating point
        ("higher", "96.6", 96.09, "not reproduced"),
        ("higher", "96.1", 96.6, "reproduced"),
        ("higher", "96.1", 96.61, "better"),
        ("lower", "3", 2.4, "better"),
        ("lower", "3", 3.6, "not reproduced"),
        ("match", "1.97", 2.4, "reproduced"),
        ("match", "1.97", 2.5, "not reproduced"),
        ("above", ">5", 5.01, "reproduced"),
        ("above", ">5", 5.0, "not reproduced"),
        ("below", "1", 0.9, "reproduced"),
        ("below", "1", math.inf, "not reproduced"),
        ("match", "~1", math.nan, "not reproduced"),
    ],
)
def test_verdict(direction, claimed, value, verdict):
    judged = judge(claim(direction=direction, claimed_value=claimed), Measured(value=value, n=1, planned=1), "paper")
    assert judged.verdict == verdict


@pytest.mark.parametrize(("direction", "verdict"), [("above_other", "order holds"), ("below_other", "order fails")])
def test_an_order_has_no_difference(direction, verdict):
    judged = judge(claim(direction=direction, claimed_value="0.27"), Measured(value=0.5, reference=0.4), "paper")
    assert (judged.verdict, judged.difference) == (verdict, None)


@pytest.mark.parametrize(
    ("n", "planned", "reference_partial", "verdict"),
    [
        (1, 10, False, "reproduced (partial)"),
        (9, 10, False, "reproduced (partial)"),
        (10, 10, False, "reproduced"),
        (10, 10, True, "reproduced (partial)"),
    ],
)
def test_a_verdict_on_some_of_the_runs_is_partial(n, planned, reference_partial, verdict):
    one = Measured(value=98.0, n=n, planned=planned, reference_partial=reference_partial)
    assert judge(claim(claimed_value="98.1"), one, "paper").verdict == verdict


def test_every_verdict_can_be_partial_but_not_run():
    values = {"better": 99.0, "reproduced": 98.0, "not reproduced": 90.0}
    for verdict, value in values.items():
        judged = judge(claim(claimed_value="98.1"), Measured(value=value, n=1, planned=2), "paper")
        assert judged.verdict == f"{verdict} (partial)"
    order = claim(claimed_value="0.27", direction="above_other")
    for reference, verdict in ((0.1, "order holds (partial)"), (0.9, "order fails (partial)"), (None, "not run")):
        assert judge(order, Measured(value=0.5, n=1, planned=2, reference=reference), "paper").verdict == verdict
    assert judge(order, Measured(n=1, planned=2), "paper").verdict == "not run"
    assert judge(order, Measured(value=0.5, n=1, planned=2, reference=0.1), "smoke").verdict == "not judged"
    assert judge(claim(claimed_value="1"), Measured(value=1.0, computed=True), "paper").verdict == "reproduced"


@pytest.mark.parametrize(
    ("claimed", "sound", "privacy"),
    [
        ("2.93", 2.93, "holds"),
        ("2.93", 2.9301, "does not hold"),
        ("2.93", math.inf, "does not hold"),
        ("<3", 2.999, "holds"),
        ("<3", 3.0, "does not hold"),
        ("inf", math.inf, "not private"),
        ("", 2.0, "none claimed"),
        ("2.93", None, "undecided"),
    ],
)
def test_privacy(claimed, sound, privacy):
    measured = Measured(value=98.0, n=1, planned=1, epsilon=2.0, epsilon_sound=sound)
    assert judge(claim(privacy_epsilon=claimed, claimed_value="98.1"), measured, "paper").privacy == privacy


@pytest.mark.parametrize(
    ("claimed", "delta", "privacy"),
    [
        ("1e-5", 1e-5, "holds"),
        ("1e-5", 1e-6, "holds"),
        ("1e-5", 1.1e-5, "does not hold"),
        ("1e-5", None, "does not hold"),
        ("0", 1e-3, "holds"),
        ("", 1e-3, "holds"),
    ],
)
def test_an_epsilon_holds_only_at_the_claimed_delta(claimed, delta, privacy):
    one = claim(privacy_epsilon="2.93", privacy_delta=claimed, claimed_value="98.1", note="a note")
    judged = judge(one, Measured(value=98.0, n=1, planned=1, epsilon=2.0, epsilon_sound=2.0, delta=delta), "paper")
    assert judged.privacy == privacy
    text = "unknown" if delta is None else f"{delta:g}"
    both = f"the δ of the runs, {text}, is above the claimed δ, 1e-05; a note"
    assert explanation(judged) == ("a note" if privacy == "holds" else both)


def test_an_epsilon_too_large_does_not_hold_at_a_smaller_delta_either():
    one = claim(privacy_epsilon="2.93", privacy_delta="1e-5", claimed_value="98.1")
    judged = judge(one, Measured(value=98.0, n=1, planned=1, epsilon_sound=3.0, delta=1e-9), "paper")
    assert (judged.privacy, explanation(judged)) == ("does not hold", "")


def test_nothing_is_judged_at_another_scale_but_what_is_computed():
    one = claim(privacy_epsilon="2.93", claimed_value="98.1")
    judged = judge(one, Measured(value=98.1, n=1, planned=1, epsilon_sound=1.0), "smoke")
    assert (judged.verdict, judged.privacy, judged.difference) == ("not judged", "not judged", None)
    assert judge(one, Measured(value=98.1, computed=True), "smoke").verdict == "reproduced"


def test_not_run_has_no_number():
    judged = judge(claim(privacy_epsilon="2.93", claimed_value="98.1"), Measured(planned=10), "paper")
    assert (judged.verdict, judged.privacy, judged.difference) == ("not run", "not run", None)
    assert judged.summary.mean is None


def test_summary_by_hand():
    two = summarise([1.0, 2.0, 6.0])
    assert (two.n, two.mean, two.min, two.median, two.max) == (3, 3.0, 1.0, 2.0, 6.0)
    assert two.std == pytest.approx(math.sqrt(7))  # (4 + 1 + 9) / 2
    assert summarise([4.0]).std is None
    assert summarise([]).mean is None


def test_a_wrong_claims_file_names_its_line(tmp_path):
    path = tmp_path / "claims.csv"
    header = ",".join(field.name for field in fields(Claim))
    path.write_text(f"{header}\n" + ",".join(["x"] * len(fields(Claim))) + "\n")
    with pytest.raises(ValueError, match="line 2"):
        read_claims(path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.3615, "2.362"),
        (9.3194, "9.32"),
        (268_852.0, "2.689e+05"),
        (0.87 + 1e-12, "0.87"),
        (math.inf, "∞"),
        (None, "–"),
    ],
)
def test_a_sound_epsilon_is_rounded_up(value, text):
    assert bound_text(value) == text


def test_the_papers_epsilon_is_rounded_to_the_nearest():
    assert number(2.9283) == "2.928"


@pytest.mark.parametrize(("bound", "verdict"), [(2.9, "undecided"), (3.3, "undecided"), (3.31, "not reproduced")])
def test_a_bound_decides_only_where_it_is_out_of_reach(bound, verdict):
    low = claim(claimed_value="3", tolerance="0.3", direction="lower")
    assert judge(low, Measured(value=bound, n=5, planned=5, at_least=True), "paper").verdict == verdict

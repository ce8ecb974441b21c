"""What all figures share: which panels are drawn, and axes that show what differs."""

from __future__ import annotations

import pytest

from runner.claims.evidence import collect
from runner.claims.runs import Runs
from runner.report.plots import Curve, Panel, accuracy_against_epsilon, by_error, figure, spaced, too_few


def test_a_panel_below_half_of_its_settings_is_not_drawn(tmp_path, fabricate, jobs) -> None:
    """One of two settings is enough, one of three is not."""
    fabricate(jobs("fig_3", "mnist_tanh")[0], [90.0, 97.0], epsilon=[1.0, 2.9], sound=[0.5, 2.3])
    evidence = collect(["tempered_sigmoid/fig_3"], results_root=tmp_path)
    curves = [Curve("tempered_sigmoid/fig_3", f"tempered_sigmoid/mnist_{name}", name) for name in ("tanh", "relu")]
    curves.append(Curve("tempered_sigmoid/fig_3", "tempered_sigmoid/cifar10_tanh", "more"))
    two, three = Panel("two", curves[:2]), Panel("three", curves)
    drawn = accuracy_against_epsilon(evidence, [two, three])
    assert drawn is not None
    above, below = drawn.axes
    assert [above.get_title(), below.get_title()] == ["two", ""]
    for axes in (above, below):
        assert len([line for line in axes.lines if len(line.get_xdata())]) == 1
    assert drawn.get_supxlabel() == "Not drawn: three (1 of 3 settings run)."
    assert accuracy_against_epsilon(evidence, [three]) is None, "no figure of empty panels"
    assert too_few([Runs(), Runs()]) == "not run"


def test_accuracies_spread_by_their_error() -> None:
    """From 90 to 95 is about as far as from 95 to 97.5, which on a plain axis is half of it."""
    axes = figure(4, 3).subplots()
    axes.plot([0, 1], [80, 98])
    by_error(axes)
    to = axes.transData.transform
    height = {a: to((0, a))[1] for a in (90, 95, 97.5)}
    assert (height[95] - height[90]) / (height[97.5] - height[95]) == pytest.approx(1, rel=0.15)
    assert axes.get_ylim()[1] < 99
    assert 98 in axes.get_yticks()


def test_lines_differ_in_more_than_colour() -> None:
    marked = [spaced(range(60), place) for place in range(5)]
    assert len({each["marker"] for each in marked}) == 5
    assert all(each["markevery"][1] == 10 for each in marked)

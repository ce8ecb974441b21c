"""Figures: the choice of panels, and axes that show differences."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from runner.claims.evidence import Runs, collect
from runner.config import REPOSITORY
from runner.report import figures
from runner.report.leaderboard.methods import METHODS
from runner.report.papers import load
from runner.report.plots import GREY, LOOKS, WIDTH, Curve, Panel, accuracy_against_epsilon, too_few
from tests.tracked import tracked

RESULTS = REPOSITORY / "results"


def test_every_panel_is_drawn_and_counts_its_missing_runs(tmp_path, fabricate, jobs) -> None:
    """A claim is a star at the ε that the paper counts. There is no figure if no panel has half of its settings."""
    fabricate(jobs("fig_3", "mnist_tanh")[0], [90.0, 97.0], epsilon=[1.0, 2.9], sound=[0.5, 2.3])
    evidence = collect(["tempered_sigmoid/fig_3"], results_root=tmp_path)
    names = ("tanh", "relu", "sgd")
    first, *further = [Curve("tempered_sigmoid/fig_3", f"tempered_sigmoid/mnist_{name}", name) for name in names]
    claimed = replace(first, claimed=[(2.93, 98.0)])
    panels = [Panel("two", [claimed, further[0]]), Panel("three", [first, *further]), Panel("none", further)]
    fig = accuracy_against_epsilon(evidence, panels, epsilon=(0.0, 3.0))
    assert fig is not None
    titles = [axes.get_title() for axes in fig.axes]
    assert titles == ["two, one run of 10", "three, one run of 10", "none, not run"]
    texts = [[text.get_text() for text in axes.texts] for axes in fig.axes]
    assert texts == [["not run: relu"], ["not run: relu, sgd"], ["not run"]]
    (star,) = (line for line in fig.axes[0].lines if line.get_marker() == "*" and len(line.get_xdata()))
    assert (star.get_xdata(), star.get_ydata()) == ([2.93], [98.0])
    labels = {text.get_text() for text in fig.legends[0].get_texts()}
    assert labels == {"tanh", "claimed", "dotted: one run"}
    assert accuracy_against_epsilon(evidence, panels[1:]) is None, "one of three settings, and none of two"
    assert not too_few([evidence.planned(curve.sweeps, curve.experiment) for curve in panels[0].curves])


def test_a_panel_has_both_scales_of_epsilon(tmp_path, fabricate, jobs) -> None:
    """A sound ε stands above the ε that is counted at the same epoch, where all runs agree in it."""
    tanh, other, *_ = jobs("fig_3", "mnist_tanh")
    fabricate(tanh, [90.0, 97.0], epsilon=[1.0, 3.0], sound=[0.5, 2.5])
    panel = Panel("one", [Curve("tempered_sigmoid/fig_3", "tempered_sigmoid/mnist_tanh", "tanh")])
    (axes,) = accuracy_against_epsilon(collect(["tempered_sigmoid/fig_3"], results_root=tmp_path), [panel]).axes
    assert axes.get_xlabel() == "ε as the paper counts"
    (top,) = axes.child_axes
    assert top.get_xlabel() == "sound ε of the same runs"
    above = {text.get_text(): place for place, text in zip(top.get_xticks(), top.get_xticklabels(), strict=True)}
    assert (above["0.5"], above["1.5"], above["2.5"]) == (1.0, 2.0, 3.0)
    fabricate(other, [90.0, 97.0], epsilon=[1.0, 3.0], sound=[0.9, 9.0])
    (axes,) = accuracy_against_epsilon(collect(["tempered_sigmoid/fig_3"], results_root=tmp_path), [panel]).axes
    assert not axes.child_axes
    assert [text.get_text() for text in axes.texts] == ["sound ε at the end:\n2.5 to 9"]


def test_methods_have_colours_that_all_can_tell_apart() -> None:
    """Of Okabe and Ito, with grey, a dark yellow and indigo; methods of one colour have other markers."""
    colours = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", GREY, "#8C6D31", "#332288"}
    assert {colour for colour, _ in LOOKS.values()} <= colours
    assert "*" not in {marker for _, marker in LOOKS.values()}, "a star is a claim"
    assert all(LOOKS[method["look"]][0] == method["front"]["colour"] for method in METHODS)
    assert len({LOOKS[look] for look in LOOKS}) == len(LOOKS)


def test_committed_figures_can_be_read_on_a_page() -> None:
    """No text is below 8 points on a page of 900 pixels, which is 9.4 inches wide."""
    paths = [*tracked("results/*/*/figure.svg"), *tracked("results/verdicts/figure.svg")]
    assert len(paths) > 40
    for path in paths:
        text = path.read_text(encoding="utf-8")
        width = float(re.search(r'viewBox="0 0 ([\d.]+)', text)[1])  # type: ignore[index]
        sizes = [float(size) for size in re.findall(r"(?:font-size: |font: )(?:[a-z]+ )*([\d.]+)px", text)]
        assert sizes
        assert min(sizes) * min(1, 72 * WIDTH / width) >= 7.99, path


def test_a_point_is_a_run_at_both_epsilons(tmp_path, fabricate, jobs) -> None:
    """With its method's colour, at the sound epsilon that its record guarantees; a tenth may lie below."""
    trained = [*jobs("fig_3", "mnist_tanh"), *jobs("fig_3", "mnist_relu")]
    for place, job in enumerate(trained):
        fabricate(job, [50.0, 97.0 + 0.1 * place if place else 20.0], epsilon=[1.0, 2.9], sound=[0.5, 2.3])
    paper = load("tempered_sigmoid")
    evidence = collect({sweep for item in paper.items for sweep in paper.needs(item)}, results_root=tmp_path)
    runs = figures.priced_runs(paper, evidence)
    assert {run.job.run_id for run in runs} == {job.run_id for job in trained}
    fig = figures.draw_price(runs)
    assert fig is not None
    (axes,) = fig.axes
    assert axes.get_title() == f"MNIST, {len(trained)} runs"
    for face, epsilon in (("none", 2.9), (None, 2.3)):
        shown = [line for line in axes.lines if line.get_marker() not in ("v", "None")]
        points = [line for line in shown if (line.get_markerfacecolor() == "none") == (face == "none")]
        lines = {line.get_label(): line for line in points}
        assert set(lines["tanh"].get_xdata()) == set(lines["ReLU"].get_xdata()) == {epsilon}
        assert sorted(lines["tanh"].get_ydata())[0] == 20.0
        assert len(lines["tanh"].get_ydata()) + len(lines["ReLU"].get_ydata()) == len(trained)
        assert lines["tanh"].get_color() == LOOKS["tanh"][0]
    assert 90 < axes.get_ylim()[0] < 97.1, "the run at 20% is a triangle at the edge"
    assert [line.get_marker() for line in axes.lines].count("v") == 2
    (front,) = (line for line in axes.lines if line.get_label() == "best at or below each sound ε")
    assert max(front.get_ydata()) == 97.0 + 0.1 * (len(trained) - 1)
    assert set(front.get_xdata()) == {2.3}
    assert figures.draw_price(Runs()) is None


DRAW = """
import sys
from pathlib import Path
from runner.report import plots
with plots.style():
    drawn = plots.figure(4, 3)
    axes = drawn.subplots()
    off = float(sys.argv[2])
    axes.plot([1, 2, 3 + off], [1 + off, 2, 1.12345], "o-", label="ε of 1.23456")
    axes.fill_between([1, 2], [off, 0.5], [1, 1.5], alpha=0.2)
    axes.scatter([1, 2 + off], [1, 1.7 + off], c=[1, 2])
    axes.legend()
    plots.save(drawn, Path(sys.argv[1]))
"""


def test_a_figure_is_the_same_under_other_rounding_and_processes(tmp_path: Path) -> None:
    written = []
    for seed, off in (("1", "0"), ("2", "1e-9")):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        folder = tmp_path / seed
        subprocess.run([sys.executable, "-c", DRAW, str(folder), off], check=True, env=environment, cwd=REPOSITORY)
        written.append((folder / "figure.svg").read_text(encoding="utf-8"))
    assert written[0] == written[1]
    assert "ε of 1.23456" in written[0], "text stays text, and as it was written"
    references = set(re.findall(r"#(i\d+)", written[0]))
    assert references
    assert references <= set(re.findall(r'id="(i\d+)"', written[0]))

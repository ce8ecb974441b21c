"""Figures 5, 10 and 11: accuracy against epsilon, and fronts of it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from runner.claims.claim import DATASETS as IN_PAPERS
from runner.claims.runs import PAPER_SCALE, Evidence, Runs
from runner.claims.statistics import pareto
from runner.records.identity import identify_recorded
from runner.records.jobs import Job, sweep_jobs
from runner.report import plots
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "lipschitz"
_BUDGET = 3.0  # the sound epsilon at which a trial is chosen
_SEEDS = range(1, 6)  # other than the search's own
_SEARCHED, _CLIPPED, _PLAIN = (plots.LOOKS[name][0] for name in ("Lipschitz", "Lipschitz, clipped", "tanh"))
_RETRAINED, _AS_PAPER, _SMALL, _LARGE = (
    "#000000",
    "#D55E00",
    "#E69F00",
    "#56B4E9",
)  # other ways to choose a Lipschitz network


def front(dataset: str, number: str, chosen: str, evidence: Evidence) -> Figure:
    """Draw one data set: every epoch of every trial, and different fronts.

    One front is on held-out images, over all epochs of all trials. One is on test images: the trial chosen by the
    first, trained again with other seeds. One is the paper's: the largest accuracy on test images over all epochs of
    all draws. Two settings from explorations are added; the second, `chosen`, was chosen on held-out images of MNIST.
    DP-SGD with tanh at the same sound epsilons is added, too.
    """
    drawn = plots.figure(plots.WIDTH, 5.6)
    axes = drawn.subplots()
    plain = evidence.planned(f"{PAPER}/fig_{number}_plain", f"tempered_sigmoid/{dataset}_tanh")
    levels = [
        *_searched(axes, evidence.recorded(f"{PAPER}/fig_{number}_search", f"{PAPER}/{dataset}_drawn"), evidence),
        *_as_paper(axes, evidence.planned(f"{PAPER}/fig_{number}_as_paper", f"{PAPER}/{dataset}_drawn")),
        *_ours(axes, evidence.planned(f"{PAPER}/fig_{number}", f"{PAPER}/{dataset}_mlp"), 256, _SMALL),
        *_ours(axes, evidence.planned(f"{PAPER}/fig_{number}", f"{PAPER}/{dataset}_{chosen}"), 512, _LARGE),
        *_band(axes, plain, "DP-SGD with tanh, a convolutional network: test images", _PLAIN),
    ]
    every = claims_of(PAPER, item="repo", quantity="test_accuracy")
    for claim in (claim for claim in every if IN_PAPERS[claim.dataset] == dataset):
        for point in plots.points_of([claim]) if evidence.scale == PAPER_SCALE else ():
            levels.append(point[1])
            axes.plot(
                *point,
                color=_SEARCHED,
                label="claimed by the authors' notebook, with too little noise",
                **plots.CLAIMED,
            )
    _finish(axes, levels, dataset, "accuracy (%)", easier(evidence, number, dataset))
    return drawn


def clipped(evidence: Evidence) -> Figure:
    """Draw figure 11: fronts over every epoch of every trial, on held-out images, clipped and clipless."""
    drawn = plots.figure(plots.WIDTH, 4)
    for axes, dataset, letter in zip(drawn.subplots(1, 2), ("mnist", "fashion_mnist"), "ab", strict=True):
        levels: list[float] = []
        for label, number, colour, line in (
            ("clipped", f"11{letter}", _CLIPPED, "--"),
            ("clipless", f"5{letter}_search", _SEARCHED, "-"),
        ):
            trials = evidence.of(sweep_jobs(f"{PAPER}/fig_{number}", (f"scale={evidence.scale}",))).recorded
            levels += _step(axes, _front(trials), label, colour, f"{len(trials)} trials", line)
        _finish(axes, levels, dataset, "accuracy (%) on held-out images")
    return drawn


def by_architecture(evidence: Evidence) -> Figure | None:
    """Draw figure 10: CIFAR-10, a line per architecture."""
    lines = (
        ("mixers", "mixer", "MLP-mixer"),
        ("fig_5c", "vgg", "VGG"),
        ("fig_5c", "resnet", "ResNet"),
        ("fig_5c_at_3", "mlp", "two linear layers"),
    )
    curves = [plots.Curve(f"{PAPER}/{sweep}", f"{PAPER}/cifar10_{name}", label) for sweep, name, label in lines]
    return plots.accuracy_against_epsilon(evidence, [plots.Panel(plots.DATASETS["cifar10"], curves)])


def easier(evidence: Evidence, number: str, dataset: str) -> str:
    """Return the gain of the same draws on held-out images over test images, in words, or "" if there are none."""
    held_out, on_test = (
        {run.field("draw"): run.final("test_accuracy") for run in evidence.recorded(sweep, f"{PAPER}/{dataset}_drawn")}
        for sweep in (f"{PAPER}/fig_{number}_search", f"{PAPER}/fig_{number}_as_paper")
    )
    gains = [held_out[draw] - accuracy for draw, accuracy in on_test.items() if draw in held_out]
    said = f"the same {len(gains)} draws: held-out accuracy minus test accuracy is {{:+.2f}} points on average"
    return said.format(fmean(gains)) if gains else ""


def _searched(axes: Axes, trials: Runs, evidence: Evidence) -> list[float]:
    """Draw every epoch of every trial with their front, and the trial chosen by it; return accuracies."""
    said = "search: best up to each ε, held-out images"
    for place, run in enumerate(trials):
        label = "search: each epoch of each trial, held-out images" if place == 0 else None
        points = run.history("epsilon_sound"), run.history("test_accuracy")
        axes.plot(*points, ".", color="0.8", markersize=2, label=label)
    levels = _step(axes, _front(trials), said, _SEARCHED, f"{len(trials)} trials")
    retrained = evidence.of(_retrained(trials))
    return levels + _band(axes, retrained, "chosen by it, trained again: test images, mean and range", _RETRAINED)


def _retrained(trials: Runs) -> list[Job]:
    """Return the runs of the trial that is best within the budget on all training images, with new seeds."""
    within = trials.at(lambda run: run.last_within(_BUDGET))
    if not within:
        return []
    best, _ = max(within, key=lambda pair: pair[0].history("test_accuracy")[pair[1]])
    every = [{**best.job.values, "evaluation": "test", "seed": seed} for seed in _SEEDS]
    return [Job(best.job.sweep, best.job.overrides, *identify_recorded(values), values) for values in every]


def _front(runs: Runs) -> list[tuple[float, float]]:
    return pareto((run.history("epsilon_sound"), run.history("test_accuracy")) for run in runs.recorded)


def _as_paper(axes: Axes, planned: Runs) -> list[float]:
    said = "as the paper does: best up to each ε, test images"
    return _step(axes, _front(planned), said, _AS_PAPER, plots.runs_text(planned), "--")


def _ours(axes: Axes, planned: Runs, units: int, colour: str) -> list[float]:
    return _band(axes, planned, f"{units} units, a setting chosen here: test images, mean and range", colour)


def _step(
    axes: Axes, points: Sequence[tuple[float, float]], label: str, colour: str, count: str, line: str = "-"
) -> list[float]:
    if not points:
        return []
    axes.step(*zip(*points, strict=True), where="post", color=colour, label=f"{label}, {count}", linestyle=line)
    return [accuracy for _, accuracy in points]


def _band(axes: Axes, planned: Runs, label: str, colour: str) -> list[float]:
    if not planned.recorded:
        return []
    found = plots.band(planned.recorded, "epsilon_sound", "test_accuracy")
    look = plots.spaced(found.x, len(axes.collections))  # one for each band before it
    found.draw(axes, colour, 0.2, **look, label=f"{label}, {plots.runs_text(planned)}")
    return found.high


def _finish(axes: Axes, levels: Sequence[float], dataset: str, quantity: str, remark: str = "") -> None:
    if levels:
        axes.set_ylim(max(min(levels), max(levels) - 25) - 1, max(levels) + 1)
    else:
        plots.mark_not_run(axes)
    plots.legend_below(axes)
    axes.set(title=remark or plots.DATASETS[dataset], xlabel=plots.SOUND, ylabel=quantity, xlim=(0, None))

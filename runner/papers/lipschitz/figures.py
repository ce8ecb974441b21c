"""Figures 5, 10 and 11: accuracy against epsilon, and fronts of it. Figures 6 and 7: norms, as runs recorded them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from runner.claims.claim import DATASETS as IN_PAPERS
from runner.claims.runs import PAPER_SCALE, Evidence, PlannedRun, Runs, grouped
from runner.claims.statistics import pareto
from runner.records.identity import identify_recorded
from runner.records.jobs import Job, sweep_jobs
from runner.report import plots
from runner.report.papers import claims_of

PAPER = "lipschitz"
_BUDGET = 3.0  # the sound epsilon at which a trial is chosen
_SEEDS = range(1, 6)  # other than the search's own
_SEARCHED, _CLIPPED, _PLAIN = (plots.LOOKS[name][0] for name in ("Lipschitz", "Lipschitz, clipped", "tanh"))
_RETRAINED, _AS_PAPER, _SMALL, _LARGE = "#000000", "#D55E00", "#E69F00", "#56B4E9"  # other ways to choose a network
_WHITE = 32 * 3**0.5  # norm of a white image of CIFAR-10
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # lines may lie on one another


def front(dataset: str, number: str, chosen: str, evidence: Evidence) -> plots.Figure:
    """Draw one data set: every epoch of every trial, and different fronts.

    One front is on held-out images, over all epochs of all trials. One is on test images: the trial chosen by the
    first, trained again with other seeds. One is the paper's: the largest accuracy on test images over all epochs of
    all draws. Two settings from explorations are added; the second, `chosen`, was chosen on held-out images of MNIST.
    DP-SGD with tanh at the same sound epsilons is added, too.
    """
    figure = plots.figure(plots.WIDTH, 5.6)
    axes = figure.subplots()
    sweep = f"{PAPER}/fig_{number}"
    trials = evidence.recorded(f"{sweep}_search", f"{PAPER}/{dataset}_drawn")
    for place, run in enumerate(trials):
        label = "search: each epoch of each trial, held-out images" if place == 0 else None
        points = run.history("epsilon_sound"), run.history("test_accuracy")
        axes.plot(*points, ".", color="0.8", markersize=2, label=label)
    text = "search: best up to each ε, held-out images"
    levels = _step(axes, _front(trials), text, _SEARCHED, f"{len(trials)} trials")
    text = "chosen by it, trained again: test images, mean and range"
    levels += _band(axes, evidence.of(_retrained(trials)), text, _RETRAINED)
    redrawn = evidence.planned(f"{sweep}_as_paper", f"{PAPER}/{dataset}_drawn")
    text = "as the paper does: best up to each ε, test images"
    levels += _step(axes, _front(redrawn), text, _AS_PAPER, plots.runs_text(redrawn), "--")
    for name, units, colour in (("mlp", 256, _SMALL), (chosen, 512, _LARGE)):
        text = f"{units} units, a setting chosen here: test images, mean and range"
        levels += _band(axes, evidence.planned(sweep, f"{PAPER}/{dataset}_{name}"), text, colour)
    plain = evidence.planned(f"{sweep}_plain", f"tempered_sigmoid/{dataset}_tanh")
    levels += _band(axes, plain, "DP-SGD with tanh, a convolutional network: test images", _PLAIN)
    claims = claims_of(PAPER, item="repo", quantity="test_accuracy")
    for claim in (claim for claim in claims if IN_PAPERS[claim.dataset] == dataset):
        for point in plots.points_of([claim]) if evidence.scale == PAPER_SCALE else ():
            levels.append(point[1])
            text = "claimed by the authors' notebook, with too little noise"
            axes.plot(*point, color=_SEARCHED, label=text, **plots.CLAIMED)
    _finish(axes, levels, dataset, "accuracy (%)", _split_gap(evidence, number, dataset))
    return figure


def clipped(evidence: Evidence) -> plots.Figure:
    """Draw figure 11: fronts over every epoch of every trial, on held-out images, clipped and clipless."""
    figure = plots.figure(plots.WIDTH, 4)
    for axes, dataset, letter in zip(figure.subplots(1, 2), ("mnist", "fashion_mnist"), "ab", strict=True):
        levels: list[float] = []
        for label, number, colour, line in (
            ("clipped", f"11{letter}", _CLIPPED, "--"),
            ("clipless", f"5{letter}_search", _SEARCHED, "-"),
        ):
            trials = evidence.of(sweep_jobs(f"{PAPER}/fig_{number}", (f"scale={evidence.scale}",))).recorded
            levels += _step(axes, _front(trials), label, colour, f"{len(trials)} trials", line)
        _finish(axes, levels, dataset, "accuracy (%) on held-out images")
    return figure


def architectures(evidence: Evidence) -> plots.Figure | None:
    """Draw figure 10: CIFAR-10, a line per architecture."""
    lines = (
        ("mixers", "mixer", "MLP-mixer"),
        ("fig_5c", "vgg", "VGG"),
        ("fig_5c", "resnet", "ResNet"),
        ("fig_5c_at_3", "mlp", "two linear layers"),
    )
    curves = [plots.Curve(f"{PAPER}/{sweep}", f"{PAPER}/cifar10_{name}", label) for sweep, name, label in lines]
    return plots.accuracy_against_epsilon(evidence, [plots.Panel(plots.DATASETS["cifar10"], curves)])


def _split_gap(evidence: Evidence, number: str, dataset: str) -> str:
    """Return the gain of the same draws on held-out images over test images, in words, or "" if there are none."""
    held_out, on_test = (
        {run.field("draw"): run.final("test_accuracy") for run in evidence.recorded(sweep, f"{PAPER}/{dataset}_drawn")}
        for sweep in (f"{PAPER}/fig_{number}_search", f"{PAPER}/fig_{number}_as_paper")
    )
    gains = [held_out[draw] - accuracy for draw, accuracy in on_test.items() if draw in held_out]
    text = f"the same {len(gains)} draws: held-out accuracy minus test accuracy is {{:+.2f}} points on average"
    return text.format(fmean(gains)) if gains else ""


def _retrained(trials: Runs) -> list[Job]:
    """Return the runs of the trial that is best within the budget on all training images, with new seeds."""
    within = trials.at(lambda run: run.last_within(_BUDGET))
    if not within:
        return []
    best, _ = max(within, key=lambda pair: pair[0].history("test_accuracy")[pair[1]])
    settings = [{**best.job.values, "evaluation": "test", "seed": seed} for seed in _SEEDS]
    return [Job(best.job.sweep, best.job.overrides, *identify_recorded(values), values) for values in settings]


def _front(runs: Runs) -> list[tuple[float, float]]:
    return pareto((run.history("epsilon_sound"), run.history("test_accuracy")) for run in runs.recorded)


def _step(
    axes: plots.Axes, points: Sequence[tuple[float, float]], label: str, colour: str, count: str, line: str = "-"
) -> list[float]:
    if not points:
        return []
    axes.step(*zip(*points, strict=True), where="post", color=colour, label=f"{label}, {count}", linestyle=line)
    return [accuracy for _, accuracy in points]


def _band(axes: plots.Axes, planned: Runs, label: str, colour: str) -> list[float]:
    if not planned.recorded:
        return []
    band = plots.band(planned.recorded, "epsilon_sound", "test_accuracy")
    look = plots.spaced(band.x, len(axes.collections))  # one for each band before it
    band.draw(axes, colour, 0.2, **look, label=f"{label}, {plots.runs_text(planned)}")
    return band.high


def _finish(axes: plots.Axes, levels: Sequence[float], dataset: str, quantity: str, remark: str = "") -> None:
    if levels:
        axes.set_ylim(max(min(levels), max(levels) - 25) - 1, max(levels) + 1)
    else:
        plots.mark_not_run(axes)
    plots.legend_below(axes)
    axes.set(title=remark or plots.DATASETS[dataset], xlabel=plots.SOUND, ylabel=quantity, xlim=(0, None))


def histograms(sweep: str, label: Callable[[PlannedRun], str], evidence: Evidence) -> plots.Figure:
    """Draw two panels, images and gradients after the last epoch, with a line for the first run of each setting."""
    figure = plots.figure(plots.WIDTH, 3.8)
    images, gradients = figure.subplots(1, 2)
    planned = evidence.planned(sweep, f"{PAPER}/cifar10_norms")
    for place, (run, *_) in enumerate(grouped(planned, label).values()):
        if run.record is None:
            plots.mark_not_run(images, [label(run)])
            continue
        norms = run.diagnostic("norm_histograms")
        for axes, histogram in ((images, norms["inputs"]), (gradients, norms["gradients"][-1])):
            counts = [float(count) for count in histogram["counts"]]
            edges = [float(histogram["largest"]) * edge / len(counts) for edge in range(len(counts) + 1)]
            look: dict[str, Any] = {"color": f"C{place}", "linestyle": _DASHES[place % len(_DASHES)]}
            axes.stairs([count / sum(counts) for count in counts], edges, label=label(run), **look)
    for axes, title in ((images, "images"), (gradients, "gradients, after one epoch")):
        axes.set(title=title, xlabel="L2 norm", ylabel="share of 2,048 training images", xlim=(0, None))
        if not planned.recorded:
            plots.mark_not_run(axes, without_ticks=True)
    plots.one_legend(figure, 5)
    return figure


def clipped_to(run: PlannedRun) -> str:
    """Return in words the norm that a run's images are clipped to, if any image of CIFAR-10 can be larger."""
    norm = float(run.field("features.largest_norm"))
    return f"clipped to {norm:g}" if norm < _WHITE else "not clipped"

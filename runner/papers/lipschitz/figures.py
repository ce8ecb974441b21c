"""Figures 5, 10 and 11: accuracy against epsilon, and fronts of it. Figures 6 and 7: norms, as runs recorded them.

Figure 4: time of an epoch and peak memory, as measured by `python -m checks benchmark-clipless`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import scipy  # its modules are imported at their first use

from runner.claims.claim import DATASETS as IN_PAPERS
from runner.claims.claim import Claim
from runner.claims.evidence import PAPER_SCALE, Evidence, PlannedRun, Runs, grouped
from runner.claims.intervals import Interval, pareto
from runner.claims.measure import Formula
from runner.claims.measurement import Measured, measure_sample
from runner.claims.verdicts import ClaimRow
from runner.config import REPOSITORY
from runner.records.identity import identify_recorded
from runner.records.jobs import Job, sweep_jobs
from runner.report import plots
from runner.report.formats import Table, read_csv
from runner.report.papers import claims_of

PAPER = "lipschitz"
_BUDGET = 3.0  # the sound epsilon at which a trial is chosen
_SEEDS = range(1, 6)  # other than the search's own
_SEARCHED, _CLIPPED, _PLAIN = (plots.LOOKS[name][0] for name in ("Lipschitz", "Lipschitz, clipped", "tanh"))
_RETRAINED, _AS_PAPER, _SMALL, _LARGE = "#000000", "#D55E00", "#E69F00", "#56B4E9"  # other ways to choose a network
_WHITE = 32 * 3**0.5  # norm of a white image of CIFAR-10
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # lines may lie on one another


def front(dataset: str, number: str, chosen: str, evidence: Evidence) -> "plots.Figure":
    """Draw one data set: every epoch of every trial, and different fronts.

    One front is on held-out images, over all epochs of all trials. One is on test images: the trial chosen by the
    first, trained again with other seeds. One is the paper's: the largest accuracy on test images over all epochs of
    all draws. Two settings from explorations are added; the second, `chosen`, was chosen on held-out images of MNIST.
    DP-SGD with tanh at the same sound epsilons is added, too.
    """
    figure = plots.figure(plots.WIDTH, 5.6)
    axes = figure.subplots()
    sweep, draws = f"{PAPER}/fig_{number}", f"{PAPER}/{dataset}_drawn"
    trials, redrawn = evidence.recorded(f"{sweep}_search", draws), evidence.planned(f"{sweep}_as_paper", draws)
    for place, run in enumerate(trials):
        label = "search: each epoch of each trial, held-out images" if place == 0 else None
        points = run.history("epsilon_sound"), run.history("test_accuracy")
        axes.plot(*points, ".", color="0.8", markersize=2, label=label)
    text = f"search: best up to each ε, held-out images, {len(trials)} trials"
    levels = _front(axes, trials, text, _SEARCHED)
    text = "chosen by it, trained again: test images, mean and range"
    levels += _band(axes, evidence.of(_retrained(trials)), text, _RETRAINED)
    text = f"as the paper does: best up to each ε, test images, {plots.runs_text(redrawn)}"
    levels += _front(axes, redrawn.recorded, text, _AS_PAPER, "--")
    for name, units, colour in (("mlp", 256, _SMALL), (chosen, 512, _LARGE)):
        text = f"{units} units, a setting chosen here: test images, mean and range"
        levels += _band(axes, evidence.planned(sweep, f"{PAPER}/{dataset}_{name}"), text, colour)
    plain = evidence.planned(f"{sweep}_plain", f"tempered_sigmoid/{dataset}_tanh")
    levels += _band(axes, plain, "DP-SGD with tanh, a convolutional network: test images", _PLAIN)
    claims = claims_of(PAPER, item="repo", quantity="test_accuracy")
    claimed = plots.points_of([claim for claim in claims if IN_PAPERS[claim.dataset] == dataset])
    for epsilon, accuracy in claimed if evidence.scale == PAPER_SCALE else ():
        levels.append(accuracy)
        text = "claimed by the authors' notebook, with too little noise"
        axes.plot(epsilon, accuracy, color=_SEARCHED, label=text, **plots.CLAIMED)
    # The gain of the same draws on held-out images over test images.
    on_test = {run.field("draw"): run.final("test_accuracy") for run in redrawn.recorded}
    held_out = {run.field("draw"): run.final("test_accuracy") for run in trials}
    gains = [held_out[draw] - accuracy for draw, accuracy in on_test.items() if draw in held_out]
    title = f"the same {len(gains)} draws: held-out accuracy minus test accuracy is"
    remark = f"{title} {fmean(gains):+.2f} points on average" if gains else ""
    _finish(axes, levels, dataset, "accuracy (%)", remark)
    return figure


figure_5a, figure_5b = partial(front, "mnist", "5a", "softer"), partial(front, "fashion_mnist", "5b", "wide")


def clipped(evidence: Evidence) -> "plots.Figure":
    figure = plots.figure(plots.WIDTH, 4)
    for axes, dataset, letter in zip(figure.subplots(1, 2), ("mnist", "fashion_mnist"), "ab", strict=True):
        levels: list[float] = []
        lines = ("clipped", f"11{letter}", _CLIPPED, "--"), ("clipless", f"5{letter}_search", _SEARCHED, "-")
        for label, number, colour, line in lines:
            trials = evidence.of(sweep_jobs(f"{PAPER}/fig_{number}", (f"scale={evidence.scale}",))).recorded
            levels += _front(axes, trials, f"{label}, {len(trials)} trials", colour, line)
        _finish(axes, levels, dataset, "accuracy (%) on held-out images")
    return figure


def architectures(evidence: Evidence) -> "plots.Figure | None":
    lines = (
        ("mixers", "mixer", "MLP-mixer"),
        ("fig_5c", "vgg", "VGG"),
        ("fig_5c", "resnet", "ResNet"),
        ("fig_5c_at_3", "mlp", "two linear layers"),
    )
    curves = [plots.Curve(f"{PAPER}/{sweep}", f"{PAPER}/cifar10_{name}", label) for sweep, name, label in lines]
    return plots.accuracy_against_epsilon(evidence, [plots.Panel(plots.DATASETS["cifar10"], curves)])


def _retrained(trials: Runs) -> list[Job]:
    """Return the runs of the trial that is best within the budget on all training images, with new seeds."""
    within = trials.at(lambda run: run.last_within(_BUDGET))
    if not within:
        return []
    best, _ = max(within, key=lambda pair: pair[0].history("test_accuracy")[pair[1]])
    settings = [{**best.job.values, "evaluation": "test", "seed": seed} for seed in _SEEDS]
    return [Job(best.job.sweep, best.job.overrides, *identify_recorded(values), values) for values in settings]


def _front(axes: "plots.Axes", runs: Runs, label: str, colour: str, line: str = "-") -> list[float]:
    """Draw the best accuracy of recorded runs up to each sound epsilon. Return the accuracies of the front."""
    front = pareto((run.history("epsilon_sound"), run.history("test_accuracy")) for run in runs)
    if front:
        axes.step(*zip(*front, strict=True), where="post", color=colour, label=label, linestyle=line)
    return [accuracy for _, accuracy in front]


def _band(axes: "plots.Axes", planned: Runs, label: str, colour: str) -> list[float]:
    if not planned.recorded:
        return []
    band = plots.band(planned.recorded, "epsilon_sound", "test_accuracy")
    place = len(axes.collections)  # one for each band before it
    band.draw(axes, (colour, ""), place, 0.2, label=f"{label}, {plots.runs_text(planned)}")
    return band.high


def _finish(axes: "plots.Axes", levels: Sequence[float], dataset: str, quantity: str, remark: str = "") -> None:
    if levels:
        axes.set_ylim(max(min(levels), max(levels) - 25) - 1, max(levels) + 1)
    else:
        plots.mark_not_run(axes)
    plots.legend_below(axes)
    axes.set(title=remark or plots.DATASETS[dataset], xlabel=plots.SOUND, ylabel=quantity, xlim=(0, None))


def histograms(sweep: str, label: Callable[[PlannedRun], str], evidence: Evidence) -> "plots.Figure":
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


figure_6 = partial(histograms, f"{PAPER}/fig_6", lambda run: str(run.field("features.space")).upper())
figure_7 = partial(histograms, f"{PAPER}/fig_7", clipped_to)

MEASURED = REPOSITORY / "results" / "benchmark" / "clipless.csv"  # never written by a run
METHODS = {  # label and look
    "non_private_faster": ("not private", "SGD, ReLU"),
    "clipless": ("clipless DP-SGD", "Lipschitz"),
    "one_pass": ("DP-SGD, this project's engine", "ReLU"),
    "opacus_hooks": ("DP-SGD, Opacus", "plain DP-SGD, Opacus"),
    "projection": ("the projection alone", "Lipschitz, projection"),
}
_LARGE_BATCH = 512  # the smallest that counts as large
_EXAMPLES = 50_000  # per epoch
_COMMAND = "`python -m checks benchmark-clipless` measures it."
_HOW = "Steps were timed in turns, on a CPU in the process's time; an epoch is as many as make 50,000 examples."


def measured_times() -> list[dict[str, str]]:
    return read_csv(MEASURED) if MEASURED.exists() else []


def table_4(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    header, rows, times = ("network", "batch", "method", "s an epoch", "peak MiB"), [], measured_times()
    for row in times:
        network = f"{row['network']}, {int(row['parameters']):,} parameters"
        seconds = f"{row['s_per_epoch']} [{row['s_q1']}, {row['s_q3']}]"
        rows.append((network, row["batch"], METHODS[row["method"]][0], seconds, row["peak_mib"]))
    if not times:
        return Table(header, rows, (f"Not run: {_COMMAND}",))
    first = times[0]
    note = f"Medians [quartiles] of {first['device']}, one thread, {first['date']}. {_COMMAND} {_HOW}"
    networks = (
        "Clipless DP-SGD and its projection are for the Lipschitz network, the others for the ordinary one: ReLU, "
        "max-pooling and the same convolutions, nothing centred or bounded. This project's engine has kernels of its "
        "own for convolutions, so its clipped step can take less time than PyTorch's ordinary one."
    )
    return Table(header, rows, (note, networks, "Made-up images of CIFAR-10's shape."))


def figure_4(_: Evidence) -> "plots.Figure | None":
    """Draw two panels per network, seconds of an epoch and peak memory by batch size; None if nothing was timed."""
    rows = measured_times()
    if not rows:
        return None
    networks = list(dict.fromkeys(row["network"] for row in rows))
    quantities = {"s_per_epoch": "time of an epoch (s)", "peak_mib": "peak memory of a step (MiB)"}
    figure = plots.figure(plots.WIDTH, 6)
    for column, network in enumerate(networks):
        for line, (quantity, label) in enumerate(quantities.items()):
            axes = figure.add_subplot(2, len(networks), line * len(networks) + column + 1)
            for method, (name, look) in METHODS.items():
                timed = [row for row in rows if (row["network"], row["method"]) == (network, method) and row[quantity]]
                points = [int(row["batch"]) for row in timed], [float(row[quantity]) for row in timed]
                if timed:
                    axes.plot(*points, color=plots.LOOKS[look][0], marker=plots.LOOKS[look][1], label=name)
            plots.log_axis(axes, "x", sorted({int(row["batch"]) for row in rows}))
            axes.set(title=network, xlabel="batch size", ylim=(0, None))
            axes.set_ylabel(label if column == 0 else "")
    plots.one_legend(figure)
    return figure


def _sampled(ratios: Callable[[Claim], list[tuple[str, float]]], claim: Claim, _: Evidence) -> Measured:
    """Return a measure from the one table of times. Networks are the sample: their ratios are means of batch sizes."""
    by_network = grouped(ratios(claim), lambda ratio: ratio[0])
    if not by_network:
        return Measured(explanation="not measured yet", planned=1)
    means = {network: fmean(ratio for _, ratio in pairs) for network, pairs in by_network.items()}
    words = ", ".join(f"{network} {mean:.3g}" for network, mean in means.items())
    sampled = measure_sample("mean", tuple(means.values()), explanation=words)
    return replace(sampled, n=1, planned=1, kind=f"mean of {len(means)} networks")


def _clipless_pairs(column: str, claim: Claim) -> list[tuple[str, float, float]]:
    """Return networks in large batches, and their numbers in a column: clipless, and by the claimed method."""
    values = {(row["network"], int(row["batch"]), row["method"]): row[column] for row in measured_times()}
    return [
        (network, float(value), clipped)
        for (network, batch, method), value in values.items()
        if method == "clipless" and batch >= _LARGE_BATCH and value
        if (clipped := float(values[network, batch, claim.number.argument] or 0)) > 0  # a failed measurement is NaN
    ]


def _time_ratios(claim: Claim) -> list[tuple[str, float]]:
    return [(network, clipless / clipped) for network, clipless, clipped in _clipless_pairs("s_per_epoch", claim)]


@Formula
def memory_below_clipping(claim: Claim, _: Evidence) -> Measured:
    """Return the largest ratio of peak memories, clipless over the claimed method; each ratio is a statement.

    A peak is read once. A projection does the same at every batch size, so its readings of a network show how much one
    varies. Let s be their pooled standard deviation, with f degrees of freedom. The logarithm of a ratio a / b of two
    readings is then known to plus or minus t_f s sqrt(1/a^2 + 1/b^2).
    """
    pairs = _clipless_pairs("peak_mib", claim)
    repeated = [row for row in measured_times() if row["method"] == "projection" and row["peak_mib"]]
    groups = [[float(row["peak_mib"]) for row in rows] for rows in grouped(repeated, lambda r: r["network"]).values()]
    freedom = sum(len(readings) - 1 for readings in groups)
    if not pairs:
        return Measured(explanation="not measured yet", planned=1)
    squares = sum((reading - fmean(readings)) ** 2 for readings in groups for reading in readings)
    std = math.sqrt(squares / max(1, freedom))

    def ratio(clipless: float, clipped: float) -> Measured:
        error = std * math.hypot(1 / clipless, 1 / clipped)

        def interval_at(level: float) -> Interval:
            factor = math.exp(float(scipy.special.stdtrit(freedom, (1 + level) / 2)) * error)
            return Interval(clipless / clipped / factor, clipless / clipped * factor)

        value = clipless / clipped
        return Measured(value, sample=(value,), interval_at=interval_at if freedom else None)

    by_network = grouped(pairs, lambda pair: pair[0])
    words = (f"{name} {' and '.join(f'{a / b:.3g}' for _, a, b in ratios)}" for name, ratios in by_network.items())
    ratios = [ratio(clipless, clipped) for _, clipless, clipped in pairs]
    largest = max(ratios, key=lambda statement: statement.value or 0.0)
    text = f"{', '.join(words)}. A reading varies by {std:.1f} MiB"
    kind = f"largest of {len(ratios)} ratios"
    return replace(largest, statements=tuple(ratios), n=1, planned=1, kind=kind, explanation=text)


def _projection_ratios(_: Claim) -> list[tuple[str, float]]:
    """Return networks, and the seconds of one projection at each batch size over those at the smallest batch size."""
    ratios: list[tuple[str, float]] = []
    rows = [row for row in measured_times() if row["method"] == "projection"]
    for network, timed in grouped(rows, lambda row: row["network"]).items():
        steps = {int(row["batch"]): _EXAMPLES // int(row["batch"]) for row in timed}
        seconds = {batch: float(row["s_per_epoch"]) / steps[batch] for batch, row in zip(steps, timed, strict=True)}
        least = min(seconds)
        ratios += [(network, s / seconds[least]) for batch, s in seconds.items() if batch > least]
    return ratios


faster_than_clipping = Formula(_sampled, _time_ratios)
projection_cost = Formula(_sampled, _projection_ratios)

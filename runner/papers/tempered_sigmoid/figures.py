"""Figures, the searches behind tables 3 and 4, and measures of this paper only.

Claimed numbers are stars, or dashed where they are no single number.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from runner.claims.claim import Claim, dataset_name
from runner.claims.evidence import PAPER_SCALE, Evidence, PlannedRun, Runs, last_accuracy
from runner.claims.intervals import between, less_claim, measured_mean, stdev
from runner.claims.measure import Formula, computed, counted, planned_for, prepared, run_formula
from runner.claims.measurement import FEWEST_RUNS, Measured, charged, measure_sample
from runner.claims.numbers import (
    class_accuracy_std,
    first_activation_norms,
    level,
    mean_gradient_norms,
    triangular_average,
)
from runner.claims.verdicts import ClaimRow
from runner.report import plots
from runner.report.formats import Table, bound_text, mean_text, number
from runner.report.papers import claims_of

PAPER = "tempered_sigmoid"
FIG_3 = f"{PAPER}/fig_3"
TABLE_3_SEARCH = ("tempered_sigmoid/table_3_search", "tempered_sigmoid/table_3_cifar10_search")
TABLE_4_SEARCH = ("tempered_sigmoid/table_4_search_sgd", "tempered_sigmoid/table_4_search_adam")
_TABLE_3 = tuple(f"{PAPER}/table_3{part}" for part in ("_chosen", "_cifar10_chosen", ""))  # the first with a technique
_TABLE_4 = ("tempered_sigmoid/table_4",)  # at the paper's rates
_HEADER = (
    *("dataset", "technique", "paper (%)", "here (%)", "n", "ε of the paper", "sound ε", "learning rate"),
    *("rates searched", "best rate", "accuracy on held-out images (%)"),
)
_SHOWN = tuple(name for name in _HEADER[:8] if name != "ε of the paper")


def searched(sweeps: Sequence[str], tables: Sequence[str], evidence: Evidence, judged: Sequence[ClaimRow]) -> Table:
    """Return the paper's table with the accuracies here, and beside it the search of each learning rate.

    `tables`: the sweeps of the paper's table. A technique is taken from the first one that has it.
    """
    rows = []
    claims = {row.claim.alone: row.claim for row in reversed(judged) if row.claim.quantity == "test_accuracy"}
    for sweep in sweeps:
        for experiment, planned in Runs(evidence.sweeps.get(sweep, ())).by(lambda run: run.job.experiment).items():
            best = planned.recorded.best if planned.recorded else None
            rate = f"{best.field('optimizer.lr'):g}" if best else "–"
            accuracy = number(last_accuracy(best) if best else None, "%")
            final = evidence.planned(tables, experiment)
            rates = ", ".join(f"{rate:g}" for rate in final.groups_by("optimizer.lr")) or "–"
            runs, claim = final.recorded, claims.get(experiment)
            here = mean_text(runs.finals("test_accuracy"), "%") if runs else "–"
            costs = [bound_text(runs.largest(name)) if runs else "–" for name in ("epsilon", "epsilon_sound")]
            labels = dataset_name(planned[0].field("dataset.name")), planned[0].field("title")
            told = [claim.claimed if claim else "", here, final.recorded_of, *costs, rates]
            rows.append((*labels, *told, planned.recorded_of, rate, accuracy))
    return Table(_HEADER, rows, shown=_SHOWN)


table_3, table_4 = partial(searched, TABLE_3_SEARCH, _TABLE_3), partial(searched, TABLE_4_SEARCH, _TABLE_4)


_DRAWS, _LEAST_TRIPLES = 2000, 10  # a tenth of fewer is less than one run


def top_triples(runs: Runs) -> Runs:
    """Return the tenth of the runs (rounded up) with the highest last-epoch accuracy; ties by the order of draws."""
    return Runs(sorted(runs, key=lambda run: -run.final("test_accuracy"))[: math.ceil(len(runs) / 10)])


def enough_triples(planned: Runs) -> bool:
    """Return True if a sweep is complete enough for a best tenth: half of it, and ten runs."""
    return len(planned.recorded) >= max(_LEAST_TRIPLES, len(planned) / 2)


@run_formula
def mean_of_best_tenth(claim: Claim, runs: Runs) -> Measured:
    """Return the mean of the config field named in brackets over the best tenth of the triples."""
    recorded, field = runs.recorded, claim.number.argument
    if not enough_triples(runs):
        needed = math.ceil(max(_LEAST_TRIPLES, len(runs) / 2))
        return Measured(explanation=f"too few of the triples have run to speak of the best tenth: {needed} are needed")
    top = top_triples(recorded)
    explanation = f"over the best {len(top)} of {len(recorded)} triples, and so is the spread"
    measured = measure_sample("mean", top.sample(lambda run: float(run.field(field))), explanation=explanation)
    accuracies = np.array([last_accuracy(run) for run in recorded])
    values = np.array([float(run.field(field)) for run in recorded])
    resampled = np.random.default_rng(0).integers(len(recorded), size=(_DRAWS, len(recorded)))
    best = np.argsort(-accuracies[resampled], axis=1, kind="stable")[:, : len(top)]
    means = values[np.take_along_axis(resampled, best, axis=1)].mean(1)
    off = means[::2] - means[1::2]  # the paper's sweep is another draw, assumed to have as many triples

    lacks = f"{len(recorded)} of {len(runs)} triples have run" if len(recorded) < len(runs) else ""
    kind = f"mean of the best {len(top)} of {len(recorded)} triples"
    measured = replace(measured, interval_at=partial(between, fmean(measured.values) + off), lacks=lacks, kind=kind)
    return charged(replace(measured, n=len(top), planned=math.ceil(len(runs) / 10)), recorded.last)


@Formula
def triples_above_relu(claim: Claim, evidence: Evidence) -> Measured:
    """Return the share of triples (the claim's first experiment) above the mean accuracy of ReLU (its second).

    For the interval, both are drawn again: the triples from those that ran, ReLU's mean with its standard error.
    """
    triples, relu = (planned_for(claim, evidence, name) for name in claim.experiments)
    if not relu.recorded or not enough_triples(triples):
        return counted(triples, Measured())
    relu_finals = relu.finals("test_accuracy")
    level = fmean(relu_finals)
    share = triples.sample(lambda run: float(last_accuracy(run) > level))
    text = f"{sum(share):g} of {len(share)} triples above {level:.2f}%, ReLU's mean"
    measured = replace(measure_sample("mean", share, explanation=text), kind=f"share of {len(share)} triples")
    if len(relu_finals) < FEWEST_RUNS:
        return counted(triples, replace(measured, sample=None))  # no spread of ReLU, so no interval
    accuracies, rng = np.array([last_accuracy(run) for run in triples.recorded]), np.random.default_rng(0)
    resampled = accuracies[rng.integers(len(accuracies), size=(_DRAWS, len(accuracies)))]
    error = stdev(relu_finals) / math.sqrt(len(relu_finals))
    levels = level + error * rng.standard_t(len(relu_finals) - 1, size=(_DRAWS, 1))
    return counted(triples, replace(measured, interval_at=partial(between, (resampled > levels).mean(1))))


@Formula
def tanh_less_best_triple(claim: Claim, evidence: Evidence) -> Measured:
    """Return each tanh run's accuracy (the claim's second experiment) minus the best triple's (its first).

    The best triple has one run. For the interval, this run is assumed to have the spread of the tanh runs.
    """
    triples, tanh = (planned_for(claim, evidence, name) for name in claim.experiments)
    if not tanh.recorded or not enough_triples(triples):
        return counted(tanh, Measured())
    best = last_accuracy(triples.best)
    lead = tanh.sample(lambda run: last_accuracy(run) - best)
    measured = measure_sample("mean", lead, explanation=f"the best of {len(triples.recorded)} triples has {best:.2f}%")
    measured = replace(measured, kind=f"{measured.what}, less the best of {len(triples.recorded)} triples")
    if len(lead) < FEWEST_RUNS:
        return counted(tanh, replace(measured, sample=None))  # no spread, so no interval
    return counted(tanh, replace(measured, interval_at=partial(less_claim, [measured_mean(lead)], 0.0, 1)))


@computed
def standard_setting_epsilon(claim: Claim) -> Measured:
    """Return the epsilon of all epochs of the MNIST runs' setting, with their batches of 256 and with 250.

    The runs end earlier, at the claimed epsilon. The value is by classic RDP, the accounting of the paper's time, with
    batches of 256.
    """
    from runner.accounting import RdpClassic, sound_epsilon  # here, because plans need neither

    run = prepared("tempered_sigmoid/fig_3", "tempered_sigmoid/mnist_tanh")
    batch, other, epochs, delta = run.config.batch_size, 250, run.config.epochs, run.config.delta
    ledgers = [replace(run.mechanism, batch_size=size).charges_of_epochs(epochs) for size in (batch, other)]
    epsilons = [RdpClassic().epsilon(ledger.claimed, delta) for ledger in ledgers]
    sound = [sound_epsilon(ledger.actual, delta) for ledger in ledgers]
    texts = [number(epsilon, places=3, bound="upper") for epsilon in (*epsilons, *sound)]
    return Measured(
        value=epsilons[0],
        epsilon=epsilons[0],
        epsilon_sound=sound[0],
        delta=delta,
        explanation=f"{claim.claimed} is not what {epochs} epochs cost: classic RDP gives {texts[0]} "
        f"with batches of {batch} and {texts[1]} with {other}, the sound value is {texts[2]} and {texts[3]}",
    )


FIG_2, FIG_4 = f"{PAPER}/fig_2", f"{PAPER}/fig_4"
TRIPLE = {  # the fields that figure 2 varies: the name, and the claimed quantity
    "activation.scale": ("scale s", "mean of s"),
    "activation.inverse_temperature": ("inverse temperature T", "mean of T"),
    "activation.offset": ("offset o", "mean of o"),
}
TANH = (2.0, 2.0, 1.0)
_TRIPLES = ((1.0, 2.0, 0.5), (4.0, 2.0, 2.0), (2.0, 0.5, 1.0), (2.0, 5.0, 1.0), (2.0, 2.0, 0.0))  # the paper lists none


def figure_1(_: Evidence) -> "plots.Figure":
    """Draw phi for tanh, with emphasis, for some other (s, T, o), and for the paper's best mean on CIFAR-10."""
    import torch  # here, because plans need no PyTorch

    from runner.networks.activations import TemperedSigmoid

    means = {claim.quantity: claim.aim for claim in claims_of(PAPER, item="fig-2", dataset="CIFAR10")}
    best = tuple(means[quantity] or 0.0 for _, quantity in TRIPLE.values())
    x = torch.linspace(-5, 5, 201, dtype=torch.float64)
    figure = plots.figure(6, 4)
    axes = figure.subplots()
    for i, triple in enumerate((TANH, *_TRIPLES, best)):
        label = "({:g}, {:g}, {:g})".format(*triple) + (" = tanh" if triple == TANH else "")
        width, look = (3.0, plots.LOOKS["tanh"]) if triple == TANH else (1.2, (f"C{i}", plots.MARKERS[i + 1]))
        line = plots.spaced(x, i, look[1])
        axes.plot(x, TemperedSigmoid(*triple)(x), linewidth=width, color=look[0], **line, label=label)
    axes.set(xlabel="x", ylabel="φ(x) = s · sigmoid(T x) − o")
    axes.legend(title="(s, T, o)", loc="upper left")
    return figure


def figure_3(evidence: Evidence) -> "plots.Figure | None":
    panels = []
    for dataset, title in plots.DATASETS.items():
        curves = []
        for label in ("tanh", "ReLU"):
            plain = f"{PAPER}/{dataset}_{label.lower()}"
            leading = (f"{FIG_3}_stax_{dataset}", plain), (_TABLE_3[1], f"{plain}_40")  # readings, where they were run
            sweep, name = next((pair for pair in leading if evidence.recorded(*pair)), (FIG_3, plain))
            points = plots.points_of(claims_of(PAPER, item="fig-3", alone=name))
            curves.append(plots.Curve(sweep, name, label, points))
        panels.append(plots.Panel(title, curves))
    return plots.accuracy_against_epsilon(evidence, panels)


def figure_2(evidence: Evidence) -> "plots.Figure":
    """Draw accuracy over s, T and o, a row each, and a column per data set. The paper has all three in space."""
    figure = plots.figure(plots.WIDTH, 7.6)
    grid = figure.subplots(len(TRIPLE), len(plots.DATASETS), sharex="row", sharey="col")
    for column, (dataset, title) in zip(grid.T, plots.DATASETS.items(), strict=True):
        experiment = f"{PAPER}/{dataset}_triple"
        planned = evidence.planned(FIG_2, experiment)
        claims = {c.quantity: c for c in reversed(claims_of(PAPER, item="fig-2")) if c.experiment == experiment}
        levels = {}  # mean accuracies of ReLU and tanh, the second experiments of two claims, if they have runs
        for look, quantity in (("ReLU", "share of triples above ReLU"), ("tanh", "tanh less the best triple")):
            if runs := evidence.recorded(claims[quantity].sweeps, claims[quantity].experiments[1]):
                levels[look] = fmean(runs.finals("test_accuracy"))
        column[0].set_title(f"{title}, {plots.runs_text(planned) if planned.recorded else 'not run'}")
        for axes, field in zip(column, TRIPLE, strict=True):
            _accuracy_by_number(axes, planned, field, levels)
            if evidence.scale == PAPER_SCALE and (claim := claims.get(TRIPLE[field][1])):
                place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "color": "#009E73"}
                axes.plot(claim.aim, 0, label="claimed mean of the best tenth", **place, **plots.CLAIMED)
    for axes in grid[:, 0]:
        axes.set_ylabel("test accuracy (%)")
    plots.one_legend(figure, 3)
    return figure


def _accuracy_by_number(axes: "plots.Axes", planned: Runs, field: str, levels: Mapping[str, float]) -> None:
    """Draw the accuracy of each triple against one of its numbers, the best tenth's mean, and ReLU and tanh."""
    axes.set_xlabel(TRIPLE[field][0])
    runs = planned.recorded
    if not runs:
        plots.mark_not_run(axes)
        axes.set_yticks([])
        return
    axes.scatter(_values(runs, field), runs.finals("test_accuracy"), s=14, color="0.6", label="a triple, one run")
    if enough_triples(planned):
        top = top_triples(runs)
        look: dict[str, Any] = {"color": "#009E73", "marker": "D", "edgecolor": "black", "linewidth": 0.5}
        axes.scatter(_values(top, field), top.finals("test_accuracy"), s=22, label="best tenth", **look)
        axes.axvline(fmean(_values(top, field)), color="#009E73", linewidth=1, label="mean of the best tenth")
    for activation, accuracy in levels.items():
        line: dict[str, Any] = {"color": plots.LOOKS[activation][0], "linewidth": 1}
        axes.axhline(accuracy, linestyle="--" if activation == "ReLU" else "-.", label=f"{activation}, mean", **line)


def _values(runs: Runs, field: str) -> list[float]:
    return [float(run.field(field)) for run in runs]


_SCENARIOS = {"SGD, ReLU": "sgd_relu", "SGD, tanh": "sgd_tanh", "ReLU": "relu", "tanh": "tanh"}  # by the curve's look


def figure_4(evidence: Evidence) -> "plots.Figure":
    """Draw mean per-example gradient norms before clipping by step; dashed, five times the level of SGD with ReLU."""

    def smooth(run: PlannedRun) -> tuple[list[int], list[float]]:
        steps, norms = mean_gradient_norms(run)
        return steps, triangular_average(norms)

    figure = _norms_by_step(evidence, _SCENARIOS, smooth)
    (axes,) = figure.axes
    if evidence.scale == PAPER_SCALE and (sgd := _scenario_runs(evidence, "SGD, ReLU").recorded):
        five = 5 * fmean(level(*mean_gradient_norms(run)) for run in sgd)
        axes.axhline(five, label="claimed: DP-SGD with ReLU is above 5 x SGD with ReLU", **plots.DASHED)
    for clip in {float(run.field("clipping.norm")) for run in _scenario_runs(evidence, "ReLU").recorded}:
        axes.axhline(clip, color="grey", linestyle=":", linewidth=1, label=f"clipping norm {clip:g}")
    plots.log_axis(axes, "y")
    axes.set_ylabel("mean per-example gradient norm")
    plots.one_legend(figure, 2)
    return figure


def figure_5(evidence: Evidence) -> "plots.Figure":
    """Draw the mean norm of an example's first activations by step, for the three scenarios of the paper."""
    figure = _norms_by_step(evidence, ("SGD, ReLU", "ReLU", "tanh"), first_activation_norms)
    figure.axes[0].set_ylim(bottom=0)
    figure.axes[0].set_ylabel("norm of the first convolution's activations")
    plots.one_legend(figure)
    return figure


def _norms_by_step(
    evidence: Evidence, scenarios: Iterable[str], norms: Callable[[PlannedRun], tuple[list[int], list[float]]]
) -> "plots.Figure":
    """Draw norms by step; `norms` returns a run's steps and norms there, [measurements] each."""
    figure = plots.figure(plots.WIDTH, 4.6)
    axes = figure.subplots()
    for place, scenario in enumerate(scenarios):
        planned = _scenario_runs(evidence, scenario)
        if planned.recorded:
            name = scenario if scenario.startswith("SGD") else f"DP-SGD, {scenario}"
            text = f"{name}, {plots.runs_text(planned)}"
            band = plots.band_of([norms(run) for run in planned.recorded])
            band.draw(axes, plots.LOOKS[scenario], place, linewidth=1, label=text)
    axes.set_xlabel("step")
    return figure


def _scenario_runs(evidence: Evidence, scenario: str) -> Runs:
    return evidence.planned(FIG_4, f"{PAPER}/mnist_{_SCENARIOS[scenario]}_norms")


def class_accuracy(evidence: Evidence) -> "plots.Figure":
    """Draw last-epoch accuracy by class, ReLU and tanh: mean and range over the runs, a panel per data set."""
    figure, panels = plots.panel_each(3.8)
    for dataset, axes in panels.items():
        for label, shift in (("tanh", -0.12), ("ReLU", 0.12)):
            planned = evidence.planned(FIG_3, f"{PAPER}/{dataset}_{label.lower()}")
            if not (runs := planned.recorded):
                continue
            colour, marker = plots.LOOKS[label]
            by_run = [[float(v) for v in run.diagnostic("per_class_accuracy")[-1]] for run in runs]
            by_class = list(zip(*by_run, strict=True))
            places = [c + shift for c in range(len(by_class))]
            axes.vlines(places, list(map(min, by_class)), list(map(max, by_class)), color=colour, linewidth=1.5)
            std = fmean(class_accuracy_std(run, -1) for run in runs)
            text = f"{label}, {plots.runs_text(planned)}, std {std:.2f} over classes"
            axes.plot(places, list(map(fmean, by_class)), marker, markersize=4, color=colour, label=text)
        axes.set(xlabel="class", xticks=range(10))
        if axes.lines:
            plots.legend_below(axes)
        else:
            plots.mark_not_run(axes)
    figure.axes[0].set_ylabel("test accuracy (%)")
    return figure

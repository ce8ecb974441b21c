"""Accuracy against epsilon, and over the loss's parameters (figure 10); tables, and measures of this paper only."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.claims.claim import Claim
from runner.claims.evidence import Evidence, PlannedRun, Runs, last_accuracy
from runner.claims.measure import Formula, computed, counted, planned_for, prepared, run_formula
from runner.claims.measurement import Measured, charged, compare_samples, measure_sample
from runner.claims.numbers import WEIGHTS, class_accuracies, confusion, layer_norms
from runner.claims.verdicts import ClaimRow
from runner.records.jobs import sweep_jobs
from runner.report import plots
from runner.report.formats import Table, delta_text, number
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from torch import Tensor

    from runner.accounting.calibration import Accountant
    from runner.training.run import Run

SENSITIVITY = {  # by sweep of figure 10: the field that it varies, and its name
    "fig_10_threshold_epoch": ("loss.threshold_epoch", "threshold epoch"),
    "fig_10_beta": ("loss.beta", "divisor of the regulariser β"),
    "fig_10_gamma": ("loss.gamma", "focal exponent γ"),
}
_INPUTS, _HIDDEN, _CLASSES, _EXAMPLES = 4, 5, 3, 20
_PAIRS, _POINTS, _APART = 20, 17, 0.3  # pairs of weights, points between them for the Hessian, distance


def values_tried(sweep: str, field: str) -> list[float]:
    """Return the values of a field in a sweep at the paper's scale, the smallest first."""
    return sorted({float(job.field(field)) for job in sweep_jobs(f"losing_less/{sweep}")})


def noise_norms(run: PlannedRun) -> list[list[float]]:
    """Return the L2 norms that a run's layers would have by their first weights and the noise alone: [layers][epochs].

    s is the standard deviation of a step's noise in a weight, d the number of weights, m the momentum. The squared norm
    after t steps has the mean |w_0|^2 + d s^2 sum_{j=1..t} ((1 - m^j) / (1 - m))^2. By the momentum, the noise of a
    step goes on to act in later ones, j in all with its own.
    """
    from runner.networks.objective import layers_with_parameters  # here, because plans need no PyTorch

    momentum = float(run.field("optimizer.momentum") or 0)
    std = float(run.field("optimizer.lr")) * run.final("noise_multiplier") * float(run.field("clipping.norm"))
    std /= float(run.field("batch_size"))
    steps = np.arange(1, int(run.history("steps")[-1]) + 1)
    grown = np.concatenate([[0.0], np.cumsum(((1 - momentum**steps) / (1 - momentum)) ** 2)])
    ends = [0, *map(int, run.history("steps"))]
    first = [values[0] for values in layer_norms(run, WEIGHTS)]
    layers = layers_with_parameters(prepared(run.job.sweep, run.job.experiment).initial.network)
    sizes = [layers[name].get_parameter("weight").numel() for name in run.diagnostic("layer_norms")[WEIGHTS]]
    return [
        [math.sqrt(norm**2 + size * std**2 * grown[end]) for end in ends]
        for norm, size in zip(first, sizes, strict=True)
    ]


@run_formula
def over_noise(claim: Claim, planned: Runs) -> Measured:
    """Return the norm of the weights after the last epoch over that of the noise alone: `hidden`, or `last` layer.

    For the hidden layers it is the mean over the layers.
    """

    def over(run: PlannedRun) -> float:
        pairs = zip(layer_norms(run, WEIGHTS), noise_norms(run), strict=True)
        *hidden, last = (norms[-1] / noise[-1] for norms, noise in pairs)
        return last if claim.number.argument == "last" else fmean(hidden)

    return measure_sample("mean", planned.sample(over))


@Formula
def gain_beyond_the_others(claim: Claim, evidence: Evidence) -> Measured:
    """Return the gain of the claim's first pair, by seed, minus the gain of each other pair; all must be positive.

    A gain is the accuracy with the first loss minus that with the second, for each seed with both.
    """
    planned = [Runs(run for name in pair for run in planned_for(claim, evidence, name)) for pair in claim.pairs]
    together = Runs(run for runs in planned for run in runs)
    by_seed = [[pair for pair in runs.recorded.by(lambda run: run.seed).values() if len(pair) == 2] for runs in planned]
    gains = [tuple(last_accuracy(ours) - last_accuracy(ce) for ours, ce in pairs) for pairs in by_seed]
    differences = tuple(
        replace(
            compare_samples("difference", "mean", gains[0], other),
            reference=0.0,
            n=len(planned[0].recorded + runs.recorded),
        )
        for runs, other in zip(planned[1:], gains[1:], strict=True)
        if gains[0] and other
    )
    if not differences:
        return counted(together, Measured())
    by_pair = zip(claim.pairs, gains, strict=True)
    texts = (f"{pair[0].rpartition('/')[2]} {fmean(sample):.2f}" for pair, sample in by_pair if sample)
    least = min(differences, key=lambda difference: difference.value or 0.0)
    text = f"mean gains: {', '.join(texts)}; the least favourable counts"
    return counted(together, charged(replace(least, statements=differences, explanation=text), together.last))


@Formula
def class_accuracy_distance(claim: Claim, evidence: Evidence) -> Measured:
    """Return the distance of the classes' training accuracies from non-private ones, for both losses.

    For one run it is the mean absolute difference from the mean of the non-private runs, in points, over the classes
    and the recorded epochs. The claim's experiments are the proposed loss, cross-entropy, and no privacy.
    """
    planned = [planned_for(claim, evidence, name) for name in claim.experiments]
    ours, ce, without = (runs.recorded for runs in planned)
    if not (ours and ce and without):
        return counted(Runs(run for runs in planned for run in runs), Measured())

    def distance(run: PlannedRun) -> float:
        runs = [run, *without]
        recorded = run.diagnostic("confusion")["epoch"]
        epochs = [epoch for epoch in recorded if all(confusion(other, epoch) is not None for other in runs)]
        private, *without_privacy = ([np.array(class_accuracies(other, epoch)) for epoch in epochs] for other in runs)
        return float(np.abs(np.array(private) - np.mean(without_privacy, axis=0)).mean())

    proposed, plain = ours.sample(distance), ce.sample(distance)
    text = f"mean distance per class in points: {fmean(proposed):.3g} and {fmean(plain):.3g}"
    return counted(Runs([*planned[0], *planned[1]]), compare_samples("order", "mean", proposed, plain, text))


@computed
def smoothness_ratio(_: Claim) -> Measured:
    """Return the largest of ||grad L(w) - grad L(w')|| over sigma_max ||w - w'||, over pairs of weights w and w'.

    L is the proposed loss on a network with one tanh layer. It has the parameters of CIFAR-10, at its threshold epoch,
    so that each part has weight. w is random, and w' lies in the direction in which the gradient changes fastest.
    sigma_max is the largest singular value of the Hessian at points between the two.
    """
    import torch

    from runner.networks.losses import LosingLess

    torch.manual_seed(0)
    x = torch.randn(_EXAMPLES, _INPUTS, dtype=torch.float64)
    targets = torch.arange(_EXAMPLES) % _CLASSES
    loss = LosingLess(threshold_epoch=7.0, beta=11.0, gamma=5.0)
    loss.start_epoch(7)

    def value(weights: "Tensor") -> "Tensor":
        first, last = weights.split((_INPUTS * _HIDDEN, _HIDDEN * _CLASSES))
        hidden = x @ first.reshape(_INPUTS, _HIDDEN)
        losses: Tensor = loss(hidden.tanh() @ last.reshape(_HIDDEN, _CLASSES), targets, [hidden])
        return losses.mean()

    hessians, gradient = torch.vmap(torch.func.hessian(value)), torch.func.grad(value)
    ratios = []
    for weights in torch.randn(_PAIRS, _HIDDEN * (_INPUTS + _CLASSES), dtype=torch.float64):
        step = _APART * torch.linalg.svd(hessians(weights[None])[0]).Vh[0]
        between = weights + torch.linspace(0, 1, _POINTS, dtype=torch.float64)[:, None] * step
        largest = torch.linalg.matrix_norm(hessians(between), ord=2).max()
        ratios.append(float((gradient(weights + step) - gradient(weights)).norm() / (largest * _APART)))
    return Measured(max(ratios), explanation=f"the largest of {_PAIRS} pairs of weights")


PAPER = "losing_less"
DATASETS, _EPSILON = ("cifar10", "fashion_mnist", "mnist"), (0.0, 3.0)  # of the paper's panels
LOSSES = {  # label, which is the look, too, but for cross-entropy
    "ce": "cross-entropy",
    "ours": "losing-less loss",
    "sse": "squared error",
    "sse_ce": "squared error, then cross-entropy",
    "sse_focal": "squared error, then focal loss",
}


@dataclass(frozen=True)
class Networks:
    """The networks for one kind of features, and an item's sweep with runs of both losses."""

    item: str
    prefix: str
    features: str
    more_seeds: str = ""  # a sweep with more seeds of some

    @property
    def sweep(self) -> str:
        return f"{PAPER}/{self.item.replace('-', '_')}"

    def experiment(self, dataset: str, loss: str) -> str:
        """Return the experiment of a network and a loss."""
        return f"{PAPER}/{self.prefix}{dataset}_{loss}"


END_TO_END = Networks("fig-3", "", "pixels")
PFE = Networks("fig-4", "pfe_", "ScatterNet", f"{PAPER}/fig_9_pfe_more")
PRINTED = f"{PAPER}/fig_4_printed"  # the networks of tables 3 and 4


def two_losses(networks: Networks, evidence: Evidence) -> "plots.Figure | None":
    """Draw accuracy against epsilon, both losses, a panel per data set; dashed, figure 4's networks as printed."""
    panels = []
    for dataset in DATASETS:
        curves = []
        for loss in ("ours", "ce"):
            name, label = networks.experiment(dataset, loss), LOSSES[loss]
            claims = claims_of(PAPER, item=networks.item, alone=name, quantity="test_accuracy")
            statistic = "maximum" if any(c.of.startswith("max") for c in claims) else ""
            sweeps = [networks.more_seeds, networks.sweep]
            look = "tanh" if loss == "ce" else label
            curves.append(plots.Curve(sweeps, name, label, plots.points_of(claims), statistic, look))
            if networks is PFE:
                dashed = {"linestyle": "--", "markerfacecolor": "none"}
                text = f"{label}, network as printed"
                curves.append(plots.Curve(PRINTED, f"{name}_printed", text, look=look, style=dashed))
        panels.append(plots.Panel(plots.DATASETS[dataset], curves, extremes=True))
    return plots.accuracy_against_epsilon(evidence, panels, centre="median", epsilon=_EPSILON)


figure_3, figure_4 = partial(two_losses, END_TO_END), partial(two_losses, PFE)


def figure_9(evidence: Evidence) -> "plots.Figure | None":
    """Draw the ablation, median and range of the seeds: end to end above, on ScatterNet features below."""
    panels = []
    pfe_sweeps = [PFE.more_seeds, f"{PAPER}/fig_9_pfe"]
    for features, sweeps, networks in (("", f"{PAPER}/fig_9", END_TO_END), (", ScatterNet", pfe_sweeps, PFE)):
        for dataset in DATASETS:
            curves = [
                plots.Curve(sweeps, networks.experiment(dataset, loss), label, look="tanh" if loss == "ce" else label)
                for loss, label in LOSSES.items()
            ]
            panels.append(plots.Panel(plots.DATASETS[dataset] + features, curves))
    return plots.accuracy_against_epsilon(evidence, panels, columns=3, centre="median", epsilon=_EPSILON)


def figure_15(evidence: Evidence) -> "plots.Figure | None":
    """Draw accuracy against epsilon of squared, absolute and Huber losses, the more of the former the darker."""
    import matplotlib

    huber = [f"{PAPER}/fig_15_huber{more}" for more in ("_seeds", "")]
    thresholds = values_tried("fig_15_huber", "loss.threshold")
    shades = matplotlib.colormaps["Blues"].resampled(len(thresholds) + 4)
    panels = []
    for dataset in DATASETS:
        curves = [
            plots.Curve(f"{PAPER}/fig_15", f"{PAPER}/{dataset}_{loss}", label)
            for loss, label in (("sse", "squared error"), ("sae", "absolute error"))
        ]
        for place, b in enumerate(thresholds, start=4):
            name, shade = f"{PAPER}/{dataset}_huber", matplotlib.colors.to_hex(shades(place))
            look = {"color": shade, "linewidth": 1, "markersize": 3}
            curves.append(plots.Curve(huber, name, f"Huber, β = {b:g}", style=look, only=("loss.threshold", b)))
        panels.append(plots.Panel(plots.DATASETS[dataset], curves))
    return plots.accuracy_against_epsilon(evidence, panels, epsilon=_EPSILON)


def figure_10(evidence: Evidence) -> "plots.Figure | None":
    """Draw last-epoch accuracy over each parameter of the loss, a row per data set; dotted, the paper's value."""
    runs = {
        (dataset, sweep): evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_ours").groups_by(field)
        for dataset, (sweep, (field, _)) in product(DATASETS, SENSITIVITY.items())
    }
    if all(plots.too_few(list(by_value.values())) for by_value in runs.values()):
        return None
    figure = plots.figure(plots.WIDTH, 0.4 + 2.3 * len(DATASETS))
    for row, dataset in zip(figure.subplots(len(DATASETS), len(SENSITIVITY)), DATASETS, strict=True):
        for axes, sweep in zip(row, SENSITIVITY, strict=True):
            _accuracy_by_value(axes, runs[dataset, sweep], evidence, dataset, sweep)
            axes.set_xlabel(SENSITIVITY[sweep][1])
        row[0].set_ylabel(f"{plots.DATASETS[dataset]}\ntest accuracy (%)")
        # Panels with runs share one range of accuracies, of at least two points, so that a flat line looks flat.
        if filled := [axes for axes in row if axes.lines]:
            low, high = min(a.get_ylim()[0] for a in filled), max(a.get_ylim()[1] for a in filled)
            margin = max(0.0, 2 - (high - low)) / 2
            for axes in filled:
                axes.set_ylim(low - margin, high + margin)
    plots.one_legend(figure)
    return figure


def _accuracy_by_value(
    axes: "plots.Axes", by_value: dict[float, Runs], evidence: Evidence, dataset: str, sweep: str
) -> None:
    accuracies = {value: last_accuracy(runs.recorded[0]) for value, runs in by_value.items() if runs.recorded}
    colour, marker = plots.LOOKS["losing-less loss"]
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "linestyle": ":"}
    axes.plot(list(accuracies), list(accuracies.values()), label="losing-less loss, one run a value", **look)
    axes.set_title(f"{len(accuracies)} of {len(by_value)} values run", fontsize=8)
    axes.set_xlim(min(by_value) - 0.05 * max(by_value), 1.05 * max(by_value))
    if not accuracies:
        plots.mark_not_run(axes)
    sweeps = [f"{PAPER}/{other}" for other in SENSITIVITY if other != sweep]
    fixed = [run for other in sweeps for run in evidence.planned(other, f"{PAPER}/{dataset}_ours")[:1]]
    if fixed:  # these leave this parameter at the value of table 6
        value = float(fixed[0].field(SENSITIVITY[sweep][0]))
        axes.axvline(value, color=plots.GREY, linewidth=1, label="the paper's value (table 6)")


BUDGETS = (1.5, 2.0, 3.0)
_LAST = 200  # epochs at which the search for a budget's last epoch ends
_CELLS: dict[str, Callable[[list[float]], float]] = {"max": max, "median": median, "mean": fmean, "min": min}


def budgets(networks: Networks, evidence: Evidence, _: Sequence[ClaimRow]) -> Table:
    """Return a table of runs at the last epoch below each budget, by the paper's epsilon and by the sound one."""
    header = ["dataset", "loss", "ε below", "n"]
    for kind in ("ε", "sound ε"):
        header += [f"{kind}: last epoch", *(f"{kind}: {name} (%)" for name in _CELLS)]
    rows = []
    losses = (("ours", "losing-less"), ("ce", "cross-entropy"))
    for (dataset, title), (loss, label) in product(plots.DATASETS.items(), losses):
        planned = evidence.planned(networks.sweep, networks.experiment(dataset, loss))
        for budget in BUDGETS:
            cells = [title, label, f"{budget:g}", planned.recorded_of]
            for name in ("epsilon", "epsilon_sound"):
                reached = planned.at(partial(PlannedRun.last_within, epsilon=math.nextafter(budget, 0), by=name))
                values = reached.values("test_accuracy")
                cells.append(reached.epochs or "–")
                cells += [number(statistic(values) if values else None, "%") for statistic in _CELLS.values()]
            rows.append(cells)
    shown = ("dataset", "loss", "ε below", "n", "ε: mean (%)", "sound ε: last epoch", "sound ε: mean (%)")
    return Table(header, rows, shown=shown)


budgets_3, budgets_4 = partial(budgets, END_TO_END), partial(budgets, PFE)


@cache
def _epsilons(sweep: str, experiment: str, *, steps_alone: bool = False) -> dict[str, float]:
    """Return the charged cost of an experiment's whole run, by accountant; or of its steps without earlier releases."""
    from runner.accounting import Pld, Prv, Rdp, RdpClassic  # here, because plans need none of them

    run = prepared(sweep, experiment)
    mechanism = replace(run.mechanism, before=()) if steps_alone else run.mechanism
    releases = mechanism.charges_of_epochs(run.epochs).claimed
    accountants: dict[str, Accountant] = {"RDP classic": RdpClassic(), "RDP tight": Rdp(), "PRV": Prv(), "PLD": Pld()}
    return {name: accountant.epsilon(releases, run.config.delta) for name, accountant in accountants.items()}


def _last_epoch(run: "Run", accountant: "Accountant", budget: float) -> int:
    from runner.accounting import last_within

    charges = run.mechanism.charges_of_epochs
    return last_within(accountant, lambda epochs: charges(epochs).claimed, budget, run.config.delta, _LAST)


@computed
def setting_epsilon(claim: Claim) -> Measured:
    """Return the epsilon of a setting of table 5 at its epochs by classic RDP, with releases before the first step."""
    from runner.accounting import RdpClassic

    run, measured = prepared(claim.sweep, claim.experiment), _charged(claim)
    last = _last_epoch(run, RdpClassic(), BUDGETS[-1])
    within = f"of {run.epochs} epochs the last below {BUDGETS[-1]:g} by the first is {last}"
    return replace(measured, explanation=f"{measured.explanation}; {within}")


def _charged(claim: Claim, *, steps_alone: bool = False) -> Measured:
    """Return the epsilon of the claim's setting by classic RDP, or that of its steps alone."""
    epsilons = _epsilons(claim.sweep, claim.experiment, steps_alone=steps_alone)
    classic, tight, prv, pld = (number(epsilon, places=3, bound="upper") for epsilon in epsilons.values())
    return Measured(
        value=epsilons["RDP classic"],
        epsilon=epsilons["RDP classic"],
        epsilon_sound=epsilons["PLD"],
        delta=prepared(claim.sweep, claim.experiment).config.delta,
        explanation=f"RDP with the classic conversion {classic}, tight {tight}, PRV {prv}, PLD {pld}",
    )


steps_epsilon = computed(partial(_charged, steps_alone=True))  # which the paper's text is limited to


def table_5(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    from runner.accounting import Rdp, RdpClassic

    within = f"last epoch within {' / '.join(f'{budget:g}' for budget in BUDGETS)}"
    rows: list[dict[str, object]] = []
    deltas: list[float] = []
    for networks, (dataset, title) in product((END_TO_END, PFE), reversed(plots.DATASETS.items())):
        experiment = networks.experiment(dataset, "ce")
        run = prepared(networks.sweep, experiment)
        config, epsilons = run.config, _epsilons(networks.sweep, experiment)
        deltas.append(config.delta)
        rows.append(
            {
                "features": networks.features,
                "dataset": title,
                "learning rate": config.optimizer.lr,
                "momentum": config.optimizer.momentum,
                "batch size": config.batch_size,
                "epochs": run.epochs,
                "noise multiplier": config.noise_multiplier,
                "clipping norm": config.clipping.norm,
                "steps per epoch": run.mechanism.steps_per_epoch,
                **{name: number(epsilon, places=3, bound="upper") for name, epsilon in epsilons.items()},
                **{
                    f"{within}, {name}": " / ".join(str(_last_epoch(run, accountant, budget)) for budget in BUDGETS)
                    for name, accountant in (("classic", RdpClassic()), ("tight", Rdp()))
                },
            }
        )
    notes = (
        f"{delta_text(*deltas)}. Steps per epoch: floor(N/B), Poisson sampling. Every ε is for the stated "
        "epochs. On ScatterNet features of MNIST and CIFAR-10 it covers two noisy statistics, too.",
    )
    shown = ("features", "dataset", "batch size", "epochs", "noise multiplier", "RDP classic", "PLD")
    return Table.of(rows, notes, shown)


def table_6(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    rows = []
    for networks, (dataset, title) in product((END_TO_END, PFE), reversed(plots.DATASETS.items())):
        loss = prepared(networks.sweep, networks.experiment(dataset, "ours")).config.loss
        rows.append([networks.features, title, loss.threshold_epoch, loss.beta, loss.gamma])
    return Table(("features", "dataset", "threshold epoch e_t", "β", "γ"), rows)


def table_7(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    tried = {label: values_tried(sweep, field) for sweep, (field, label) in SENSITIVITY.items()}
    rows = [[label, ", ".join(f"{value:g}" for value in values)] for label, values in tried.items()]
    return Table(("parameter", "values"), rows)

"""Accuracy against epsilon (figures 3, 4, 9 and 15, and at every budget), over the loss's parameters (10); tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from runner.claims.claim import Claim
from runner.claims.measure import computed, prepared
from runner.claims.measurement import Measured
from runner.claims.runs import Evidence, Runs, last_accuracy
from runner.claims.verdicts import ClaimRow
from runner.papers.losing_less.measures import SENSITIVITY, values_tried
from runner.report import plots
from runner.report.files import Table, delta_text, number
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from runner.accounting.calibration import Accountant
    from runner.training.run import Run

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


def two_losses(networks: Networks, evidence: Evidence) -> plots.Figure | None:
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


def figure_9(evidence: Evidence) -> plots.Figure | None:
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


def figure_15(evidence: Evidence) -> plots.Figure | None:
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


def figure_10(evidence: Evidence) -> plots.Figure | None:
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
    axes: plots.Axes, by_value: dict[float, Runs], evidence: Evidence, dataset: str, sweep: str
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
                reached = planned.last_below(budget, name)
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


def _last_epoch(run: Run, accountant: Accountant, budget: float) -> int:
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
    """Return settings of DP-SGD, and their cost by four accountants."""
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
    """Return parameters of the proposed loss, read from the experiments."""
    rows = []
    for networks, (dataset, title) in product((END_TO_END, PFE), reversed(plots.DATASETS.items())):
        loss = prepared(networks.sweep, networks.experiment(dataset, "ours")).config.loss
        rows.append([networks.features, title, loss.threshold_epoch, loss.beta, loss.gamma])
    return Table(("features", "dataset", "threshold epoch e_t", "β", "γ"), rows)


def table_7(_: Evidence, __: Sequence[ClaimRow]) -> Table:
    """Return the values of each parameter that figure 10 tries."""
    tried = {label: values_tried(sweep, field) for sweep, (field, label) in SENSITIVITY.items()}
    rows = [[label, ", ".join(f"{value:g}" for value in values)] for label, values in tried.items()]
    return Table(("parameter", "values"), rows)

"""The figures of accuracy: against epsilon (3, 4, 9 and 15) and against the parameters of the loss (10)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from runner.claims.runs import Evidence, Runs, last_accuracy
from runner.papers.losing_less.measures import SENSITIVITY, values_tried
from runner.report import plots
from runner.report.papers import claims_of

PAPER = "losing_less"
PAPER_AXES = plots.PaperAxes(("cifar10", "fashion_mnist", "mnist"), (0.0, 3.0))
LOSSES = {  # label and look
    "ce": ("cross-entropy", "tanh"),
    "ours": ("losing-less loss", "losing-less loss"),
    "sse": ("squared error", "squared error"),
    "sse_ce": ("squared error, then cross-entropy", "squared error, then cross-entropy"),
    "sse_focal": ("squared error, then focal loss", "squared error, then focal loss"),
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
    for dataset, title in PAPER_AXES.titles.items():
        curves = []
        for loss in ("ours", "ce"):
            name, (label, look) = networks.experiment(dataset, loss), LOSSES[loss]
            claims = claims_of(PAPER, item=networks.item, alone=name, quantity="test_accuracy")
            statistic = "maximum" if any(c.of.text.startswith("max") for c in claims) else ""
            sweeps = [networks.more_seeds, networks.sweep]
            curves.append(plots.Curve(sweeps, name, label, plots.points_of(claims), statistic, look))
            if networks is PFE:
                dashed = {"linestyle": "--", "markerfacecolor": "none"}
                text = f"{label}, network as printed"
                curves.append(plots.Curve(PRINTED, f"{name}_printed", text, look=look, style=dashed))
        panels.append(plots.Panel(title, curves, extremes=True))
    return plots.accuracy_against_epsilon(evidence, panels, centre="median", epsilon=PAPER_AXES.epsilon)


figure_3, figure_4 = partial(two_losses, END_TO_END), partial(two_losses, PFE)


def figure_9(evidence: Evidence) -> plots.Figure | None:
    """Draw the ablation, median and range of the seeds: end to end above, on ScatterNet features below."""
    panels = []
    pfe_sweeps = [PFE.more_seeds, f"{PAPER}/fig_9_pfe"]
    for features, sweeps, networks in (("", f"{PAPER}/fig_9", END_TO_END), (", ScatterNet", pfe_sweeps, PFE)):
        for dataset, name in PAPER_AXES.titles.items():
            curves = [
                plots.Curve(sweeps, networks.experiment(dataset, loss), label, look=look)
                for loss, (label, look) in LOSSES.items()
            ]
            panels.append(plots.Panel(name + features, curves))
    return plots.accuracy_against_epsilon(evidence, panels, columns=3, centre="median", epsilon=PAPER_AXES.epsilon)


def figure_15(evidence: Evidence) -> plots.Figure | None:
    """Draw accuracy against epsilon of squared, absolute and Huber losses, the more of the former the darker."""
    import matplotlib

    huber = [f"{PAPER}/fig_15_huber{more}" for more in ("_seeds", "")]
    thresholds = values_tried("fig_15_huber", "loss.threshold")
    shades = matplotlib.colormaps["Blues"].resampled(len(thresholds) + 4)
    panels = []
    for dataset, title in PAPER_AXES.titles.items():
        curves = [
            plots.Curve(f"{PAPER}/fig_15", f"{PAPER}/{dataset}_{loss}", label)
            for loss, label in (("sse", "squared error"), ("sae", "absolute error"))
        ]
        for place, b in enumerate(thresholds, start=4):
            name, shade = f"{PAPER}/{dataset}_huber", matplotlib.colors.to_hex(shades(place))
            look = {"color": shade, "linewidth": 1, "markersize": 3}
            curves.append(plots.Curve(huber, name, f"Huber, β = {b:g}", style=look, only=("loss.threshold", b)))
        panels.append(plots.Panel(title, curves))
    return plots.accuracy_against_epsilon(evidence, panels, epsilon=PAPER_AXES.epsilon)


def figure_10(evidence: Evidence) -> plots.Figure | None:
    """Draw last-epoch accuracy over each parameter of the loss, a row per data set; dotted, the paper's value."""
    runs = {
        (dataset, sweep): evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_ours").groups_by(field)
        for dataset, (sweep, (field, _)) in product(PAPER_AXES.datasets, SENSITIVITY.items())
    }
    if all(plots.too_few(list(by_value.values())) for by_value in runs.values()):
        return None
    figure = plots.figure(plots.WIDTH, 0.4 + 2.3 * len(PAPER_AXES.datasets))
    grid = figure.subplots(len(PAPER_AXES.datasets), len(SENSITIVITY))
    for row, (dataset, title) in zip(grid, PAPER_AXES.titles.items(), strict=True):
        for axes, sweep in zip(row, SENSITIVITY, strict=True):
            _accuracy_by_value(axes, runs[dataset, sweep], evidence, dataset, sweep)
            axes.set_xlabel(SENSITIVITY[sweep][1])
        row[0].set_ylabel(f"{title}\ntest accuracy (%)")
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

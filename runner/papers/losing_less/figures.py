"""The figures of accuracy: against epsilon (3, 4, 9 and 15) and against the parameters of the loss (10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runner.claims.evidence import Evidence
from runner.claims.runs import Runs, last_accuracy
from runner.papers.losing_less.measures import SENSITIVITY, values_tried
from runner.report import plots
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "losing_less"
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

    @property
    def sweep(self) -> str:
        return f"{PAPER}/{self.item.replace('-', '_')}"

    def experiment(self, dataset: str, loss: str) -> str:
        """Return the experiment of a network and a loss."""
        return f"{PAPER}/{self.prefix}{dataset}_{loss}"


END_TO_END = Networks("fig-3", "", "pixels")
PFE = Networks("fig-4", "pfe_", "ScatterNet")


def two_losses(networks: Networks, evidence: Evidence) -> Figure | None:
    """Draw accuracy against epsilon, both losses, a panel per data set, with the claims."""
    panels = []
    for dataset, title in plots.DATASETS.items():
        curves = []
        for loss in ("ours", "ce"):
            name = networks.experiment(dataset, loss)
            claims = claims_of(PAPER, item=networks.item, alone=name, quantity="test_accuracy")
            points = [(c.epsilon[0], c.aim) for c in claims if c.epsilon and c.aim]
            of = "maximum" if any(c.of.startswith("max") for c in claims) else ""
            curves.append(plots.Curve(networks.sweep, name, LOSSES[loss][0], None, points, of, LOSSES[loss][1]))
        panels.append(plots.Panel(title, curves, extremes=True))
    return plots.accuracy_against_epsilon(evidence, panels, centre="median")


figure_3, figure_4 = partial(two_losses, END_TO_END), partial(two_losses, PFE)


def figure_9(evidence: Evidence) -> Figure | None:
    """Draw the ablation, median and range of the seeds: end to end above, on ScatterNet features below."""
    panels = []
    of_features = [f"{PAPER}/fig_9_pfe{more}" for more in ("_more", "")]
    for title, sweeps, networks in (
        ("end to end", f"{PAPER}/fig_9", END_TO_END),
        ("ScatterNet features", of_features, PFE),
    ):
        for dataset, name in plots.DATASETS.items():
            curves = [
                plots.Curve(sweeps, networks.experiment(dataset, loss), label, look=look)
                for loss, (label, look) in LOSSES.items()
            ]
            panels.append(plots.Panel(f"{name}, {title}", curves))
    return plots.accuracy_against_epsilon(evidence, panels, columns=2, centre="median")


def figure_15(evidence: Evidence) -> Figure | None:
    """Draw accuracy against epsilon of squared, absolute and Huber losses, a column per data set."""
    import matplotlib

    huber = [f"{PAPER}/fig_15_huber{more}" for more in ("_seeds", "")]
    thresholds = values_tried("fig_15_huber", "loss.threshold")
    shades = matplotlib.colormaps["viridis"].resampled(len(thresholds) + 1)
    panels = []
    for dataset, title in plots.DATASETS.items():
        curves = [
            plots.Curve(f"{PAPER}/fig_15", f"{PAPER}/{dataset}_sse", "squared error"),
            plots.Curve(f"{PAPER}/fig_15", f"{PAPER}/{dataset}_sae", "absolute error"),
        ]
        for i, b in enumerate(thresholds):
            name, shade = f"{PAPER}/{dataset}_huber", matplotlib.colors.to_hex(shades(i))
            only = ("loss.threshold", b)
            curves.append(plots.Curve(huber, name, f"Huber, β = {b:g}", colour=shade, only=only))
        panels.append(plots.Panel(title, curves))
    # By error, because the curve of the absolute error would hide the order of the others.
    return plots.accuracy_against_epsilon(evidence, panels, spread_by_error=True)


def figure_10(evidence: Evidence) -> Figure | None:
    """Draw last-epoch accuracy over each parameter of the loss, a row per data set; dotted, the paper's value.

    A panel is left out if fewer than half of its values have a run. So are rows and columns of such panels alone.
    """
    few = {(d, s): plots.too_few(list(_by_value(evidence, d, s).values())) for d in plots.DATASETS for s in SENSITIVITY}
    datasets = [d for d in plots.DATASETS if not all(few[d, s] for s in SENSITIVITY)]
    sweeps = [s for s in SENSITIVITY if not all(few[d, s] for d in plots.DATASETS)]
    if not datasets:
        return None
    drawn = plots.figure(min(plots.WIDTH, 3.5 * max(2, len(sweeps))), 0.4 + 2.6 * len(datasets))
    grid = drawn.subplots(len(datasets), len(sweeps), squeeze=False)
    for axes_of_row, dataset in zip(grid, datasets, strict=True):
        for axes, sweep in zip(axes_of_row, sweeps, strict=True):
            if few[dataset, sweep]:
                axes.set_axis_off()
                continue
            _against_value(axes, evidence, dataset, sweep)
            axes.set_xlabel(SENSITIVITY[sweep][1])
        axes_of_row[0].set_ylabel(f"{plots.DATASETS[dataset]}\ntest accuracy (%)")
        _share_span(axes_of_row)
    plots.name_not_drawn(drawn, {f"{plots.DATASETS[d]}, {SENSITIVITY[s][1]}": why for (d, s), why in few.items()})
    plots.one_legend(drawn)
    return drawn


def _by_value(evidence: Evidence, dataset: str, sweep: str) -> dict[float, Runs]:
    return evidence.planned(f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_ours").by_value(SENSITIVITY[sweep][0])


def _against_value(axes: Axes, evidence: Evidence, dataset: str, sweep: str) -> None:
    experiment = f"{PAPER}/{dataset}_ours"
    planned = evidence.planned(f"{PAPER}/{sweep}", experiment)
    axes.set_title(plots.runs_text(planned), fontsize=8)
    by_value = planned.recorded.by_value(SENSITIVITY[sweep][0])
    colour, marker = plots.LOOKS["losing-less loss"]
    accuracies = [last_accuracy(of[0]) for of in by_value.values()]
    axes.plot(list(by_value), accuracies, color=colour, marker=marker, markersize=4, label="losing-less loss, one run")
    sweeps = [f"{PAPER}/{other}" for other in SENSITIVITY if other != sweep]
    others = [run for other in sweeps for run in evidence.planned(other, experiment)[:1]]
    if others:  # these leave this parameter at the value of table 6
        value = float(others[0].field(SENSITIVITY[sweep][0]))
        axes.axvline(value, color="grey", linestyle=":", linewidth=1, label="the paper's value (table 6)")


def _share_span(row: Sequence[Axes]) -> None:
    """Give the panels with runs one range of accuracies, of at least two points, so that a flat line looks flat."""
    drawn = [axes for axes in row if axes.lines]
    if drawn:
        low, high = min(a.get_ylim()[0] for a in drawn), max(a.get_ylim()[1] for a in drawn)
        margin = max(0.0, 2 - (high - low)) / 2
        for axes in drawn:
            axes.set_ylim(low - margin, high + margin)

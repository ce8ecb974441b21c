"""The figures of accuracy: against epsilon (3, 4, 9 and 15) and against the parameters of the loss (10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from runner.papers.losing_less.measures import FIELDS, accuracy_by_value
from runner.report.claims import Claim, claims_path, read_claims
from runner.report.evidence import Evidence
from runner.report.plots import (
    DATASETS,
    Curve,
    Panel,
    accuracy_against_epsilon,
    figure,
    mark_not_run,
    runs_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = "losing_less"
OURS, CE = "C0", "C1"
LOSSES = {
    "ce": ("CE", CE),
    "ours": ("whole (ours)", OURS),
    "sse": ("SSE", "C2"),
    "sse_ce": ("SSE+CE", "C3"),
    "sse_focal": ("SSE+Focal", "C4"),
}
HUBER_THRESHOLDS = tuple(i / 10 for i in range(1, 11))


def claimed_at(item: str, experiment: str) -> list[tuple[float, float]]:
    """Epsilon and accuracy (percent) of an item's claims on the accuracy of one experiment."""
    claims: list[Claim] = read_claims(claims_path(PAPER))
    return [
        (c.epsilon[0], c.aim)
        for c in claims
        if (c.item, c.experiment, c.quantity) == (item, experiment, "test_accuracy") and c.epsilon and c.aim
    ]


def _two_losses(item: str, sweep: str, prefix: str, names: dict[str, str]) -> list[Panel]:
    """A panel a data set: cross-entropy against the proposed loss."""
    panels = []
    for dataset, title in DATASETS.items():
        curves = []
        for loss, label in names.items():
            experiment = f"{PAPER}/{prefix}{dataset}_{loss}"
            points = claimed_at(item, experiment)
            curves.append(Curve(sweep, experiment, label, claimed_at=points, colour=LOSSES[loss][1]))
        panels.append(Panel(title, curves, extremes=True))
    return panels


def figure_3(evidence: Evidence) -> Figure:
    """Accuracy against epsilon end to end: minimum, median and maximum of the seeds, a column a data set."""
    names = {"ours": "O-T-CNN (ours)", "ce": "CE-T-CNN"}
    return accuracy_against_epsilon(evidence, _two_losses("fig-3", f"{PAPER}/fig_3", "", names), centre="median")


def figure_4(evidence: Evidence) -> Figure:
    """Accuracy against epsilon on ScatterNet features: minimum, median and maximum, a column a data set."""
    names = {"ours": "O-T-PFE-CNN (ours)", "ce": "CE-T-PFE-CNN"}
    return accuracy_against_epsilon(evidence, _two_losses("fig-4", f"{PAPER}/fig_4", "pfe_", names), centre="median")


def figure_9(evidence: Evidence) -> Figure:
    """The ablation, median and range of the seeds: end to end above, on ScatterNet features below."""
    panels = []
    for title, sweep, prefix in (("end to end", "fig_9", ""), ("ScatterNet features", "fig_9_pfe", "pfe_")):
        for dataset, name in DATASETS.items():
            curves = [
                Curve(f"{PAPER}/{sweep}", f"{PAPER}/{prefix}{dataset}_{loss}", label, colour=colour)
                for loss, (label, colour) in LOSSES.items()
            ]
            panels.append(Panel(f"{name}, {title}", curves))
    return accuracy_against_epsilon(evidence, panels, columns=len(DATASETS), centre="median")


def figure_15(evidence: Evidence) -> Figure:
    """Accuracy against epsilon of squared, absolute and Huber losses, a column a data set."""
    import matplotlib

    shades = matplotlib.colormaps["viridis"].resampled(len(HUBER_THRESHOLDS) + 1)
    panels = []
    for dataset, title in DATASETS.items():
        curves = [
            Curve(f"{PAPER}/fig_15", f"{PAPER}/{dataset}_sse", "SSE", colour="k"),
            Curve(f"{PAPER}/fig_15", f"{PAPER}/{dataset}_sae", "SAE", colour="C3"),
        ]
        for i, b in enumerate(HUBER_THRESHOLDS):
            name, shade = f"{PAPER}/{dataset}_huber", matplotlib.colors.to_hex(shades(i))
            only = ("loss.threshold", b)
            curves.append(Curve(f"{PAPER}/fig_15_huber", name, f"Huber, β = {b:g}", colour=shade, only=only))
        panels.append(Panel(title, curves))
    return accuracy_against_epsilon(evidence, panels)


SENSITIVITY = {
    "fig_10_threshold_epoch": "threshold epoch $e_t$",
    "fig_10_beta": "divisor of the regulariser β",
    "fig_10_gamma": "focal exponent γ",
}


def figure_10(evidence: Evidence) -> Figure:
    """Last-epoch accuracy over each parameter of the loss, a row a data set; dotted, the value of table 6."""
    drawn = figure(10.5, 8)
    grid = drawn.subplots(len(DATASETS), len(SENSITIVITY))
    for axes_of_row, (dataset, title) in zip(grid, DATASETS.items(), strict=True):
        for axes, (sweep, label) in zip(axes_of_row, SENSITIVITY.items(), strict=True):
            _against_value(axes, evidence, f"{PAPER}/{sweep}", f"{PAPER}/{dataset}_ours", FIELDS[sweep])
            axes.set_xlabel(label)
        axes_of_row[0].set_ylabel(f"{title}\ntest accuracy (%)")
        _share_span(axes_of_row)
    return drawn


def _against_value(axes: Axes, evidence: Evidence, sweep: str, experiment: str, field: str) -> None:
    planned, runs = evidence.planned(sweep, experiment), evidence.recorded(sweep, experiment)
    axes.set_title(runs_text(planned), fontsize=8)
    if not runs:
        axes.set(xticks=[], yticks=[])
        mark_not_run(axes)
        return
    accuracy = accuracy_by_value(runs, field)
    axes.plot(list(accuracy), list(accuracy.values()), "o-", markersize=4, color=OURS)
    sweeps = [f"{PAPER}/{name}" for name in SENSITIVITY]
    others = [run for other in sweeps if other != sweep for run in evidence.planned(other, experiment)[:1]]
    if others:  # which leave this parameter as table 6 has it
        axes.axvline(float(OmegaConf.select(others[0].job.config, field)), color="grey", linestyle=":", linewidth=1)


def _share_span(row: Sequence[Axes]) -> None:
    """Give all panels that have runs one y axis, of at least two points: a flat line looks flat."""
    drawn = [axes for axes in row if axes.lines]
    if drawn:
        low, high = min(a.get_ylim()[0] for a in drawn), max(a.get_ylim()[1] for a in drawn)
        margin = max(0.0, 2 - (high - low)) / 2
        for axes in drawn:
            axes.set_ylim(low - margin, high + margin)

"""Costs of the accuracies of table 1: the first panel of that table's figure."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.papers.noise_screening import settings
from runner.papers.noise_screening.measures import screened
from runner.papers.noise_screening.settings import claimed_at
from runner.papers.noise_screening.theorem_1 import at_least, worst
from runner.report import plots
from runner.report.files import number
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = {  # experiment: label
    "noise_screening/{}_relu": "ReLU",
    "losing_less/{}_ce": "tanh",
    "noise_screening/{}_auto": "AUTO-S",
    "noise_screening/{}_screened_momentum": "screening, momentum 0.9",
    "noise_screening/{}_screened_momentum_kept": "screening, momentum not restored",
    "noise_screening/{}_screened": "screening",
    "noise_screening/{}_free": "screening, its own settings",
}
HALF = "{}_public"  # of an experiment: screened by half of the test images, reported on the other half


def sizes(evidence: Evidence, pattern: str) -> str:
    """Return the numbers of runs of an experiment, with {} for the data set, on each data set that has any."""
    planned = {title: settings.planned(evidence, pattern.format(key)) for key, title in plots.DATASETS.items()}
    return ", ".join(f"{title} {plots.runs_text(runs)}" for title, runs in planned.items() if runs.recorded)


def panel(axes: Axes, evidence: Evidence, dataset: str) -> None:
    """Draw each method's accuracy at the claimed epsilon, and a line from there to its sound epsilon.

    Claimed accuracies are stars at the claimed epsilon, at the paper's scale only. The dashed line is a lower bound on
    the true epsilon of kept updates at these settings, under the worst rule found for theorem 1. So no smaller epsilon
    holds for every screening rule.
    """
    claims = {claim.alone: claim for claim in claims_of("noise_screening", item="table-1")}
    for pattern, label in METHODS.items():
        experiment = pattern.format(dataset)
        planned = settings.planned(evidence, experiment)
        reached = planned.recorded.at(lambda run: run.last_within(claimed_at(), "epsilon"))
        if not reached:
            continue
        accuracy = fmean(reached.values("test_accuracy"))
        sound = (planned if screened(planned[0]) else reached).largest("epsilon_sound")
        colour, marker = plots.LOOKS[label]
        look: dict[str, Any] = {"marker": marker, "color": colour, "markersize": 6, "linestyle": ""}
        ends = [reached.largest("epsilon"), sound]
        axes.plot(ends, [accuracy] * 2, color=colour, linewidth=1, alpha=0.7)
        axes.plot(ends[:1], [accuracy], markerfacecolor="none", **look)
        axes.plot(ends[1:], [accuracy], label=f"{label}, {sizes(evidence, pattern)}", **look)
        aim = claims[experiment].aim if experiment in claims else None
        if evidence.scale == PAPER_SCALE and aim is not None:
            axes.plot([claimed_at()], [aim], color=colour, **plots.CLAIMED)
    axes.plot([], [], "o", color="grey", markerfacecolor="none", label="hollow: ε as the paper counts")
    if evidence.scale == PAPER_SCALE:
        axes.plot([], [], color="grey", label="claimed", **plots.CLAIMED)
    title = settings.DATASETS[dataset]
    least = at_least(title, worst(title))
    axes.axvline(least, color="k", linestyle="--", linewidth=1, label="lower bound on the true ε, worst rule found")
    beside: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points", "va": "bottom", "fontsize": 8}
    axes.annotate(f"≥ {number(least, bound='lower')}", (least, 0.55), xycoords=("data", "axes fraction"), **beside)
    axes.axvline(claimed_at(), color="grey", linestyle=":", linewidth=1, label=f"claimed ε = {claimed_at():g}")
    axes.set(xlabel="sound ε (hollow: as the paper counts)", xlim=(0, None))

"""Costs of the accuracies of table 1: the first panel of that table's figure."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from runner.claims.costs import most_guaranteed
from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.reading import claims_of
from runner.papers.noise_screening import settings
from runner.papers.noise_screening.measures import screened, within
from runner.papers.noise_screening.settings import claimed_at
from runner.papers.noise_screening.theorem_1 import at_least, worst
from runner.report.files import number
from runner.report.plots import MARKERS, runs_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = {  # experiment: label, colour
    "noise_screening/{}_relu": ("DP-SGD, ReLU", "C1"),
    "losing_less/{}_ce": ("DP-SGD, tanh", "C0"),
    "noise_screening/{}_auto": ("AUTO-S", "C2"),
    "noise_screening/{}_screened_momentum": ("screened, momentum 0.9", "C4"),
    "noise_screening/{}_screened_momentum_kept": ("screened, momentum not restored", "C6"),
    "noise_screening/{}_screened": ("screened, no momentum", "C3"),
    "noise_screening/{}_free": ("screened, free settings", "C5"),
}


def panel(axes: Axes, evidence: Evidence, dataset: str) -> None:
    """Draw each method's accuracy at the claimed epsilon, and a line from there to its sound epsilon.

    Claimed accuracies are stars at the claimed epsilon, at the paper's scale only. The dashed line is a lower bound on
    the true epsilon of kept updates at these settings, under the worst rule found for theorem 1. So no smaller epsilon
    holds for every screening rule.
    """
    claims = {claim.alone: claim for claim in claims_of("noise_screening", item="table-1")}
    for place, (pattern, (label, colour)) in enumerate(METHODS.items()):
        experiment = pattern.format(dataset)
        planned = settings.planned(evidence, experiment)
        reached = planned.recorded.at(lambda run: within(run, claimed_at()))
        if not reached:
            continue
        accuracy = fmean(reached.values("test_accuracy"))
        sound = most_guaranteed(planned) if screened(planned[0]) else reached.largest("epsilon_sound")
        marker: dict[str, Any] = {"marker": MARKERS[place], "color": colour, "markersize": 6}
        ends = [reached.largest("epsilon"), sound]
        axes.plot(ends, [accuracy] * 2, color=colour, linewidth=1, alpha=0.7)
        axes.plot(ends[:1], [accuracy], markerfacecolor="none", linestyle="", **marker)
        axes.plot(ends[1:], [accuracy], linestyle="", label=f"{label}, {runs_text(planned)}", **marker)
        aim = claims[experiment].aim if experiment in claims else None
        if evidence.scale == PAPER_SCALE and aim is not None:
            axes.plot([claimed_at()], [aim], "*", color=colour, markersize=12, markerfacecolor="none")
    axes.plot([], [], "o", color="grey", markerfacecolor="none", label="as the paper counts ε (filled: the sound ε)")
    if evidence.scale == PAPER_SCALE:
        axes.plot([], [], "*", color="grey", markersize=12, markerfacecolor="none", label="claimed accuracy")
    title = settings.DATASETS[dataset]
    least = at_least(title, worst(title))
    text = f"same settings, worst rule found: the true ε is at least {number(least, bound='lower')}"
    axes.axvline(least, color="k", linestyle="--", linewidth=1, label=text)
    axes.axvline(claimed_at(), color="grey", linestyle=":", linewidth=1, label=f"claimed ε = {claimed_at():g}")
    axes.set(xlabel="ε", xlim=(0, None))

"""Methods of table 1 and figure 3, and the accuracies of table 1: a panel of that table's figure."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from runner.claims.claim import Claim
from runner.claims.runs import PAPER_SCALE, Evidence, Runs, grouped
from runner.papers.noise_screening import settings
from runner.papers.noise_screening.measures import screened
from runner.papers.noise_screening.settings import claimed_at
from runner.papers.noise_screening.theorem_1 import at_least, worst
from runner.report import plots
from runner.report.files import bound_text, number
from runner.report.papers import claims_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOOKS = {  # method, or reading of screening: its look
    "DP-SGD, ReLU": "ReLU",
    "DP-SGD, tanh": "tanh",
    "DP-SGD, AUTO-S": "AUTO-S",
    "momentum 0.9": "screening, momentum 0.9",
    "momentum 0.9, not restored on rejection": "screening, momentum not restored",
    "no momentum, as printed": "screening",
    "Screening, its own settings": "screening, its own settings",
}


def look(claim: Claim) -> tuple[str, str]:
    """Return the colour and marker of a claim's method."""
    return plots.LOOKS[_LOOKS[claim.reading or claim.method]]


def methods(evidence: Evidence, dataset: str) -> list[tuple[Claim, Runs]]:
    """Return the private methods of table 1 in its order, each with its planned runs in one reading.

    Of several readings, this is the one that counts, or the first that has a run if that one has none.
    """
    claims = claims_of("noise_screening", item="table-1", quantity="test_accuracy", dataset=settings.DATASETS[dataset])
    private = [
        (claim, settings.planned(evidence, claim.alone))
        for claim in claims
        if claim.epsilon and claim.epsilon[0] < math.inf
    ]
    return [
        next((pair for pair in readings if pair[1].recorded), readings[0])
        for readings in grouped(private, lambda pair: pair[0].method).values()
    ]


def panel(axes: Axes, evidence: Evidence, dataset: str) -> None:
    """Draw each method's accuracies at the claimed epsilon, every run and the mean, in the order of the table.

    Claimed accuracies are stars, at the paper's scale only. A row names the sound epsilon of its runs. The title has a
    lower bound on the true epsilon of kept updates at these settings, under the worst rule found for theorem 1.
    """
    of_paper, rows = evidence.scale == PAPER_SCALE, methods(evidence, dataset)
    for place, (claim, planned) in enumerate(rows):
        colour, marker = look(claim)
        texts = ["not run"]
        if reached := planned.recorded.at(lambda run: run.last_within(claimed_at(), "epsilon")):
            accuracies = reached.values("test_accuracy")
            axes.plot(accuracies, [place + 0.1] * len(accuracies), "|", color=colour, markersize=9)
            axes.plot(fmean(accuracies), place + 0.1, marker, color=colour)
            sound = (planned if screened(planned[0]) else reached).largest("epsilon_sound")
            texts = [plots.runs_text(planned), f"{plots.SOUND} {bound_text(sound)}"]
        if of_paper and claim.aim is not None:
            axes.plot(claim.aim, place - 0.1, color=colour, **plots.CLAIMED)
        where: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "fontsize": 8, "va": "center"}
        axes.text(0.02, place - 0.36, ", ".join(texts), **where)
        if claim.reading:
            axes.text(0.02, place + 0.36, claim.reading, **where)
    for style in ({"marker": "|"}, {"marker": "o"}, plots.CLAIMED) if of_paper else ():
        label = {"|": "a run", "o": "mean", "*": "claimed"}[style["marker"]]
        plots.name_once(axes, label, **{"color": plots.GREY, "linestyle": ""} | style)
    least = at_least(settings.DATASETS[dataset], worst(settings.DATASETS[dataset]))
    axes.set(title=plots.DATASETS[dataset], ylim=(len(rows) - 0.4, -0.6))
    worst_rule = f"worst rule found: true ε ≥ {number(least, bound='lower')}"
    axes.set_xlabel(f"test accuracy (%), claimed ε = {claimed_at():g}\n{worst_rule}", fontsize=8)
    axes.margins(x=0.12)
    axes.set_yticks(range(len(rows)), [claim.method for claim, _ in rows])
    axes.tick_params(labelleft=dataset == next(iter(plots.DATASETS)))

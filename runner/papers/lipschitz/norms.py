"""Figures 6 and 7: norms of images and gradients, as runs recorded them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runner.claims.evidence import Evidence
from runner.claims.runs import PlannedRun
from runner.report.items import Draw
from runner.report.plots import figure, mark_not_run, name_not_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EXPERIMENT = "lipschitz/cifar10_norms"


def histograms(sweep: str, label: Callable[[PlannedRun], str]) -> Draw:
    """Return a figure of two panels, images and gradients after the last epoch, with a line per run of the sweep."""

    def draw(evidence: Evidence) -> Figure:
        drawn = figure(9, 3.6)
        images, gradients = drawn.subplots(1, 2)
        planned = evidence.planned(sweep, _EXPERIMENT)
        for place, run in enumerate(planned):
            if run.record is None:
                name_not_run(images, label(run), f"C{place}")
                continue
            found = run.diagnostic("norm_histograms")
            _line(images, found["inputs"], label(run), f"C{place}")
            _line(gradients, found["gradients"][-1], label(run), f"C{place}")
        for axes, title in ((images, "images"), (gradients, "gradients, after one epoch")):
            axes.set(title=title, xlabel="L2 norm", ylabel="share of 2,048 training images", xlim=(0, None))
            if not planned.recorded:
                mark_not_run(axes, without_ticks=True)
        images.legend()
        return drawn

    return draw


def shares(histogram: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Return the edges of a histogram's bins, and the share of all in each."""
    counts = [float(count) for count in histogram["counts"]]
    edges = [float(histogram["largest"]) * place / len(counts) for place in range(len(counts) + 1)]
    return edges, [count / sum(counts) for count in counts]


def _line(axes: Axes, histogram: dict[str, Any], label: str, colour: str) -> None:
    edges, heights = shares(histogram)
    axes.stairs(heights, edges, color=colour, label=label)

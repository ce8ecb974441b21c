"""Figures 6 and 7: norms of images and gradients, as runs recorded them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runner.claims.runs import Evidence, PlannedRun, grouped
from runner.report import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXPERIMENT = "lipschitz/cifar10_norms"
_LARGEST = 32 * 3**0.5  # norm of a white image of CIFAR-10
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # lines may lie on one another


def histograms(sweep: str, label: Callable[[PlannedRun], str], evidence: Evidence) -> Figure:
    """Draw two panels, images and gradients after the last epoch, with a line for the first run of each setting."""
    drawn = plots.figure(plots.WIDTH, 3.8)
    images, gradients = drawn.subplots(1, 2)
    planned = evidence.planned(sweep, _EXPERIMENT)
    for place, (run, *_) in enumerate(grouped(planned, label).values()):
        if run.record is None:
            plots.mark_not_run(images, [label(run)])
            continue
        found = run.diagnostic("norm_histograms")
        for axes, histogram in ((images, found["inputs"]), (gradients, found["gradients"][-1])):
            edges, heights = shares(histogram)
            look: dict[str, Any] = {"color": f"C{place}", "linestyle": _DASHES[place % len(_DASHES)]}
            axes.stairs(heights, edges, label=label(run), **look)
    for axes, title in ((images, "images"), (gradients, "gradients, after one epoch")):
        axes.set(title=title, xlabel="L2 norm", ylabel="share of 2,048 training images", xlim=(0, None))
        if not planned.recorded:
            plots.mark_not_run(axes, without_ticks=True)
    plots.one_legend(drawn, 5)
    return drawn


def shares(histogram: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Return the edges of a histogram's bins, and the share of all in each."""
    counts = [float(count) for count in histogram["counts"]]
    edges = [float(histogram["largest"]) * place / len(counts) for place in range(len(counts) + 1)]
    return edges, [count / sum(counts) for count in counts]


def clipped_to(run: PlannedRun) -> str:
    """Return in words the norm that a run's images are clipped to, if any image of CIFAR-10 can be larger."""
    norm = float(run.field("features.largest_norm"))
    return f"clipped to {norm:g}" if norm < _LARGEST else "not clipped"

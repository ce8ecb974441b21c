"""The leaderboard as a figure: a row of panels for each data set, a panel for each bound, a line for each method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runner.claims.claim import dataset_name
from runner.report import plots
from runner.report.leaderboard.comparison import SHOWN, Comparison
from runner.report.leaderboard.entries import Entry
from runner.report.leaderboard.methods import LOOKS
from runner.report.leaderboard.published import Published, best_published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PUBLISHED: dict[str, Any] = {"color": "black", "marker": "|", "markersize": 14, "markeredgewidth": 2, "linestyle": ""}


def draw(compared: Sequence[Comparison], known: Sequence[Published]) -> Figure:
    """Draw the best mean of each method with its 95% interval. A method has one marker and colour in all panels."""
    styles = {name: dict(zip(("color", "marker"), plots.LOOKS[look], strict=True)) for name, look in LOOKS.items()}
    heights = [1.6 + len(one.rows) for one in compared]
    drawn = plots.figure(plots.WIDTH, 0.26 * sum(heights) + 0.9)
    panels = drawn.subplots(len(compared), len(SHOWN), squeeze=False, gridspec_kw={"height_ratios": heights})
    for one, row in zip(compared, panels, strict=True):
        shared = _limits([line.at[e] for line in one.rows for e in line.at], known)
        for axes, epsilon in zip(row, SHOWN, strict=True):
            if not any(epsilon in line.at for line in one.rows):
                axes.remove()
                continue
            _panel(axes, one, epsilon, styles, best_published(known, one.dataset, epsilon))
            axes.set(title=f"{dataset_name(one.dataset)}, sound ε ≤ {epsilon:g}", xlim=shared)
            if axes is not row[0]:
                axes.tick_params(labelleft=False)
    for axes in panels[-1]:
        axes.set_xlabel("test accuracy (%)")
    _legend(drawn)
    return drawn


def _panel(
    axes: Axes, compared: Comparison, epsilon: float, styles: dict[str, dict[str, Any]], published: Published | None
) -> None:
    rows = [line for line in compared.rows if line.at]
    for place, line in enumerate(rows):
        entry = line.at.get(epsilon)
        if entry is not None:
            style = styles[line.method] | ({} if entry.interval else {"markerfacecolor": "white"})
            half = entry.interval.half_width if entry.interval else None
            axes.errorbar(entry.mean, place, xerr=half, markersize=7, capsize=3, linestyle="", zorder=3, **style)
    if (plain := compared.plain.at.get(epsilon)) is not None:
        axes.axvline(plain.mean, color="black", linestyle=":", linewidth=1, zorder=1)
    if published is not None:
        axes.plot(published.accuracy, -1, **_PUBLISHED)
        axes.annotate(
            f"{published.accuracy:g} ",
            (published.accuracy, -1),
            (-6, 0),
            textcoords="offset points",
            ha="right",
            va="center",
        )
    names = [line.method for line in rows]
    axes.set_yticks(range(-1, len(rows)), ["Published", *names])
    axes.set_ylim(len(rows) - 0.4, -1.6)


def _limits(entries: Sequence[Entry], known: Sequence[Published]) -> tuple[float, float]:
    """Return the range of the panels of a data set, which means, intervals and published numbers fill."""
    shown = [p.accuracy for e in SHOWN if (p := best_published(known, entries[0].dataset, e))]
    for entry in entries:
        shown += [entry.interval.low, entry.interval.high] if entry.interval else [entry.mean]
    margin = 0.04 * (max(shown) - min(shown)) + 0.2
    return max(0.0, min(shown) - margin), min(100.0, max(shown) + margin)


def _legend(drawn: Figure) -> None:
    """Explain what is not named at a panel's side."""
    from matplotlib.lines import Line2D

    point: dict[str, Any] = {"color": "grey", "marker": "o", "linestyle": ""}
    drawn.legend(
        [
            Line2D([], [], **point),
            Line2D([], [], markerfacecolor="white", **point),
            Line2D([], [], color="black", linestyle=":", linewidth=1),
            Line2D([], [], **_PUBLISHED | {"markersize": 10}),
        ],
        ["mean of several runs, 95% interval", "a single run", "plain DP-SGD", "published, at this ε or below"],
        loc="outside lower center",
        ncols=4,
    )

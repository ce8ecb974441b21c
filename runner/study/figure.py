"""The figure of a study: gains over the first arm under each seed, with the 95% interval of their mean.

It has all arms, or of a factorial each part alone, their sum, and all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from runner.claims.contrasts import Estimate
from runner.report.plots import WIDTH, figure
from runner.study.file import Study
from runner.study.outcome import ALL, SUM, Compared, by_pair, sums

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL, _ROW = 0.7, 0.3  # inches: around the rows of a panel, and of each arm
_NAME = 40  # characters in a line


def draw(study: Study, found: Sequence[Compared]) -> Figure | None:
    """Draw a row of panels for each data set, with a panel for each epsilon; None without a gain."""
    if not any(one.gain for one in found):
        return None
    pairs = by_pair(found)
    datasets, epsilons = (list(dict.fromkeys(key[place] for key in pairs)) for place in (0, 1))
    rows = {key: _rows(study, of) for key, of in pairs.items()}
    drawn = figure(WIDTH, len(datasets) * (_PANEL + _ROW * max(map(len, rows.values()))) + 0.4)
    panels = drawn.subplots(len(datasets), len(epsilons), squeeze=False, sharey=True)
    for axes, (key, of) in zip(panels.flat, pairs.items(), strict=True):
        axes.set_title(f"{of[0].arm.setting.dataset_name}, ε = {key[1]:g}")
        _gains(axes, rows[key])
    drawn.supxlabel(
        f"gain over {of[0].arm.setting.arm.name}, points of test accuracy: seeds, mean, 95% interval", size=9
    )
    return drawn


def _rows(study: Study, of: Sequence[Compared]) -> list[tuple[str, Estimate | None]]:
    """Return the names and gains to draw."""
    if not study.parts[1:]:
        return [(one.arm.setting.arm.name, one.gain) for one in of[1:]]
    alone = {one.arm.setting.arm.name: one.gain for one in of if sum(one.arm.setting.arm.cell) == 1}
    both = {one.name: one.found for one in sums(study, [one.arm for one in of])}
    return [*((part, alone[part]) for part in study.parts), (SUM, both[SUM]), (ALL, both[ALL])]


def _gains(axes: Axes, rows: Sequence[tuple[str, Estimate | None]]) -> None:
    for y, (_, gain) in enumerate(rows):
        colour = f"C{y % 10}"
        if gain is None:
            axes.text(0, y, " not run", va="center", color="0.6", fontsize=8)
            continue
        axes.plot(gain.by_seed, [y] * len(gain.by_seed), "o", color=colour, markersize=4, alpha=0.6, zorder=4)
        axes.plot(gain.value, y, "D", color=colour, markersize=6, markeredgecolor="black")
        if gain.interval:
            axes.plot([gain.interval.low, gain.interval.high], [y, y], color=colour, linewidth=2.5)
    axes.set_yticks(range(len(rows)), [fill(name, _NAME) for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(visible=False, axis="y")

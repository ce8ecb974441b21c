"""The figure of a study: gains over the first arm under each seed, with the 95% interval of their mean.

It has all arms, or of a factorial each part alone, their sum, and all together. All panels have one range. A gain
beyond it is an arrow with its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from textwrap import fill
from typing import TYPE_CHECKING, Any

from runner.claims.contrasts import Estimate
from runner.report import plots
from runner.report.cells import difference_text
from runner.study.definition import Study
from runner.study.outcome import ALL, SUM, Compared, by_pair, sums, tests

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL, _ROW = 0.7, 0.3  # inches: around the rows of a panel, and of each arm
_NAME = 40  # characters in a line
_COLOUR = "C0"
_FAR, _LEAST = 6, 2.0  # times the median gain, and points: the range that a gain is beyond


def draw(study: Study, found: Sequence[Compared]) -> Figure | None:
    """Draw a row of panels for each data set, with a panel for each epsilon; None without a gain."""
    if not any(one.gain for one in found):
        return None
    pairs = by_pair(found)
    datasets, epsilons = (list(dict.fromkeys(key[place] for key in pairs)) for place in (0, 1))
    rows = {key: _rows(study, of) for key, of in pairs.items()}
    drawn = plots.figure(plots.WIDTH, len(datasets) * (_PANEL + _ROW * max(map(len, rows.values()))) + 0.4)
    panels = drawn.subplots(len(datasets), len(epsilons), squeeze=False, sharex=True, sharey=True)
    low, high = _range([gain for of in rows.values() for _, gain in of if gain])
    room = 0.05 * (high - low) or 1.0
    panels.flat[0].set_xlim(low - room, high + room)
    for axes, (key, of) in zip(panels.flat, pairs.items(), strict=True):
        axes.set_title(of[0].arm.setting.place)
        _gains(axes, rows[key])
    shown = "seeds, mean, 95% interval" if tests(found) else "one seed"
    drawn.supxlabel(f"gain over {of[0].arm.setting.arm.name}, points of test accuracy: {shown}", size=9)
    return drawn


def _rows(study: Study, of: Sequence[Compared]) -> list[tuple[str, Estimate | None]]:
    if not study.parts[1:]:
        return [(one.arm.setting.arm.name, one.gain) for one in of[1:]]
    alone = {one.arm.setting.arm.name: one.gain for one in of if sum(one.arm.setting.arm.cell) == 1}
    both = {one.name: one.found for one in sums(study, [one.arm for one in of])}
    return [*((part, alone[part]) for part in study.parts), (SUM, both[SUM]), (ALL, both[ALL])]


def _ends(gain: Estimate) -> tuple[float, float]:
    """Return the ends of what is drawn of a gain: its seeds and its interval."""
    drawn = [*gain.by_seed, *([gain.interval.low, gain.interval.high] if gain.interval else [])]
    return min(drawn), max(drawn)


def _range(gains: Sequence[Estimate]) -> tuple[float, float]:
    """Return the range of all panels, with 0, and without gains that are very far from most."""
    farthest = [max(map(abs, _ends(gain))) for gain in gains]
    most = max(_LEAST, _FAR * median_low(farthest))
    inside = [0.0, *(end for gain, far in zip(gains, farthest, strict=True) if far <= most for end in _ends(gain))]
    return min(inside), max(inside)


def _gains(axes: Axes, rows: Sequence[tuple[str, Estimate | None]]) -> None:
    left, right = axes.get_xlim()
    for y, (_, gain) in enumerate(rows):
        if gain is None:
            axes.text(0, y, " not run", va="center", color="0.6", fontsize=8)
            continue
        low, high = _ends(gain)
        if low < left or high > right:
            at, marker, side, inwards = (left, "<", "left", 8) if gain.value < 0 else (right, ">", "right", -8)
            axes.plot(at, y, marker, color=_COLOUR, markersize=8, clip_on=False)
            ends = (difference_text(each(gain.by_seed), "%", None) for each in (min, max))
            text = f"{difference_text(gain.value, '%', gain.interval)}\nseeds {' to '.join(ends)}"
            style: Any = {"xytext": (inwards, 0), "textcoords": "offset points", "fontsize": 8}
            axes.annotate(text, (at, y), color=_COLOUR, backgroundcolor="white", ha=side, va="center", **style)
            continue
        axes.plot(gain.by_seed, [y] * len(gain.by_seed), "o", color=_COLOUR, markersize=4, alpha=0.6, zorder=4)
        axes.plot(gain.value, y, "D", color=_COLOUR, markersize=6, markeredgecolor="black")
        if gain.interval:
            axes.plot([gain.interval.low, gain.interval.high], [y, y], color=_COLOUR, linewidth=2.5)
    axes.set_yticks(range(len(rows)), [fill(name, _NAME) for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(visible=False, axis="y")

"""The leaderboard as a figure: a panel for each data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.claims.statistics import Interval
from runner.report import plots
from runner.report.leaderboard.entries import Entry
from runner.report.leaderboard.tables import marked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DRAWN = 6  # methods of a panel
_MARKERS = "osD^vPX*"
_LINES = ("-", "--")  # of one paper's methods in a panel, which shows at most two


def draw(found: Sequence[Entry]) -> Figure:
    """Draw mean accuracy and its 95% interval against the bound, for the best methods on each data set.

    A paper has at most two methods in a panel. Accuracies that are not comparable come last: on a part of the test
    images, or on images that chose updates.

    A paper has one colour in all panels; its methods in a panel differ by marker and line.
    """
    datasets = list(dict.fromkeys(entry.dataset for entry in found))
    colours = {paper: f"C{place}" for place, paper in enumerate(sorted({_paper(entry) for entry in found}))}
    drawn = plots.figure(4.6 * len(datasets), 5.2)
    for axes, dataset in zip(drawn.subplots(1, len(datasets), squeeze=False)[0], datasets, strict=True):
        of_it = [entry for entry in found if entry.dataset == dataset]
        bounds = sorted({entry.epsilon for entry in of_it})
        best = {s: max(e.mean for e in of_it if e.setting == s) for s in dict.fromkeys(e.setting for e in of_it)}
        apart = {e.setting for e in of_it if e.by_test_images or e.on_a_part}
        papers = {e.setting: _paper(e) for e in of_it}
        shown = _shown(sorted(best, key=lambda setting: (setting in apart, -best[setting])), papers)
        drawn_of: Counter[str] = Counter()
        for place, setting in enumerate(shown):
            line = sorted((e for e in of_it if e.setting == setting), key=lambda e: e.epsilon)
            at = [bounds.index(e.epsilon) + 0.08 * (place - len(shown) / 2) for e in line]
            paper = papers[setting]
            style = {"marker": _MARKERS[place], "linestyle": _LINES[drawn_of[paper]], "color": colours[paper]}
            _draw_method(axes, at, line, style)
            drawn_of[paper] += 1
        axes.set(title=dataset, xticks=range(len(bounds)), xticklabels=[f"{e:g}" for e in bounds], xlabel="sound ε ≤")
        middle = [best[setting] for setting in shown]
        axes.set_ylim(bottom=max(0.0, min(middle) - 12), top=min(100.0, max(middle) + 1))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
    drawn.axes[0].set_ylabel("test accuracy (%), 95% interval (hollow: one run)")
    return drawn


def _shown(settings: Sequence[str], papers: Mapping[str, str]) -> list[str]:
    """Select the first settings, with as many of each paper as there are lines to distinguish them."""
    shown: list[str] = []
    for setting in settings:
        if [papers[one] for one in shown].count(papers[setting]) < len(_LINES):
            shown.append(setting)
    return shown[:_DRAWN]


def _paper(entry: Entry) -> str:
    return entry.experiment.partition("/")[0]


def _draw_method(axes: Axes, at: Sequence[float], line: Sequence[Entry], style: Mapping[str, Any]) -> None:
    """Draw a setting's means with their intervals, bounds at `at`; means of a single run are hollow."""
    ends = [entry.interval or Interval(entry.mean, entry.mean) for entry in line]
    means = [entry.mean for entry in line]
    below = [mean - end.low for mean, end in zip(means, ends, strict=True)]
    above = [end.high - mean for mean, end in zip(means, ends, strict=True)]
    filled = any(entry.interval is not None for entry in line)
    face: dict[str, Any] = {} if filled else {"markerfacecolor": "white"}
    axes.errorbar(at, means, [below, above], capsize=2, label=marked(line[0]), **style, **face)
    for x, entry in zip(at, line, strict=True):
        if filled and entry.interval is None:
            axes.plot(x, entry.mean, markerfacecolor="white", zorder=3, **style)

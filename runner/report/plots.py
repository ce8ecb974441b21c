"""Style and files of figures, and the figure that every paper has: accuracy against epsilon."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import fmean, median
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from runner.claims.blocks import DATASETS as IN_PAPERS
from runner.claims.blocks import dataset_name
from runner.claims.evidence import PAPER_SCALE, Evidence
from runner.claims.runs import Runs
from runner.report.files import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "figure",  # without a date, the same figure is the same file
    "svg.fonttype": "none",  # text as text: small files that can be searched
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # of equal widths
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "legend.frameon": True,
    "legend.framealpha": 0.85,
    "lines.linewidth": 1.5,
}
FILE = "figure.svg"
_TICKS_APART = 0.1  # of an axis
_PLACES = re.compile(r'\b(?:d|x|y|width|height|transform)="[^"]*"')
_LONG = re.compile(r"-?\d+\.\d{3,}")
_HASHED = re.compile(r'id="([^"]*[0-9a-f]{10}[^"]*)"')
DATASETS = {file: dataset_name(name) for name, file in IN_PAPERS.items()}
_NOT_RUN = ", not run"
WIDTH = 9.4  # inches: a page of 900 pixels, on which text keeps its size
MARKERS = "os^Dv<>P*Xhd"  # by place, so that lines differ without their colours
LOOKS = {  # by method: colour and marker in all figures
    "ReLU": ("black", "o"),  # plain DP-SGD
    "tanh": ("C0", "s"),
    "losing-less loss": ("C1", "^"),
    "AUTO-S": ("C2", "D"),
    "ScatterNet": ("C3", "v"),
    "ideas combined": ("C4", "<"),
    "screening": ("C5", ">"),
    "screening, momentum 0.9": ("C8", "X"),
    "screening, momentum not restored": ("C9", "h"),
    "screening, its own settings": ("C6", "d"),
    "backpropagation clipping": ("C6", "P"),
    "corrected": ("C9", "p"),
    "joint": ("C4", "H"),
    "original bug": ("C3", "X"),
    "original code": ("C5", "8"),
    "tanh, large batches": ("navy", "d"),
    "Lipschitz": ("C7", "*"),
    "Lipschitz, clipped": ("C3", "p"),
    "Lipschitz, projection": ("C0", "X"),
    "plain DP-SGD, Opacus": ("C3", "P"),
    "SGD, ReLU": ("goldenrod", "o"),
    "SGD, tanh": ("C9", "s"),
    "SGD, clipped": ("teal", "D"),
    "squared error": ("C2", "P"),
    "absolute error": ("C3", "d"),
    "squared error, then cross-entropy": ("C4", "X"),
    "squared error, then focal loss": ("C5", "h"),
}
CLAIMED: dict[str, Any] = {"marker": "*", "markersize": 11, "markerfacecolor": "none", "linestyle": ""}
AS_PAPER, SOUND = "ε as the paper counts", "sound ε"


@contextmanager
def style() -> Iterator[None]:
    """Set the style of all figures, for drawing and for saving."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # nothing of a user's own matplotlibrc
        matplotlib.rcParams.update(_STYLE)
        yield


def figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, without a window. A page shrinks it if it is wider than `WIDTH`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(drawn: Figure, folder: Path, label: str = "") -> list[Path]:
    """Write figure.svg in `folder`, with `label` across it if there is one ("smoke")."""
    if label:
        drawn.text(0.5, 0.5, label, size=70, color="red", alpha=0.12, ha="center", va="center", rotation=25)
        title = drawn.get_suptitle()
        mark = f"{label.upper()}: not a reproduction"
        drawn.suptitle(f"{mark}\n{title}" if title else mark, color="firebrick", fontsize=10)
    return [write_svg(drawn, folder / FILE)]


def write_svg(drawn: Figure, path: Path) -> Path:
    """Write a figure as an SVG. Rounding errors of another processor change no byte of it."""
    drawn.savefig(text := StringIO(), format="svg", metadata={"Date": None, "Creator": None})
    return write_text(path, rounded(text.getvalue()))


def rounded(svg: str) -> str:
    """Round the coordinates of an SVG to a hundredth of a point, and number the ids that are hashes of coordinates."""
    ids = {found: f"i{place}" for place, found in enumerate(dict.fromkeys(_HASHED.findall(svg)))}
    for found, short in ids.items():
        svg = svg.replace(f'"{found}"', f'"{short}"').replace(f"#{found}", f"#{short}")
    return _PLACES.sub(lambda place: _LONG.sub(lambda number: f"{float(number[0]):.2f}", place[0]), svg)


@dataclass(frozen=True)
class Curve:
    """A line of an accuracy figure: the runs of one experiment, and the accuracy claimed for it (percent).

    Attributes:
        sweeps: the sweep, or several: the first that has the experiment counts.
        claimed_at: accuracies claimed at other epsilons than the panel's: (epsilon, percent).
        claimed_as: the statistic of the paper's runs, if it is not their mean: "maximum".
        look: its method in `LOOKS`, if that is not the label.
        colour: its colour, if it has no look.
        only: a config field and a value. Only runs with this value belong to the line.
    """

    sweeps: str | Sequence[str]
    experiment: str
    label: str
    claimed: float | None = None
    claimed_at: Sequence[tuple[float, float]] = ()
    claimed_as: str = ""
    look: str = ""
    colour: str = ""
    only: tuple[str, float] | None = None

    def planned(self, evidence: Evidence) -> Runs:
        """Return the runs of this line, recorded or not."""
        runs = evidence.planned(self.sweeps, self.experiment)
        return runs if self.only is None else runs.where(*self.only)


@dataclass(frozen=True)
class Panel:
    """One data set of an accuracy figure, with the epsilon that its accuracies are claimed at.

    Attributes:
        extremes: draw the minimum and maximum of the runs as lines, around the area between them.
    """

    title: str
    curves: Sequence[Curve]
    epsilon: float | None = None
    extremes: bool = False


def runs_text(planned: Runs) -> str:
    """`n = 3 of 10, 1 diverged`."""
    n = len(planned.recorded)
    of = "" if n == len(planned) else f" of {len(planned)}"
    return f"n = {n}{of}" + (f", {planned.diverged} diverged" if planned.diverged else "")


def mark_not_run(axes: Axes, *, without_ticks: bool = False) -> None:
    """Write "not run" above the middle of a panel that has no run. A claimed point may be in the middle."""
    if without_ticks:
        axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.75, "not run", transform=axes.transAxes, ha="center", va="center", fontsize=12, color="grey")


def too_few(settings: Sequence[Runs]) -> str:
    """Return the reason not to draw a panel, if fewer than half of its settings have a run, else ""."""
    run = sum(bool(planned.recorded) for planned in settings)
    if 2 * run >= len(settings):
        return ""
    return f"{run} of {len(settings)} settings run" if run else "not run"


def name_not_drawn(drawn: Figure, few: Mapping[str, str]) -> None:
    """Write the titles of the panels that are not drawn below the others, each with its reason from `too_few`."""
    named = [f"{title} ({why})" for title, why in few.items() if why]
    if named:
        width = int(13 * drawn.get_size_inches()[0])  # characters of this size in a line
        drawn.supxlabel(fill(f"Not drawn: {'; '.join(named)}.", width), fontsize=8, color="grey")


def spaced(line: Sized, place: int, marker: str = "") -> dict[str, Any]:
    """Return the settings of a line's markers: about six along it, apart from other lines' markers."""
    every = max(1, len(line) // 6)
    marker = marker or MARKERS[place % len(MARKERS)]
    return {"marker": marker, "markersize": 4, "markevery": (place * every // 4, every)}


def log_axis(axes: Axes, name: Literal["x", "y"], at: Sequence[float] = ()) -> None:
    """Make an axis logarithmic, with numbers in place of powers of ten, at these values if there are any."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set(**{f"{name}scale": "log"})
    axis: Axis = getattr(axes, f"{name}axis")
    low, high = axis.get_view_interval()
    subs, most = ((1, 2, 5) if high < 300 * low else (1,)), (5 if high > 1e5 * low else None)
    axis.set_major_locator(LogLocator(subs=subs, numticks=most))
    if at:
        axis.set_ticks(sorted(set(at)))
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter(NullFormatter())


def by_error(axes: Axes) -> None:
    """Spread an axis of accuracies in percent by their error, so that 99 and 99.5 are as far apart as 90 and 95."""
    import numpy as np

    axes.set_yscale(
        "function",
        functions=(lambda a: -np.log10(np.maximum(100.5 - a, 1e-3)), lambda v: 100.5 - 10.0 ** (-np.asarray(v))),
    )
    low, highest = axes.get_ylim()[0], min(100.0, axes.dataLim.y1)
    high = 100.5 - 0.7 * (100.5 - highest)
    axes.set_ylim(low, high)
    ticks: list[float] = []
    for tick in (99.9, 99.5, 99, 98.5, 98, 97, 96, 95, 93, 90, 85, 80, 75, 70, 65, 60, 55, 50, 40, 30, 20, 10, 0):
        apart = np.log10((100.5 - tick) / (100.5 - ticks[-1])) if ticks else 1.0
        if low <= tick <= high and apart > _TICKS_APART * np.log10((100.5 - low) / (100.5 - high)):
            ticks.append(tick)
    axes.set_yticks(ticks)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.minorticks_off()


def name_not_run(axes: Axes, label: str, colour: str) -> None:
    """Add a legend entry for a line that has no run, in the colour of the line."""
    axes.plot([], [], color=colour, label=f"{label}{_NOT_RUN}")


def panel_each(height: float, few: Mapping[str, str]) -> tuple[Figure, list[tuple[Axes, str]]]:
    """Return a figure with a titled panel for each data set, side by side, and each panel with its data set's key.

    Args:
        height: in inches.
        few: by data set, the reason not to draw its panel, or "". The reasons are written below the panels.
    """
    shown = [dataset for dataset in DATASETS if not few[dataset]]
    drawn = figure(WIDTH, height)
    panels = list(zip(drawn.subplots(1, len(shown), squeeze=False)[0] if shown else (), shown, strict=True))
    for axes, dataset in panels:
        axes.set_title(DATASETS[dataset])
    name_not_drawn(drawn, {DATASETS[dataset]: why for dataset, why in few.items()})
    return drawn, panels


def legend_below(axes: Axes, down: float = 0.17) -> None:
    """Put the legend of a panel below it."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -down))


def one_legend(drawn: Figure, columns: int = 4) -> None:
    """Put one legend below all panels, each label once, under the names of those not drawn.

    "not run" stays only if no panel has a run of the label.
    """
    named = {label: handle for a in drawn.axes for handle, label in zip(*a.get_legend_handles_labels(), strict=True)}
    for label in [label for label in named if label.endswith(_NOT_RUN) and label.removesuffix(_NOT_RUN) in named]:
        del named[label]
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": min(columns, len(named))}
    drawn.legend(list(named.values()), list(named), title=drawn.get_supxlabel(), title_fontsize=8, **below)
    drawn.supxlabel("")


def accuracy_against_epsilon(
    evidence: Evidence,
    panels: Sequence[Panel],
    *,
    columns: int | None = None,
    centre: Literal["mean", "median"] = "mean",
    spread_by_error: bool = False,
) -> Figure | None:
    """Draw the centre and range of test accuracy by epoch against epsilon.

    The upper panels use the configured accountant, the lower ones the sound epsilon. Where the two agree in all runs,
    there are no upper panels. An epoch shows the runs that
    reached it, and a cross marks where a run diverged. Claimed accuracies are dashed or hollow. They are drawn at the
    paper's scale only, because other scales have other data. A claim at an epsilon other than the panel's is drawn
    above only, because no paper claims it at a sound epsilon. A panel is named below the others instead of drawn if
    fewer than half of its settings have a run.

    Args:
        evidence: the runs.
        panels: the data sets.
        columns: the largest number of panels side by side. Further panels go below them.
        centre: the statistic of the runs that is drawn as a line.
        spread_by_error: see `by_error`.

    Returns:
        The figure, or None if no panel is drawn.
    """
    few = {panel.title: too_few([curve.planned(evidence) for curve in panel.curves]) for panel in panels}
    shown = [panel for panel in panels if not few[panel.title]]
    if not shown:
        return None
    across = min(columns or len(panels), len(shown))
    rows = -(-len(shown) // across)
    labels = {"epsilon": AS_PAPER, "epsilon_sound": f"{SOUND} of the same runs"}
    if all(_sound_alone(panel, evidence) for panel in shown):
        labels = {"epsilon_sound": SOUND}
    drawn = figure(min(WIDTH, 3.6 * max(2, across)), 2.7 * rows * len(labels) + (1.5 if len(labels) == 1 else 0.9))
    axes = drawn.subplots(len(labels) * rows, across, squeeze=False)
    blocks = (axes[len(labels) * block : len(labels) * (block + 1)] for block in range(rows))
    pairs = [pair for block in blocks for pair in zip(*block, strict=True)]
    for place, (panel, pair) in enumerate(zip(shown, pairs, strict=False)):
        for one, name in zip(pair, labels, strict=True):
            _accuracy_panel(one, evidence, panel, name, centre)
            one.set_xlabel(labels[name])
            if place % across == 0:
                one.set_ylabel("test accuracy (%)")
        pair[0].set_title(f"{panel.title}, {_runs_each([curve.planned(evidence) for curve in panel.curves])}")
        low, high = min(one.get_ylim()[0] for one in pair), max(one.get_ylim()[1] for one in pair)
        right = 1.03 * max(one.get_xlim()[1] for one in pair)
        for one in pair:
            one.set(xlim=(0, right), ylim=(low, high))
            if spread_by_error:
                by_error(one)
    for one in (one for pair in pairs[len(shown) :] for one in pair):
        one.remove()
    name_not_drawn(drawn, few)
    one_legend(drawn)
    return drawn


def _runs_each(curves: Sequence[Runs]) -> str:
    """`n = 5 to 9 of 10`: the fewest and the most runs of a panel's curves."""
    runs, planned = ([len(one) for one in each] for each in ([one.recorded for one in curves], curves))
    n, of = (" to ".join(map(str, sorted({min(each), max(each)}))) for each in (runs, planned))
    return f"n = {n}" + (f" of {of}" if of != n else "")


def _sound_alone(panel: Panel, evidence: Evidence) -> bool:
    """Return True if the configured accountant gives the sound epsilon of every run of a panel."""
    runs = (run for curve in panel.curves for run in curve.planned(evidence).recorded)
    return all(run.history("epsilon") == run.history("epsilon_sound") for run in runs)


def _accuracy_panel(axes: Axes, evidence: Evidence, panel: Panel, name: str, centre: str) -> None:
    levels: list[float] = []
    comparable = evidence.scale == PAPER_SCALE
    for place, curve in enumerate(panel.curves):
        planned = curve.planned(evidence)
        recorded = planned.recorded
        colour, marker = LOOKS.get(
            curve.look or curve.label, (curve.colour or f"C{place}", MARKERS[place % len(MARKERS)])
        )
        if comparable and curve.claimed is not None:
            axes.axhline(curve.claimed, color=colour, linestyle="--", linewidth=1, zorder=1)
            levels.append(curve.claimed)
        if comparable and curve.claimed_at and name == "epsilon":
            axes.plot(*zip(*curve.claimed_at, strict=True), color=colour, zorder=3, **CLAIMED)
            levels += [accuracy for _, accuracy in curve.claimed_at]
        if not recorded:
            name_not_run(axes, curve.label, colour)
            continue
        found = band(recorded, name, "test_accuracy", median if centre == "median" else fmean)
        found.draw(axes, colour, 0.2, **spaced(found.middle, place, marker), label=curve.label)
        for edge in (found.low, found.high) if panel.extremes and len(recorded) > 1 else ():
            axes.plot(found.x, edge, color=colour, linewidth=0.7)
        levels += found.middle[len(found.middle) // 8 :]  # the first epochs may be anywhere
        for run in (run for run in recorded if run.diverged):
            axes.plot(run.history(name)[-1], run.history("test_accuracy")[-1], "x", color=colour, markersize=7)
    if comparable and any(curve.claimed is not None for curve in panel.curves):
        axes.plot([], [], color="grey", linestyle="--", linewidth=1, label="claimed")
    for curve in {c.claimed_as: c for c in panel.curves if c.claimed_at and comparable and name == "epsilon"}.values():
        text = f"claimed, a {curve.claimed_as} of runs" if curve.claimed_as else "claimed"
        axes.plot([], [], color="grey", label=text, **CLAIMED)
    if comparable and panel.epsilon is not None:
        axes.axvline(panel.epsilon, color="grey", linestyle=":", linewidth=1, label="claimed ε")
    if levels:
        margin = 0.15 * (max(levels) - min(levels)) + 0.5
        axes.set_ylim(max(0, min(levels) - margin), min(100.5, max(levels) + margin))


@dataclass(frozen=True)
class Band:
    """Middle, minimum and maximum of runs, and where: [points] each."""

    x: list[float]
    middle: list[float]
    low: list[float]
    high: list[float]

    def draw(self, axes: Axes, colour: str, shade: float = 0.15, **line: Any) -> None:
        """Draw the middle as a line, and the area between minimum and maximum with the opacity `shade`."""
        axes.plot(self.x, self.middle, color=colour, **line)
        axes.fill_between(self.x, self.low, self.high, color=colour, alpha=shade, linewidth=0)


def band(runs: Runs, x: str, y: str, middle: Callable[[list[float]], float] = fmean) -> Band:
    """Mean (or median), minimum and maximum of y against x, by epoch, over the runs that reached the epoch.

    x is the largest over those runs; runs of one setting agree in it.
    """
    return band_of([(run.history(x), run.history(y)) for run in runs], middle)


def band_of(series: Sequence[tuple[list[float], list[float]]], middle: Callable[[list[float]], float] = fmean) -> Band:
    """Mean (or median), minimum and maximum of y by epoch over runs, each given as its x and y by epoch."""
    xs, ys = [x for x, _ in series], [y for _, y in series]
    columns: list[tuple[float, float, float, float]] = []
    for epoch in range(max(map(len, ys))):
        there = [values[epoch] for values in ys if len(values) > epoch]
        at = max(values[epoch] for values in xs if len(values) > epoch)
        columns.append((at, middle(there), min(there), max(there)))
    return Band(*(list(column) for column in zip(*columns, strict=True)))

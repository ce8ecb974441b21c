"""Style and files of figures, and the figure that every paper has: accuracy against epsilon."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from statistics import fmean, median
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from runner.claims.claim import DATASETS as IN_PAPERS
from runner.claims.claim import Claim, dataset_name
from runner.claims.evidence import PAPER_SCALE, Evidence, Runs
from runner.claims.intervals import pareto
from runner.config.yaml_file import read_yaml
from runner.report.formats import bound_text, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure

_STYLE = Path(__file__).with_name("figures.mplstyle")
FILE = "figure.svg"
_STEPS = (1, 2, 5, 10)  # between ticks, times a power of ten
_TICKS_APART = 0.1  # of an axis
_PLACES = re.compile(r'\b(?:d|x|y|width|height|transform)="[^"]*"')
_LONG = re.compile(r"-?\d+\.\d{3,}")
_HASHED = re.compile(r'id="([^"]*[0-9a-f]{10}[^"]*)"')
DATASETS = {file: dataset_name(name) for name, file in IN_PAPERS.items()}
WIDTH = 9.4  # inches: a page of 900 pixels, on which text keeps its size
MARKERS = "os^Dv<>P*Xhd"  # by place, so that lines differ without their colours
GREY = "#767676"  # of texts and lines that are no method
LOOKS: dict[str, tuple[str, str]] = {  # by method: its colour and marker in all figures
    method: tuple(look) for method, look in read_yaml(Path(__file__).with_name("looks.yaml")).plain.items()
}
CLAIMED: dict[str, Any] = {  # a star above all lines, in the colour of its method
    **{"marker": "*", "markersize": 12, "markeredgecolor": "black", "markeredgewidth": 0.7},
    **{"linestyle": "", "zorder": 6, "clip_on": False},
}
DASHED: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1}  # a claim that is no single number
AS_PAPER, SOUND = "ε as the paper counts", "sound ε"
_ONE_RUN = "dotted: one run"
# Colours, and what they are where the reader's system is dark.
_IN_DARK = {
    "000000": "e6e6e6",
    "767676": "a6a6a6",
    "b0b0b0": "5a5a5a",
    "0072b2": "4ea3e0",
    "8c6d31": "c9a55c",
    "332288": "a79cf0",
}
_RULES = "\n".join(
    f' [style*="{part}: #{light}"] {{ {part}: #{dark} !important }}'
    for light, dark in _IN_DARK.items()
    for part in ("fill", "stroke")
)
_DARK = f"""<style>@media (prefers-color-scheme: dark) {{
 svg {{ color-scheme: dark }} text:not([style*="fill:"]) {{ fill: #e6e6e6 !important }}
{_RULES}
 :not(text)[style*="fill: #ffffff"] {{ fill: #0d1117 !important }}
}}</style>"""


@contextmanager
def style() -> Iterator[None]:
    """Set the style of all figures, for drawing and for saving."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rc_file(_STYLE)  # and nothing of a user's own matplotlibrc
        yield


def figure(width: float, height: float) -> "Figure":
    """Return an empty figure, in inches, without a window. A page shrinks it if it is wider than `WIDTH`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(fig: "Figure", folder: Path, label: str = "") -> list[Path]:
    """Write figure.svg in `folder`, with `label` across it if there is one ("smoke")."""
    if label:
        fig.text(0.5, 0.5, label, size=70, color="red", alpha=0.12, ha="center", va="center", rotation=25)
        title = fig.get_suptitle()
        mark = f"{label.upper()}: not a reproduction"
        fig.suptitle(f"{mark}\n{title}" if title else mark, color="firebrick", fontsize=10)
    return [write_svg(fig, folder / FILE)]


def write_svg(fig: "Figure", path: Path) -> Path:
    """Write a figure as an SVG for light and dark pages. Rounding errors of another processor change no byte of it."""
    fig.savefig(text := StringIO(), format="svg", metadata={"Date": None, "Creator": None})
    head, tag, body = rounded(text.getvalue()).partition("<svg")
    attributes, end, content = body.partition(">")
    return write_text(path, f"{head}{tag}{attributes}{end}\n{_DARK}{content}")


def rounded(svg: str) -> str:
    """Round the coordinates of an SVG to a hundredth of a point, and number the ids that are hashes of coordinates."""
    for number, name in enumerate(dict.fromkeys(_HASHED.findall(svg))):
        svg = svg.replace(f'"{name}"', f'"i{number}"').replace(f"#{name}", f"#i{number}")
    return _PLACES.sub(lambda place: _LONG.sub(lambda digits: f"{float(digits[0]):.2f}", place[0]), svg)


@dataclass(frozen=True)
class Curve:
    """A line of an accuracy figure: the runs of one experiment, and what is claimed for it.

    sweeps: the sweep, or several: the first that has the experiment counts.
    claimed: the claims, as epsilon and accuracy (percent).
    claimed_as: the statistic of the paper's runs, if it is not their mean: "maximum".
    look: its method in `LOOKS`, if that is not the label.
    style: settings of its line, if they are not those of its look.
    only: a config field and a value. Only runs with this value belong to the line.
    """

    sweeps: str | Sequence[str]
    experiment: str
    label: str
    claimed: Sequence[tuple[float, float]] = ()
    claimed_as: str = ""
    look: str = ""
    style: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[str, float] | None = None

    def planned(self, evidence: Evidence) -> Runs:
        """Return the runs of this line, recorded or not."""
        runs = evidence.planned(self.sweeps, self.experiment)
        return runs if self.only is None else runs.where(*self.only)


@dataclass(frozen=True)
class Panel:
    """One panel of an accuracy figure.

    extremes: draw the minimum and maximum of the runs as lines, around the area between them.
    """

    title: str
    curves: Sequence[Curve]
    extremes: bool = False


def points_of(claims: Sequence[Claim]) -> list[tuple[float, float]]:
    """Return the epsilons and accuracies (percent) of claims that have both."""
    return [(claim.epsilon[0], claim.aim) for claim in claims if claim.epsilon and claim.aim]


def runs_text(planned: Runs) -> str:
    """`n = 3 of 10, 1 diverged`, or `one run of 10`."""
    n = len(planned.recorded)
    total = "" if n == len(planned) else f" of {len(planned)}"
    return f"{count(n)}{total}" + (f", {planned.diverged} diverged" if planned.diverged else "")


def count(n: int) -> str:
    """`n = 3`, or `one run`."""
    return "one run" if n == 1 else f"n = {n}"


def mark_not_run(axes: "Axes", labels: Sequence[str] = (), *, without_ticks: bool = False) -> None:
    """Write "not run" above the middle of a panel that has no run, or in its corner which of its lines have none."""
    if without_ticks:
        axes.set(xticks=[], yticks=[])
    place: dict[str, Any] = {"transform": axes.transAxes, "color": GREY}
    if not labels:
        axes.text(0.5, 0.6, "not run", ha="center", va="center", fontsize=12, **place)
        return
    text = fill(f"not run: {', '.join(labels)}", 34) if len(labels) < 4 else f"{len(labels)} further settings not run"
    axes.text(0.98, 0.03, text, ha="right", va="bottom", fontsize=8, **place)


def too_few(settings: Sequence[Runs]) -> bool:
    """Return True if fewer than half of the settings of a panel have a run."""
    return 2 * sum(bool(planned.recorded) for planned in settings) < len(settings)


def spaced(line: Sized, place: int, marker: str = "") -> dict[str, Any]:
    """Return the settings of a line's markers: about six along it, apart from other lines' markers."""
    step = max(1, len(line) // 6)
    return {"marker": marker or MARKERS[place % len(MARKERS)], "markersize": 4, "markevery": (place * step // 4, step)}


def log_axis(axes: "Axes", name: Literal["x", "y"], ticks: Sequence[float] = ()) -> None:
    """Make an axis logarithmic, with numbers in place of powers of ten, at these values if there are any."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set(**{f"{name}scale": "log"})
    axis: Axis = getattr(axes, f"{name}axis")
    low, high = axis.get_view_interval()
    subs, most = ((1, 2, 5) if high < 300 * low else (1,)), (5 if high > 1e5 * low else None)
    axis.set_major_locator(LogLocator(subs=subs, numticks=most))
    if ticks:
        axis.set_ticks(sorted(set(ticks)))
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter(NullFormatter())


def scale_by_error(axes: "Axes") -> None:
    """Spread an axis of accuracies in percent by their error, so that 99 and 99.5 are as far apart as 90 and 95."""
    axes.set_yscale(
        "function",
        functions=(lambda a: -np.log10(np.maximum(100.5 - a, 1e-3)), lambda v: 100.5 - 10.0 ** (-np.asarray(v))),
    )
    low, highest = axes.get_ylim()[0], min(100.0, axes.dataLim.y1)
    high = 100.5 - 0.7 * (100.5 - highest)
    axes.set_ylim(low, high)
    ticks: list[float] = []
    for tick in (99.9, 99.5, 99, 98.5, 98, 97, 96, 95, 93, 90, 85, 80, 75, 70, 65, 60, 55, 50, 40, 30, 20, 10, 0):
        distance = np.log10((100.5 - tick) / (100.5 - ticks[-1])) if ticks else 1.0
        if low <= tick <= high and distance > _TICKS_APART * np.log10((100.5 - low) / (100.5 - high)):
            ticks.append(tick)
    axes.set_yticks(ticks)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.minorticks_off()
    axes.set_ylabel("test accuracy (%), spread by its error")


def panel_each(height: float, datasets: Sequence[str] = tuple(DATASETS)) -> "tuple[Figure, dict[str, Axes]]":
    """Return a figure of a height in inches, with a titled panel for each data set, by its name in files."""
    fig = figure(WIDTH, height)
    panels = dict(zip(datasets, fig.subplots(1, len(datasets)), strict=True))
    for dataset, panel in panels.items():
        panel.set_title(DATASETS[dataset])
    return fig, panels


def legend_below(axes: "Axes", down: float = 0.17) -> None:
    """Put the legend of a panel below it."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -down))


def draw_front(axes: "Axes", curves: Sequence[tuple[Sequence[float], Sequence[float]]], **line: Any) -> list[float]:
    """Draw the best of some (epsilons, accuracies) at or below each ε as steps. Return the accuracies of the front."""
    front = pareto(curves)
    if front:
        end = (max(epsilon for epsilons, _ in curves for epsilon in epsilons), front[-1][1])
        axes.step(*zip(*front, end, strict=True), where="post", **line)
    return [accuracy for _, accuracy in front]


def one_legend(fig: "Figure", columns: int = 4, title: str = "") -> None:
    """Put one legend below all panels, each label once, under a title."""
    handles = {label: handle for a in fig.axes for handle, label in zip(*a.get_legend_handles_labels(), strict=True)}
    if note := handles.pop(_ONE_RUN, None):
        handles[_ONE_RUN] = note  # the last
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": min(columns, len(handles))}
    fig.legend(list(handles.values()), list(handles), title=title, title_fontsize=8, **below)


def accuracy_against_epsilon(
    evidence: Evidence,
    panels: Sequence[Panel],
    *,
    columns: int | None = None,
    centre: Literal["mean", "median"] = "mean",
    epsilon: tuple[float, ...] = (),
) -> "Figure | None":
    """Draw the centre and range of test accuracy by epoch against epsilon, below as the paper counts, above sound.

    An epoch shows the runs that reached it, a line of one run is dotted, and a cross marks where a run diverged.
    Claimed accuracies are stars, at the paper's scale only, because other scales have other data. A panel names its
    lines that have no run.

    Args:
        evidence: the runs.
        panels: in the paper's order.
        columns: the largest number of panels side by side. Further panels go below them.
        centre: the statistic of the runs that is drawn as a line.
        epsilon: the range that the paper prints, or nothing where it is not known.

    Returns:
        The figure, or None if every panel has too few runs (see `too_few`).
    """
    from matplotlib.ticker import MaxNLocator

    if all(too_few([curve.planned(evidence) for curve in panel.curves]) for panel in panels):
        return None
    across = min(columns or len(panels), len(panels))
    rows = -(-len(panels) // across)
    fig = figure(min(WIDTH, 3.6 * max(2, across)), 3.1 * rows + 0.9)
    grid = fig.subplots(rows, across, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes, panel in zip(grid.flat, panels, strict=False):
        _accuracy_panel(axes, evidence, panel, centre)
        low, high = epsilon or (0, 1.03 * axes.get_xlim()[1])
        axes.set_xlim(low, max(high, axes.dataLim.x1))
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=_STEPS))
        sound_axis(axes, Runs(run for curve in panel.curves for run in curve.planned(evidence).recorded))
    for axes in grid[:, 0]:
        axes.set_ylabel("test accuracy (%)")
    one_legend(fig)
    return fig


def sound_axis(axes: "Axes", runs: Runs, words: str = "of the same runs") -> None:
    """Number the top of a panel by the sound epsilon of its runs, where these agree in it; `words` say which runs.

    Where the configured accountant gives the sound epsilon of every run, the panel has one scale, which is sound.
    Where the runs disagree, it has no second scale, and its corner has the numbers at which they end.
    """
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(AS_PAPER)
    histories = [(run.history("epsilon"), run.history("epsilon_sound")) for run in runs]
    if not histories:
        return
    if all(counted == sound for counted, sound in histories):
        axes.set_xlabel(SOUND)
        return
    counted, sound = max(histories, key=lambda history: history[0][-1])
    if all(np.allclose(np.interp(x, counted, sound), y, rtol=0.02) for x, y in histories):
        values = MaxNLocator(5, steps=_STEPS).tick_values(sound[0], sound[-1])
        ticks = [tick for tick in values if sound[0] <= tick <= sound[-1]]
        top = axes.secondary_xaxis("top")
        top.set_xticks(np.interp(ticks, sound, counted), [f"{tick:g}" for tick in ticks], fontsize=8)
        top.set_xlabel(f"{SOUND} {words}", fontsize=8)
        return
    ends = " to ".join(bound_text(end) for end in sorted({side(y[-1] for _, y in histories) for side in (min, max)}))
    axes.text(0.97, 0.04, f"{SOUND} at the end:\n{ends}", transform=axes.transAxes, ha="right", fontsize=8)


def _accuracy_panel(axes: "Axes", evidence: Evidence, panel: Panel, centre: str) -> None:
    levels: list[float] = []
    settings = [curve.planned(evidence) for curve in panel.curves]
    for place, (curve, planned) in enumerate(zip(panel.curves, settings, strict=True)):
        colour, marker = LOOKS.get(curve.look or curve.label, (f"C{place}", MARKERS[place % len(MARKERS)]))
        style = dict(curve.style)
        colour = style.pop("color", colour)
        if curve.claimed and evidence.scale == PAPER_SCALE:
            axes.plot(*zip(*curve.claimed, strict=True), color=colour, **CLAIMED)
            text = f"claimed, a {curve.claimed_as} of runs" if curve.claimed_as else "claimed"
            name_once(axes, text, color=GREY, **CLAIMED)
            levels += [accuracy for _, accuracy in curve.claimed]
        if not planned.recorded:
            continue
        reached = band(planned.recorded, "epsilon", "test_accuracy", median if centre == "median" else fmean)
        reached.draw(axes, (colour, marker), place, **style, label=curve.label)
        for edge in (reached.low, reached.high) if panel.extremes and not curve.style else ():
            axes.plot(reached.x, edge, color=colour, linewidth=0.7)
        levels += reached.middle[len(reached.middle) // 8 :]  # the first epochs may be anywhere
        for run in (run for run in planned.recorded if run.diverged):
            axes.plot(run.history("epsilon")[-1], run.history("test_accuracy")[-1], "x", color=colour, markersize=7)
    labels = [curve.label for curve in panel.curves]
    finish_panel(axes, panel.title, list(zip(labels, settings, strict=True)), levels)


def finish_panel(axes: "Axes", title: str, settings: Sequence[tuple[str, Runs]], levels: Sequence[float]) -> None:
    """Title a panel with the numbers of runs of its labelled settings, name those without any, and fit it to levels.

    `n = 5 to 9 of 10`: the fewest and the most runs of the settings that have any.
    """
    missing = [label for label, planned in settings if not planned.recorded]
    if missing:
        mark_not_run(axes, missing if len(missing) < len(settings) else ())
    if levels:
        margin = 0.15 * (max(levels) - min(levels))
        axes.set_ylim(max(0, min(levels) - margin), max(levels) + margin)
    sizes = [(len(planned.recorded), len(planned)) for _, planned in settings if planned.recorded]
    text = "not run"
    if sizes:
        n, total = (" to ".join(map(str, sorted({min(sides), max(sides)}))) for sides in zip(*sizes, strict=True))
        text = (count(1) if n == "1" else f"n = {n}") + (f" of {total}" if total != n else "")
    axes.set_title(f"{title}, {text}")


def name_once(axes: "Axes", label: str, **style: Any) -> None:
    """Add a legend entry that belongs to no line, unless the panel has it."""
    if label not in axes.get_legend_handles_labels()[1]:
        axes.plot([], [], label=label, **style | {"clip_on": True})  # unclipped, it would have a place in the layout


@dataclass(frozen=True)
class Band:
    """Middle, minimum and maximum of runs, and where: [points] each. `runs`: their number."""

    x: list[float]
    middle: list[float]
    low: list[float]
    high: list[float]
    runs: int

    def draw(self, axes: "Axes", look: tuple[str, str], place: int | None, shade: float = 0.15, **line: Any) -> None:
        """Draw the middle as a line, and the area between minimum and maximum with the opacity `shade`.

        look, place: colour and marker, as in `LOOKS`, and the line's place among others. Without a place: no markers.
        """
        colour, marker = look
        line = (spaced(self.x, place, marker) if place is not None else {}) | line
        if self.runs == 1:
            line["linestyle"] = ":"
            name_once(axes, _ONE_RUN, color=GREY, linestyle=":")
        axes.plot(self.x, self.middle, color=colour, **line)
        axes.fill_between(self.x, self.low, self.high, color=colour, alpha=shade, linewidth=0)


def band(runs: Runs, x: str, y: str, middle: Callable[[list[float]], float] = fmean) -> Band:
    """Mean (or median), minimum and maximum of y against x, by epoch, over the runs that reached the epoch."""
    return band_of([(run.history(x), run.history(y)) for run in runs], middle)


def band_of(
    series: Sequence[tuple[Sequence[float], Sequence[float]]], middle: Callable[[list[float]], float] = fmean
) -> Band:
    """Mean (or median), minimum and maximum of y by epoch over runs, each given as its x and y by epoch."""
    columns: list[tuple[float, float, float, float]] = []
    for epoch in range(max(len(y) for _, y in series)):
        place = max(values[epoch] for values, _ in series if len(values) > epoch)
        reached = [values[epoch] for _, values in series if len(values) > epoch]
        columns.append((place, middle(reached), min(reached), max(reached)))
    x, centre, low, high = (list(column) for column in zip(*columns, strict=True))
    return Band(x, centre, low, high, len(series))

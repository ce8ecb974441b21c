"""The figures of a study: gains over a baseline, and the front of accuracy against epsilon.

The first has gains under each seed, with the 95% interval of their mean: of all arms, or of a factorial of each part
alone, their sum, and all together. All panels have one range. A gain beyond it is an arrow with its numbers.
"""

from collections.abc import Sequence
from statistics import fmean, median_low
from textwrap import fill
from typing import TYPE_CHECKING, Any

from runner.claims.evidence import PlannedRun, grouped
from runner.report import plots
from runner.report.claim_rows import difference_text
from runner.study.definition import Study
from runner.study.outcome import ALL, SUM, Compared, Effect, Estimate, sums_of
from runner.study.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL, _ROW = 0.7, 0.3  # inches: around the rows of a panel, and of each arm
_NAME = 40  # characters in a line
_COLOUR = "C0"
_DEEPEST = 40  # points of accuracy below the best one that a front is shown to
_FAR, _LEAST = 10, 2.0  # times the median gain, and points: the range that a gain is beyond


def draw(study: Study, arms: Sequence[Compared], measured: Sequence[Effect]) -> "Figure | None":
    """Draw a row of panels for each data set, with a panel for each epsilon; None without a gain."""
    if not any(arm.gain for arm in arms):
        return None
    pairs = grouped(arms, lambda arm: arm.arm.setting.pair)
    datasets, epsilons = (list(dict.fromkeys(key[place] for key in pairs)) for place in (0, 1))
    sums = sums_of(measured)
    rows: dict[tuple[str, float], list[tuple[str, Estimate | None]]] = {}
    for key, group in pairs.items():
        rows[key] = [(_label(arm), arm.gain) for arm in group[1:]]
        if study.parts[1:]:
            alone, both = dict(rows[key]), sums[group[0].arm.setting.labels[:2]]
            rows[key] = [*((part, alone[part]) for part in study.parts), (SUM, both[SUM]), (ALL, both[ALL])]
    fig = plots.figure(plots.WIDTH, len(datasets) * (_PANEL + _ROW * max(map(len, rows.values()))) + 0.4)
    panels = fig.subplots(len(datasets), len(epsilons), squeeze=False, sharex=True, sharey=True)
    ends = [_ends(gain) for lines in rows.values() for _, gain in lines if gain]
    farthest = median_low(max(map(abs, pair)) for pair in ends)
    near = [pair for pair in ends if max(map(abs, pair)) <= max(_LEAST, _FAR * farthest)]  # without those far from most
    low, high = (limit([0.0, *(end for pair in near for end in pair)]) for limit in (min, max))
    room = 0.05 * (high - low) or 1.0
    panels.flat[0].set_xlim(low - room, high + room)
    for axes, (key, group) in zip(panels.flat, pairs.items(), strict=True):
        axes.set_title(group[0].arm.setting.place)
        _gains(axes, rows[key])
    shown = "seeds, mean, 95% interval" if any(arm.adjusted is not None for arm in arms) else "one seed"
    fig.supxlabel(f"gain over {study.baseline}, points of test accuracy: {shown}", size=9)
    return fig


def _label(arm: Compared) -> str:
    return f"{arm.arm.name} over {arm.baseline}" if arm.arm.setting.arm.over else arm.arm.name


def _ends(gain: Estimate) -> tuple[float, float]:
    """Return the ends of what is drawn of a gain: its seeds and its interval."""
    values = [*gain.by_seed, *([gain.shown.low, gain.shown.high] if gain.shown else [])]
    return min(values), max(values)


def _gains(axes: "Axes", rows: Sequence[tuple[str, Estimate | None]]) -> None:
    left, right = axes.get_xlim()
    for y, (_, gain) in enumerate(rows):
        if gain is None:
            axes.text(0, y, " not run", va="center", color="0.6", fontsize=8)
            continue
        low, high = _ends(gain)
        if low < left or high > right:
            edge, marker, side, inwards = (left, "<", "left", 8) if gain.value < 0 else (right, ">", "right", -8)
            axes.plot(edge, y, marker, color=_COLOUR, markersize=8, clip_on=False)
            ends = (difference_text(end, "%", None) for end in (min(gain.by_seed), max(gain.by_seed)))
            text = f"{difference_text(gain.value, '%', gain.shown)}\nseeds {' to '.join(ends)}"
            style: Any = {"xytext": (inwards, 0), "textcoords": "offset points", "fontsize": 8}
            axes.annotate(text, (edge, y), color=_COLOUR, backgroundcolor="white", ha=side, va="center", **style)
            continue
        axes.plot(gain.by_seed, [y] * len(gain.by_seed), "o", color=_COLOUR, markersize=4, alpha=0.6, zorder=4)
        axes.plot(gain.value, y, "D", color=_COLOUR, markersize=6, markeredgecolor="black")
        if gain.shown:
            axes.plot([gain.shown.low, gain.shown.high], [y, y], color=_COLOUR, linewidth=2.5)
    axes.set_yticks(range(len(rows)), [fill(name, _NAME) for name, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.grid(visible=False, axis="y")


def searched_once(study: Study, arms: Sequence[Progress]) -> list[Progress]:
    """Return each arm on each data set once, as the search for a front is the same at every epsilon."""
    return [arm for arm in arms if arm.setting.epsilon == max(study.epsilons)]


def points_of(run: PlannedRun, limit: float, by: str = "epsilon_sound") -> tuple[list[float], list[float]]:
    """Return (epsilons, accuracies) of the epochs of a trial within a sound epsilon."""
    columns = (run.history(name) for name in ("epsilon_sound", by, "test_accuracy"))
    points = [(epsilon, accuracy) for sound, epsilon, accuracy in zip(*columns, strict=True) if sound <= limit]
    return [epsilon for epsilon, _ in points], [accuracy for _, accuracy in points]


def draw_front(study: Study, arms: Sequence[Progress]) -> "Figure | None":
    """Draw accuracy against both epsilons, a row of panels for each data set; None without a trial.

    A point is an epoch of a trial on held-out images. Lines are fronts, and diamonds the mean and the range of final
    runs on test images.
    """
    if not any(arm.searched for arm in arms):
        return None
    datasets, limit = grouped(arms, lambda arm: arm.setting.labels[0]), max(study.epsilons)
    fig = plots.figure(plots.WIDTH, 0.6 + 3.4 * len(datasets))
    panels = fig.subplots(len(datasets), 2, squeeze=False, sharex=True, sharey="row")
    for row, (dataset, group) in zip(panels, datasets.items(), strict=True):
        for axes, by, label in zip(row, ("epsilon", "epsilon_sound"), (plots.AS_PAPER, plots.SOUND), strict=True):
            levels = _fronts(axes, study, group, by, limit)
            axes.set(title=dataset, xlabel=label)
            axes.tick_params(labelbottom=True)
        best = max(levels, default=100.0)
        row[0].set_ylim(max(min(levels, default=0.0), best - _DEEPEST) - 1, best + 1.5)
        row[0].set_ylabel("accuracy (%)")
    panels.flat[0].set_xlim(0, None)
    plots.one_legend(fig, columns=2)
    return fig


def _fronts(axes: "Axes", study: Study, arms: Sequence[Progress], by: str, limit: float) -> list[float]:
    """Draw the points, fronts and final runs of the arms on one data set; return accuracies of both."""
    levels: list[float] = []
    for place, arm in enumerate(searched_once(study, arms)):
        colour, name = f"C{place}", arm.name
        curves = [points_of(run, limit, by) for run in arm.searched]
        for curve in curves:
            axes.plot(*curve, ".", color=colour, markersize=3, alpha=0.35)
        levels += plots.draw_front(axes, curves, color=colour, label=f"{name}, held-out images")
        label = f"{name}, test images"
        for other in (other for other in arms if other.setting.arm == arm.setting.arm):
            if counted := other.counted().values():
                accuracies = [run.history("test_accuracy")[epoch] for run, epoch in counted]
                levels += accuracies
                mean, epsilon = fmean(accuracies), fmean(run.history(by)[epoch] for run, epoch in counted)
                ends: Any = [[mean - min(accuracies)], [max(accuracies) - mean]]
                style: Any = {"color": colour, "markeredgecolor": "black", "markersize": 7, "zorder": 4, "capsize": 3}
                axes.errorbar(epsilon, mean, ends, fmt="D", label=label, **style)
                label = "_"
    return levels

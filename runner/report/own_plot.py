"""The plot of a multirun: accuracy by epoch, a line for each setting, with the range of its seeds."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from runner.claims.runs import grouped
from runner.records.files import read_record, upper_bound
from runner.report.own import Record, labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FOLDER = "own"
_NAMED = 12  # settings in a legend, at most


def drawn(paths: Sequence[Path]) -> Path | None:
    """Draw the runs of these records into the folder `own` next to theirs, under a name made from their ids.

    Returns:
        The picture's path; None if there is one run only, no run at the paper's scale, or no matplotlib.
    """
    records = [read_record(path) for path in dict.fromkeys(paths)]
    if len(records) < 2 or all(r["config"]["scale"]["name"] != "paper" for r in records) or not find_spec("matplotlib"):
        return None
    from runner.report.plots import style  # the drawing takes a second, and few commands draw

    name = hashlib.sha256(" ".join(sorted(record["run_id"] for record in records)).encode()).hexdigest()[:12]
    path = paths[0].parent.parent / FOLDER / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        figure_of(records).savefig(path, dpi=150)
    return path


def figure_of(records: Sequence[Record]) -> Figure:
    """Draw a panel of runs with a sound epsilon, against it, and one of the other runs, against the epoch.

    A panel without runs is left out. Of very many settings, only the best are named.
    """
    from runner.report.plots import figure

    named = labels(records)
    private, others = ([r for r in records if _private(r) is wanted] for wanted in (True, False))
    panels = [(private, "epsilon_sound", "sound ε of what was released"), (others, "epoch", "epoch, without a sound ε")]
    panels = [panel for panel in panels if panel[0]]
    made = figure(7 * len(panels), 5.5)
    for axes, (of, x, text) in zip(made.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _lines(axes, of, x, named)
        axes.set(xlabel=text, ylabel="accuracy (%)")
    made.suptitle(f"{len(records)} runs of {len(named)} settings: mean and range of the seeds", fontsize=10)
    return made


def _private(record: Record) -> bool:
    return math.isfinite(upper_bound(record["final"]["epsilon_sound"]))


def _lines(axes: Axes, records: Sequence[Record], x: str, named: dict[str, str]) -> None:
    from runner.report.plots import band_of, legend_below, spaced

    settings: dict[str, list[Record]] = grouped(records, lambda record: record["setting_id"])
    bands = {
        setting: band_of([([float(v) for v in r["history"][x]], _accuracies(r)) for r in of])
        for setting, of in settings.items()
    }
    best = sorted(bands, key=lambda setting: bands[setting].middle[-1], reverse=True)[:_NAMED]
    for place, (setting, found) in enumerate(bands.items()):
        text = f"{named[setting]}, n = {len(settings[setting])}" if setting in best else None
        found.draw(axes, f"C{place % 10}", **spaced(found.middle, place), label=text)
    if len(bands) > len(best):
        axes.set_title(f"named: the best {len(best)} of {len(bands)}", fontsize=8)
    legend_below(axes, 0.13, fontsize=7)


def _accuracies(record: Record) -> list[float]:
    return [float(value) for value in record["history"]["test_accuracy"]]

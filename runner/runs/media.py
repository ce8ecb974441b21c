"""Diagnostics as W&B shows them: numbers as curves, counts as histograms, confusions as images and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.training.diagnostics.gradient_histogram import BIN

Row = dict[str, Any]

_AXES = ("epoch", "step")  # one of them is a column of every diagnostic that is measured more than once


def rows_of(wandb: Any, diagnostics: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """Yield the rows to log of a record's diagnostics, each with the name of the axis that it is plotted against.

    `wandb` is the imported package. A table of all epochs is a separate row, at the last epoch.
    """
    for name, measured in diagnostics.items():
        if name == "per_class_accuracy":  # [epochs][classes]
            data = [[epoch, label, value] for epoch, of in enumerate(measured, 1) for label, value in enumerate(of)]
            table = wandb.Table(["epoch", "class", "accuracy"], data)
            yield f"{name}/epoch", {f"{name}/epoch": len(measured), name: table}
        else:
            yield from _by_axis(wandb, name, measured)


def _by_axis(wandb: Any, name: str, measured: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    (axis,) = (each for each in _AXES if each in measured)
    columns = dict(_leaves({key: value for key, value in measured.items() if key != axis}))
    for at, place in enumerate(measured[axis]):
        row: Row = {f"{name}/{axis}": place}
        for key, values in columns.items():
            if isinstance(values, list):
                row |= _shown(wandb, f"{name}/{key}", values[at])
            elif at == 0:  # one for all epochs
                row |= _shown(wandb, f"{name}/{key}", values)
        yield f"{name}/{axis}", row


def _leaves(columns: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Columns by path: what is measured of every layer is a mapping of columns."""
    for key, value in columns.items():
        if isinstance(value, dict) and "counts" not in value:
            yield from _leaves(value, f"{place}{key}/")
        else:
            yield f"{place}{key}", value


def _shown(wandb: Any, name: str, value: Any) -> Row:
    """One measurement: a number, counts in bins of a width, {largest, counts}, or counts[true class][predicted]."""
    if isinstance(value, dict):
        return {name: _histogram(wandb, value["counts"], value["largest"] / len(value["counts"]))}
    if not isinstance(value, list):
        return {name: value} if math.isfinite(value) else {}
    if isinstance(value[0], list):
        cells = [[true, label, count] for true, of in enumerate(value) for label, count in enumerate(of)]
        table = wandb.Table(["true class", "predicted class", "examples"], cells)
        return {name: wandb.Image(_confusion(value)), f"{name}_table": table}
    return {name: _histogram(wandb, value, BIN)}


def _histogram(wandb: Any, counts: Sequence[int], width: float) -> Any:
    edges = [width * place for place in range(len(counts) + 1)]
    return wandb.Histogram(np_histogram=(list(counts), edges))


def _confusion(counts: Sequence[Sequence[int]]) -> Any:
    """Draw a confusion matrix as a picture [height, width, 4]: colours are shares of each true class, cells counts."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.6), dpi=150, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.imshow([[count / max(1, sum(of)) for count in of] for of in counts], cmap="Blues", vmin=0, vmax=1)
    for true, of in enumerate(counts):
        for label, count in enumerate(of):
            if count:
                colour = "white" if 2 * count > sum(of) else "black"
                axes.text(label, true, str(count), ha="center", va="center", fontsize=6, color=colour)
    axes.set(xticks=range(len(counts)), yticks=range(len(counts)), xlabel="predicted class", ylabel="true class")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())

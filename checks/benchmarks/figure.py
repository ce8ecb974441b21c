"""The benchmark as a figure: speed relative to the non-private step, over the batch size, a panel for each network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.report import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {"M": "M: MNIST CNN, 26k", "R": "R: MNIST CNN, ReLU, 19k", "C": "C: CIFAR-10 CNN, 550k"}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the figure of the table's rows as SVG.

    Raises:
        ImportError: matplotlib is not installed.
    """
    networks, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("network", "method"))
    with plots.style():
        plots.write_svg(_drawn(rows, networks, methods), path)


def _drawn(rows: list[dict[str, Any]], networks: list[str], methods: list[str]) -> Figure:
    figure = plots.figure(5 * len(networks), 4.2)
    panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)
    for panel, network in zip(panels[0], networks, strict=True):
        for method in methods:
            of = [row for row in rows if row["network"] == network and row["method"] == method]
            batches, ratios = [row["batch"] for row in of], [row["ratio"] for row in of]
            spread = [
                [row["ratio"] - row["ratio_q1"] for row in of],
                [row["ratio_q3"] - row["ratio"] for row in of],
            ]
            panel.errorbar(batches, ratios, yerr=spread, marker="o", markersize=3, capsize=2, label=method)
        panel.set_xscale("log", base=2)
        panel.set_xticks(sorted({row["batch"] for row in rows}), sorted({row["batch"] for row in rows}))
        panel.set_title(_TITLES[network])
        panel.set_xlabel("batch size")
    panels[0][0].set_ylim(bottom=0)  # shared; only now, for it stops the axis from growing
    panels[0][0].set_ylabel("speed / non-private")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure

"""The benchmark as a figure: the speed of each method relative to the non-private step, a row for each network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from checks.benchmarks.problems import TITLES
from runner.report import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    "one_pass": "clipped here",
    "one_pass_graph": "clipped here, as a graph",
    "one_pass_compiled": "clipped here, compiled",
    "backprop": "backpropagation clipping here",
    "clipless": "without clipping here",
    "isolated": "own layers here",
    "vmap": "torch.func",
    "vmap_compiled": "torch.func, compiled",
    "opacus_hooks": "Opacus, hooks",
    "opacus_ghost": "Opacus, ghost clipping",
    "fastdp": "fastDP",
    "non_private_compiled": "no privacy, compiled",
    "non_private_faster": "no privacy, kernels from here",
}
_MARKERS = "osD8^v<>Pph*X"  # one for each of NAMES


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the figure of the table's rows as SVG.

    Raises:
        ImportError: matplotlib is not installed.
    """
    with plots.style():
        plots.write_svg(_drawn(rows), path)


def _drawn(rows: list[dict[str, Any]]) -> Figure:
    cells = list(dict.fromkeys((row["network"], row["batch"]) for row in rows))
    methods = [name for name in NAMES if any(row["method"] == name for row in rows)]
    figure = plots.figure(8, 1.8 + 0.4 * len(cells))
    axes = figure.subplots()
    axes.axvline(1, color="0.6", linewidth=1)
    for method, marker in zip(methods, _MARKERS, strict=False):
        of = [row for row in rows if row["method"] == method]
        places = [cells.index((row["network"], row["batch"])) for row in of]
        own = method.startswith("one_pass") or method in ("backprop", "clipless", "isolated")
        axes.plot(
            [row["ratio"] for row in of],
            places,
            marker,
            markersize=7 if own else 5,
            markerfacecolor=None if own else "none",
            label=NAMES[method],
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(cells)), [f"{TITLES[network]}, {batch}" for network, batch in cells])
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.grid(axis="y", linewidth=0.5)
    axes.set_xlabel("speed / PyTorch's ordinary step (filled: this project)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure

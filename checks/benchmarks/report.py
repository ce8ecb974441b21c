"""The results of the benchmark: tables and figures by instruction set, one page, and README's sentence."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from checks.benchmarks.problems import TITLES
from runner.config import REPOSITORY
from runner.report import plots
from runner.report.formats import read_csv, write_csv, write_text

FOLDER = REPOSITORY / "results" / "benchmark"
TABLE, WHOLE_RUNS = "engines.csv", "whole_runs.csv"
UNLOCKED = "-unlocked"
SETS = {  # the other folders are GPUs
    "avx512": "AVX-512",
    f"avx512{UNLOCKED}": "AVX-512, MKL unlocked",
    "avx2": "AVX2 alone",
    f"avx2{UNLOCKED}": "AVX2 alone, MKL unlocked",
}
OWN = ("one_pass", "backprop", "clipless", "isolated", "non_private_faster")
_MAPPED, _HOOKED = ("by_hand", "vmap", "vmap_compiled", "jax"), ("opacus_hooks", "opacus_ghost", "fastdp")
PEERS = _MAPPED + _HOOKED
_PLAIN = ("non_private_default", "non_private_lowered", "non_private_compiled", "non_private_jax")
NAMES = {
    "one_pass": "clipped here",
    "one_pass_graph": "clipped here, as a graph",
    "one_pass_compiled": "clipped here, compiled",
    "backprop": "backpropagation clipping here",
    "clipless": "without clipping here",
    "isolated": "own layers here",
    "by_hand": "PyTorch by hand",
    "vmap": "torch.func",
    "vmap_compiled": "torch.func, compiled",
    "jax": "JAX",
    "opacus_hooks": "Opacus, hooks",
    "opacus_ghost": "Opacus, ghost clipping",
    "fastdp": "fastDP",
    "non_private_default": "no privacy, PyTorch's defaults",
    "non_private_lowered": "no privacy, bfloat16",
    "non_private_compiled": "no privacy, compiled",
    "non_private_jax": "no privacy, JAX",
    "non_private_faster": "no privacy, kernels from here",
}
_MARKERS = "osD8^v<>Pph*Xd+x12"  # one for each of NAMES
BEGIN, END = "<!-- speed: written by `make benchmark` -->", "<!-- end of speed -->"


def write(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write the rows of one instruction set to its folder, and the page and the sentence that have all sets."""
    write_csv(folder / TABLE, list(rows[0]), rows)
    with plots.style():
        plots.write_svg(draw(rows), folder / "engines.svg")
    if folder.parent == FOLDER:
        write_page()
        readme, tables = REPOSITORY / "README.md", {name: FOLDER / name / TABLE for name in SETS}
        measured = {name: read_csv(table) for name, table in tables.items() if table.exists()}
        write_text(readme, replace_sentence(readme.read_text(encoding="utf-8"), measured))


def draw(rows: Sequence[dict[str, Any]]) -> "plots.Figure":
    cells = list(dict.fromkeys((row["network"], row["batch"]) for row in rows))
    methods = [name for name in NAMES if any(row["method"] == name for row in rows)]
    figure = plots.figure(8, 1.8 + 0.4 * len(cells))
    axes = figure.subplots()
    axes.axvline(1, color="0.6", linewidth=1)
    for method, marker in zip(methods, _MARKERS, strict=False):
        measured = [row for row in rows if row["method"] == method]
        places = [cells.index((row["network"], row["batch"])) for row in measured]
        is_ours = method.startswith("one_pass") or method in OWN[:-1]
        look = {"markersize": 7} if is_ours else {"markersize": 5, "markerfacecolor": "none"}
        axes.plot([row["ratio"] for row in measured], places, marker, label=NAMES[method], **look)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.3g}")
    axes.set_yticks(range(len(cells)), [f"{TITLES[network]}, {batch}" for network, batch in cells])
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.grid(axis="y", linewidth=0.5)
    axes.set_xlabel("speed / PyTorch's ordinary step (filled: this project)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def gpu_folder(device: str) -> str:
    name = torch.cuda.get_device_name(torch.device(device))
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).removeprefix("nvidia-")


def write_page() -> None:
    names = [*SETS, *sorted(path.parent.name for path in FOLDER.glob(f"*/{TABLE}") if path.parent.name not in SETS)]
    measured = {name: read_csv(FOLDER / name / TABLE) for name in names if (FOLDER / name / TABLE).exists()}
    whole_runs = read_csv(FOLDER / WHOLE_RUNS) if (FOLDER / WHOLE_RUNS).exists() else []
    write_text(FOLDER / "README.md", page(measured, whole_runs))


def page(measured: dict[str, list[dict[str, str]]], whole_runs: Sequence[dict[str, str]] = ()) -> str:
    """Return the page with a table for each instruction set, and one of whole runs if there are any."""
    lines = [
        "# Speed",
        "",
        "Speed of a training step against PyTorch's ordinary step of the same network and batch: 2 is twice as fast. "
        "A private step has per-example gradients, clipping, noise and the update. Each number is the median of "
        "alternating timings on one thread, on a CPU in the processor time of the process. The tables next to this "
        "page have quartiles and milliseconds. The ordinary step has images with the channels innermost and no TF32; "
        "*PyTorch's defaults* are neither. torch.func, JAX and Opacus take their steps in pieces of 64 or 256 examples "
        "or in whole batches, whichever is fastest. fastDP takes whole batches. The column *without clipping* has a "
        "network with GroupSort, bounded weights and another loss. *AVX2 alone* uses no AVX-512, even if the "
        "processor has it. MKL, PyTorch's library for products and for functions like tanh, takes slower paths on "
        "processors that are not Intel's. *MKL unlocked* takes the fast ones. Written by `make benchmark`.",
    ]
    for name, rows in measured.items():
        first, rounds = rows[0], [int(row["rounds"]) for row in rows]
        lines += [
            "",
            f"## {SETS.get(name, first['device'])}",
            "",
            f"{first['device']}, PyTorch {first['pytorch']}, {first['date']}, {min(rounds)} to {max(rounds)} timings "
            f"each. [Table]({name}/{TABLE}), "
            f"[figure]({name}/engines.svg).",
        ]
        for methods in (OWN, _MAPPED, _HOOKED + _PLAIN):  # no table is wider than a page
            lines += ["", *_table(rows, [method for method in methods if any(r["method"] == method for r in rows)])]
    if whole_runs:
        lines += ["", *_whole_runs(whole_runs)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[dict[str, str]], methods: Sequence[str]) -> list[str]:
    """Return a table with a row for each network and batch, and a column for each of some methods."""
    lines = ["| network, examples | " + " | ".join(NAMES[method] for method in methods) + " |"]
    lines.append("| --- |" + " ---: |" * len(methods))
    for network, batch in dict.fromkeys((row["network"], row["batch"]) for row in rows):
        ratios = {r["method"]: float(r["ratio"]) for r in rows if (r["network"], r["batch"]) == (network, batch)}
        shown = " | ".join(f"{ratios[method]:.2f}" if method in ratios else "–" for method in methods)
        lines.append(f"| {TITLES[network]}, {batch} | {shown} |")
    return lines


def _whole_runs(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return a section with a row for each program that trained to an accuracy."""
    first = rows[0]
    return [
        "## Whole runs",
        "",
        f"Processor time of a whole process that trains until {float(first['wanted']):g}% of the test images of MNIST "
        f"are right. Network, batches, learning rate, clipping norm and "
        f"noise are those of Tempered Sigmoid with tanh. Median of {first['rounds']} runs each, in turns, one thread. "
        f"{first['device']}, PyTorch {first['pytorch']}, {first['date']}. [Table]({WHOLE_RUNS}). Written by "
        "`python -m checks benchmark-opacus`.",
        "",
        "| program | processor time | epochs | accuracy |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {r['program']} | {float(r['seconds']):.0f} s | {r['epochs']} | {r['accuracy']}% |" for r in rows),
    ]


def sentence(measured: Mapping[str, Sequence[dict[str, str]]]) -> str:
    """Return the worst and the best speed of a clipped step in the first table, by network, and of other libraries.

    If there is a table of the same instructions with MKL unlocked, its worst and best are there, too.
    """
    name, rows = next(iter(measured.items()))
    clipped, unlocked = (_ratios(some) for some in (rows, measured.get(f"{name}{UNLOCKED}", ())))
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["method"] in PEERS:
            cell = (row["network"], row["batch"])
            best[cell] = max(best.get(cell, 0.0), float(row["ratio"]))
    (low, worst), (high, top) = clipped[0], clipped[-1]
    also = f" ({unlocked[0][0]:.2f} to {unlocked[-1][0]:.2f} with MKL unlocked)" if unlocked else ""
    return (
        f"with {SETS[name]}, a clipped step on one core has {low:.2f} ({worst}) to {high:.2f} times ({top}) the speed "
        f"of PyTorch's ordinary step{also}. The best other library has {min(best.values()):.2f} to "
        f"{max(best.values()):.2f}"
    )


def _ratios(rows: Sequence[dict[str, str]]) -> list[tuple[float, str]]:
    return sorted((float(row["ratio"]), TITLES[row["network"]]) for row in rows if row["method"] == "one_pass")


def replace_sentence(readme: str, measured: Mapping[str, Sequence[dict[str, str]]]) -> str:
    """Return the README with its sentence on speed.

    Raises:
        ValueError: it lacks the two markers, in this order.
    """
    before, begin, tail = readme.partition(BEGIN)
    _, end, after = tail.partition(END)
    if not begin or not end:
        raise ValueError("README.md has lost the markers of the sentence on speed.")
    return f"{before}{BEGIN}{sentence(measured)}{END}{after}"

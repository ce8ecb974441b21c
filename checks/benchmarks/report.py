"""The results of the benchmark: tables and figures by instruction set, one page, and README's sentence."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checks.benchmarks.figure import NAMES, draw
from checks.benchmarks.problems import TITLES
from runner.config import REPOSITORY
from runner.report.files import write_text

TABLE = "engines.csv"
SETS = {"avx512": "AVX-512", "avx2": "AVX2 alone", "cuda": "CUDA"}
OWN = ("one_pass", "backprop", "clipless", "isolated", "non_private_faster")
PEERS = ("vmap", "vmap_compiled", "opacus_hooks", "opacus_ghost", "fastdp", "jax_vmap")
OTHERS = (*PEERS, "non_private_compiled")
BEGIN, END = "<!-- speed: written by `make benchmark` -->", "<!-- end of speed -->"


def write(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write the rows of one instruction set to its folder, and the page and the sentence that have all sets."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / TABLE).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    try:
        draw(list(rows), folder / "engines.svg")
    except ImportError:
        print("No figure: matplotlib is not installed.", file=sys.stderr)
    if folder.parent == REPOSITORY / "results" / "benchmark":
        measured = {
            name: read(folder.parent / name / TABLE) for name in SETS if (folder.parent / name / TABLE).exists()
        }
        write_text(folder.parent / "README.md", page(measured))
        readme = REPOSITORY / "README.md"
        write_text(readme, with_sentence(readme.read_text(encoding="utf-8"), next(iter(measured.items()))))


def read(table: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def page(measured: dict[str, list[dict[str, str]]]) -> str:
    """Return the page with a table for each instruction set."""
    lines = [
        "# Speed",
        "",
        "Speed of a training step against PyTorch's ordinary step of the same network and batch: 2 is twice as fast. "
        "A private step has per-example gradients, clipping, noise and the update. Each number is the median of "
        "alternating timings on one thread, on a CPU in the processor time of the process. The tables beside this page "
        "have quartiles and milliseconds. torch.func and Opacus take their steps in pieces of the size that is fastest "
        "for them, of three, and fastDP takes whole batches. *AVX2 alone* is a processor with AVX-512 that does not "
        "use it. Written by `make benchmark`.",
    ]
    for name, rows in measured.items():
        first, rounds = rows[0], [int(row["rounds"]) for row in rows]
        lines += [
            "",
            f"## {SETS[name]}",
            "",
            f"{first['device']}, PyTorch {first['pytorch']}, {first['date']}, {min(rounds)} to {max(rounds)} timings "
            f"each. [Table]({name}/{TABLE}), "
            f"[figure]({name}/engines.svg).",
        ]
        for methods in (OWN, OTHERS):
            lines += ["", *_table(rows, [method for method in methods if any(r["method"] == method for r in rows)])]
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


def sentence(name: str, rows: Sequence[dict[str, str]]) -> str:
    """Return the worst and the best speed of a clipped step, by network, and the best of other libraries."""
    own = sorted((float(row["ratio"]), TITLES[row["network"]]) for row in rows if row["method"] == "one_pass")
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["method"] in PEERS:
            cell = (row["network"], row["batch"])
            best[cell] = max(best.get(cell, 0.0), float(row["ratio"]))
    (low, worst), (high, top) = own[0], own[-1]
    return (
        f"with {SETS[name]}, a clipped step on one core has {low:.2f} ({worst}) to {high:.2f} times ({top}) the speed "
        f"of PyTorch's ordinary step; the best other library has {min(best.values()):.2f} to {max(best.values()):.2f}"
    )


def with_sentence(readme: str, measured: tuple[str, Sequence[dict[str, str]]]) -> str:
    """Return the README with its sentence on speed.

    Raises:
        ValueError: it lacks the two markers, in this order.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("README.md has lost the markers of the sentence on speed.")
    return f"{before}{BEGIN}{sentence(*measured)}{END}{after}"

"""Attacks on the implementation and on planted mistakes: `python -m checks audit`, with tables in results/audit."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from checks.audit.cases import Row, faults, rows
from checks.audit.report import write, write_page
from runner.config import REPOSITORY


def main(arguments: Sequence[str]) -> int:
    """Run all attacks.

    Returns:
        The exit code: 1 if a sound target is accused, or a fault is missed.
    """
    parser = argparse.ArgumentParser(prog="python -m checks audit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trials at one epsilon: a minute or two, loose bounds")
    parser.add_argument("--output", type=Path, help="default: results/audit, with --quick its folder quick")
    parser.add_argument("--page", action="store_true", help="only write the page and the figure again, from the tables")
    chosen = parser.parse_args(arguments)
    folder = chosen.output or REPOSITORY / "results" / "audit" / ("quick" if chosen.quick else "")
    if chosen.page:
        print(*write_page(folder, quick=chosen.quick), sep="\n")
        return 0
    torch.set_num_threads(1)
    started = time.perf_counter()
    attacked, planted = [], []
    for row in rows(quick=chosen.quick):
        attacked.append(row)
        print(_line(row), flush=True)
    for name, right, wrong in faults(quick=chosen.quick):
        planted.append((name, right, wrong))
        print(f"{name}: {'caught' if wrong.accused else 'MISSED'}\n  {_line(right)}\n  {_line(wrong)}", flush=True)
    for path in write(folder, attacked, planted, quick=chosen.quick):
        print(path)
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    wrong_verdict = any(row.accused for row in attacked) or any(r.accused or not w.accused for _, r, w in planted)
    return int(wrong_verdict)


def _line(row: Row) -> str:
    accused = "  ACCUSED" if row.accused else ""
    return (
        f"{row.what}, {row.mechanism}, {row.sampling}, steps {row.steps}, {row.sees}, δ {row.delta:g}: "
        f"claimed {row.claimed:.4g}, sound {row.sound:.4g}, at least {row.lower:.4g} "
        f"(any shape {row.any_shape:.4g}), {row.verdict}{accused}"
    )

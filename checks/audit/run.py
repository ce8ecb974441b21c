"""Attacks on the implementation and on planted mistakes: `python -m checks audit`, with tables in results/audit."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import torch

from checks.audit.cases import Row, faults, rows
from checks.audit.report import write, write_page
from checks.audit.trained import faulty_runs, runs
from checks.audit.trained import write as write_runs
from runner.config import REPOSITORY, register


def main(arguments: Sequence[str]) -> int:
    """Run all attacks.

    Returns:
        The exit code: 1 if a sound target is accused, or a fault is missed.
    """
    parser = argparse.ArgumentParser(prog="python -m checks audit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trials at one epsilon: a minute or two, loose bounds")
    parser.add_argument("--output", type=Path, help="default: results/audit, with --quick its folder quick")
    parser.add_argument("--page", action="store_true", help="only write the page and the figure again, from the tables")
    parser.add_argument("--runs", action="store_true", help="attack whole runs by canaries instead: an hour of a core")
    chosen = parser.parse_args(arguments)
    folder = chosen.output or REPOSITORY / "results" / "audit" / ("quick" if chosen.quick else "")
    if chosen.page:
        print(*write_page(folder, quick=chosen.quick), sep="\n")
        return 0
    torch.set_num_threads(1)
    if chosen.runs:
        return _attack_runs(folder)
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


def _attack_runs(folder: Path) -> int:
    """Attack whole runs, write their table, and return the exit code."""
    register()
    rows = []
    for row in chain(runs(), faulty_runs()):
        rows.append(row)
        print(
            f"{row.setting}, {row.way}, {row.fault or 'as it is'}: sound {row.sound:.4g}, at least {row.one_run:.4g} "
            f"(any mechanism), {row.curve:.4g} (as charged), {row.independent:.4g} (independent canaries)"
            f"{', ACCUSED' if row.accused else ''}",
            flush=True,
        )
    print(write_runs(folder, rows))
    return int(any(row.accused != row.faulty for row in rows))


def _line(row: Row) -> str:
    accused = "  ACCUSED" if row.accused else ""
    return (
        f"{row.what}, {row.mechanism}, {row.sampling}, steps {row.steps}, {row.sees}, δ {row.delta:g}: "
        f"claimed {row.claimed:.4g}, sound {row.sound:.4g}, at least {row.lower:.4g} "
        f"(any shape {row.any_shape:.4g}), {row.verdict}{accused}"
    )

"""`python -m checks benchmark-kernels`: the fastest way of computing here, by kernel and kind of shape.

Takes one step of every engine on the benchmark's networks, so that all they need is tried, and prints what was tried on
this machine by now: milliseconds of the compiled kernel (of the methods, for weight gradients) and of PyTorch, and
which is taken. See `runner.speed.choices`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from checks.benchmarks.command import Command
from checks.benchmarks.measure import one_thread_each
from checks.benchmarks.methods import clipless, methods, problem
from runner.speed import machine
from runner.speed.choices import Trial, trials
from runner.speed.kernels import kernels_wanted, why_off

_BATCHES = (128, 1024)


def table(tried: list[Trial]) -> str:
    """A line a trial: kernel, shape, threads, milliseconds of each way, the chosen one."""
    rows = [
        (
            trial.kernel,
            trial.case,
            str(trial.threads),
            ", ".join(f"{way} {milliseconds:.3g} ms" for way, milliseconds in trial.milliseconds.items()),
            trial.chosen,
        )
        for trial in tried
    ]
    rows.insert(0, ("kernel", "shape", "threads", "measured", "chosen"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main(arguments: Sequence[str]) -> int:
    """Exit code 2 where no kernel can be had, or DP_REPRO_KERNELS says that nothing is to be tried."""
    parser = Command(prog="python -m checks benchmark-kernels", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.options(arguments).threads
    if threads < 1:
        parser.error(f"--threads {threads}: at least one.")
    reason = why_off()
    if reason is None and kernels_wanted() == "all":
        reason = "DP_REPRO_KERNELS=all: every kernel is used, and nothing is tried. Unset it to see what pays."
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    one_thread_each(threads)
    machine.set_up(threads)
    for batch in _BATCHES:
        for network in ("M", "R", "C"):
            for method in ("one_pass", "backprop"):
                methods(network)[method](problem(network, batch))()
        clipless(problem("VGG5", batch))()
    print(f"{machine.described()}\n")
    print(table(trials()))
    return 0

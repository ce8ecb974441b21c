"""Comparison of this machine's GPU with its CPU, in numbers and in time: `python -m checks parity`.

It takes one step of every architecture, clipping and mechanism of conf/ on both. It compares steps as a CUDA graph with
steps call by call, and runs in lockstep with each alone. Then it runs the short form of `python -m checks benchmark`.
`--rehearse` does all of it on the CPU alone. There, the other side is another engine, layout and division of the batch.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from checks.parity.cases import GROUPS, cases
from checks.parity.runs import graph_against_eager, together_against_alone
from checks.parity.step import CPU, OTHERWISE, Difference, compared
from runner.config import REPOSITORY, ConfigError
from runner.speed import machine
from runner.terminal import Parser
from runner.training.instantiation import device_of

OUTPUT = REPOSITORY / "results" / "gpu-check"


def main(arguments: Sequence[str]) -> int:
    """Compare, and print the results.

    Returns:
        The exit code.
    """
    parser = Parser(prog="python -m checks parity", description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:1; cpu with --rehearse")
    parser.add_argument("--rehearse", action="store_true", help="the CPU against itself: the same code, without a GPU")
    parser.add_argument("--only", nargs="+", choices=[*GROUPS, "graph", "lockstep"], help="leave the others out")
    parser.add_argument("--no-benchmark", action="store_true", help="leave the times out")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the benchmark's table goes")
    chosen = parser.parse_args(arguments)
    device = "cpu" if chosen.rehearse else chosen.device
    if not chosen.rehearse and not device.startswith("cuda"):
        parser.error(f"--device {device} is no GPU: --rehearse compares the CPU with itself.")
    try:
        device_of(device)
    except ConfigError as error:
        parser.error(
            f"{str(error).replace('runtime.device=', '--device ')} --rehearse (make gpu-check OVERRIDES=--rehearse) "
            "compares the CPU with itself."
        )
    machine.set_up(threads=1 if chosen.rehearse else None)
    started = time.perf_counter()
    wrong = 0
    for name, times, what, why in checked(device, chosen.only, rehearse=chosen.rehearse):
        wrong += bool(why)
        print(
            f"{'DIFFERS' if why else 'agrees'}  {name:<48} {times:8.3f} of what is let pass, in {what} {why}".rstrip()
        )
    print(f"{wrong} differ, {time.perf_counter() - started:.0f} s on {device}", flush=True)
    if chosen.no_benchmark:
        return int(wrong > 0)
    return int(_benchmark(device, chosen.output) != 0 or wrong > 0)


def checked(device: str, only: Sequence[str] | None, *, rehearse: bool) -> Iterator[tuple[str, float, str, str]]:
    """Yield each case's name, its largest difference with the quantity, and the errors, if any."""
    reference, other = (OTHERWISE, CPU) if rehearse else (CPU, replace(CPU, device=device))
    for case in cases(only):
        yield _said(case.name, partial(compared, case, reference, other))
    for name, comparisons in (("graph", graph_against_eager), ("lockstep", together_against_alone)):
        if only is None or name in only:
            for each, check in comparisons(device):
                yield _said(each, check)


def _said(name: str, check: Callable[[], Difference]) -> tuple[str, float, str, str]:
    try:
        worst = check()
    except Exception as error:  # a kernel that is not there, no memory: the other cases are compared all the same
        return name, float("nan"), "nothing", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return name, worst.times, worst.what, "too far" if worst.wrong else ""


def _benchmark(device: str, folder: Path) -> int:
    command = [sys.executable, "-m", "checks.benchmarks", "--quick", "--device", device, "--output", str(folder)]
    return subprocess.run([*command, *(["--networks", "M"] if device == "cpu" else [])], check=False).returncode

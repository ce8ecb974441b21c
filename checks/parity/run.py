"""Comparison of this machine's GPU with its CPU, in numbers: `python -m checks parity`.

It takes one step of every activation, architecture, clipping, constraint, loss and mechanism of conf/ on both. With
passes in fewer bits, it compares what one example moves on the GPU with the bound (`runner.gradients.precision`). It
trains small runs of every option that changes a step, as a CUDA graph and call by call, and some compiled. `--rehearse`
uses a made-up device (`checks.rehearsal`).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

from checks.parity.cases import STEPS, case, prepared
from checks.parity.runs import compiled_against_eager, graph_against_eager
from checks.parity.step import CPU, Difference, compared, lowered
from checks.rehearsal import made_up_cuda, parsed
from runner.config import Precision, options_of
from runner.speed import machine
from runner.terminal import Parser

RUNS = {"run": graph_against_eager, "compiled": compiled_against_eager}


def main(arguments: Sequence[str]) -> int:
    """Compare, and print the results. Return the exit code."""
    parser = Parser(prog="python -m checks parity", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*STEPS, "precision", *RUNS], help="leave the others out")
    chosen = parsed(parser, arguments)
    device = chosen.device
    machine.set_up(threads=1 if chosen.rehearse else None)
    started = time.perf_counter()
    wrong = 0
    with made_up_cuda(devices=2) if chosen.rehearse else nullcontext():
        for name, times, what, why in checked(device, chosen.only):
            wrong += bool(why)
            text = f"{times:8.3f} of what is let pass, in {what} {why}".rstrip()
            print(f"{'DIFFERS' if why else 'agrees'}  {name:<48} {text}", flush=True)
    on = f"a made-up {device}" if chosen.rehearse else device
    print(f"{wrong} differ, {time.perf_counter() - started:.0f} s on {on}", flush=True)
    return int(wrong > 0)


def checked(device: str, only: Sequence[str] | None) -> Iterator[tuple[str, float, str, str]]:
    """Yield each case's name, its largest difference with the quantity, and the errors, if any."""
    other = replace(CPU, device=device)
    for group in (group for group in STEPS if only is None or group in only):
        for option in options_of(group):
            yield _checked(f"{group}={option}", lambda: compared(case(group, option), CPU, other))  # noqa: B023
    for precision in Precision if only is None or "precision" in only else ():
        yield _checked(f"precision={precision.value}", lambda: lowered(prepared(), device, precision))  # noqa: B023
    for name, comparisons in RUNS.items():
        if only is None or name in only:
            for label, check in comparisons(device):
                yield _checked(label, check)


def _checked(name: str, check: Callable[[], Difference]) -> tuple[str, float, str, str]:
    try:
        worst = check()
    except Exception as error:  # a kernel that is not there, no memory: the other cases are compared all the same
        return name, float("nan"), "nothing", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return name, worst.times, worst.what, "too far" if worst.wrong else ""

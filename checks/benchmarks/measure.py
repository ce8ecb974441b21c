"""Times and peak memory of steps.

Times are taken in turns in one process, so that other processes affect every method equally. Memory is taken in one
process for each method.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from checks.benchmarks.own import waited_for
from checks.benchmarks.peers import methods
from checks.benchmarks.problems import problem

SLOW = 2.0  # seconds of a step


def whole_number(text: str) -> int:
    """Read a number from 1 on.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")
    return int(text)


def interleaved(
    networks: Mapping[str, str], batch: int, device: str, rounds: int, seconds: float, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Time a step of each method, on its network, in turns: at least three rounds, and at most `rounds`.

    No new round begins after `seconds`. Before that, every step is taken twice, or once if it is slow, without timing
    compilation and caching. A `clock` of the process's own time excludes other processes.
    """
    steps = {
        name: waited_for(methods(network)[name](problem(network, batch, device)), device)
        for name, network in networks.items()
    }
    for step in steps.values():
        started = time.perf_counter()
        step()
        if time.perf_counter() - started < SLOW:
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    started = time.perf_counter()
    while len(next(iter(times.values()))) < 3 or (
        len(next(iter(times.values()))) < rounds and time.perf_counter() - started < seconds
    ):
        for name, step in steps.items():
            before = clock()
            step()
            times[name].append(clock() - before)
    return times


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """Return first quartile, median and third quartile."""
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, median, third


def digits(value: float) -> float:
    """Round to the four digits that a table has."""
    return float(f"{value:.4g}")


def peak_memory(method: str, network: str, batch: int, device: str) -> float:
    """Return the MiB that a step adds at most to a process that holds the network and the batch; NaN if it fails.

    The process has one thread. On CUDA, these are the MiB that PyTorch allocates there, from preparing the step on.
    """
    arguments = f"{method!r}, {network!r}, {batch}, {device!r}"
    code = f"from checks.benchmarks.measure import _report_peak as r; r({arguments})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else float("nan")


def _report_peak(method: str, network: str, batch: int, device: str) -> None:
    torch.set_num_threads(1)
    if device != "cpu":
        held = problem(network, batch, device)
        allocated = torch.cuda.memory_allocated(device)
        methods(network)[method](held)()
        print(json.dumps((torch.cuda.max_memory_allocated(device) - allocated) / 2**20))
        return
    methods(network)[method](problem(network, 2))()  # memory that libraries load on first use belongs to no method
    step = methods(network)[method](problem(network, batch))
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed counts in no process
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak so far
    before = _status("VmRSS")
    step()
    print(json.dumps((_status("VmHWM") - before) / 1024))


def _status(field: str) -> int:
    """Return a number of KiB from /proc: VmRSS is the present, VmHWM the peak.

    The peak of getrusage is inherited from the parent process.
    """
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])

"""Epoch times and peak memory of Lipschitz networks against the batch size: `python -m checks benchmark-clipless`.

It reproduces figure 4 of the Lipschitz paper on made-up images of CIFAR-10's shape. The methods are ordinary training,
clipless DP-SGD, its projection alone, and DP-SGD with clipping by this project's engine and by Opacus. As in the paper,
clipless methods train the Lipschitz network, and all others the ordinary one with the same convolutions. On a CPU it
takes the process's own time, which depends little on other processes. It takes an hour or more. `--quick` takes a
minute, to show that it works, and writes nothing.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from checks.benchmarks.measure import digits, interleaved, peak_memory, quartiles
from checks.benchmarks.own import EXAMPLES
from checks.benchmarks.problems import LIPSCHITZ, PLAIN, problem
from runner.config import REPOSITORY
from runner.records.provenance import device_name
from runner.report.formats import write_csv
from runner.speed import machine
from runner.speed.kernels import kernels_wanted
from runner.terminal import Parser

TABLE = REPOSITORY / "results" / "benchmark" / "clipless.csv"
BOUNDED = ("clipless", "projection")  # methods of the Lipschitz network
METHODS = ("non_private_faster", "clipless", "projection", "one_pass", "opacus_hooks")


def rows(network: str, batch: int, device: str, rounds: int, seconds: float, memory: bool) -> list[dict[str, Any]]:
    networks = {name: network + (PLAIN if name not in BOUNDED else "") for name in METHODS}
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = interleaved(networks, batch, device, rounds, seconds, clock)
    measured = []
    for name, seconds_taken in times.items():
        low, median, high = (EXAMPLES // batch * duration for duration in quartiles(seconds_taken))
        measured.append(
            {
                "network": network,
                "parameters": sum(p.numel() for p in problem(network, 1).network.parameters()),
                "batch": batch,
                "method": name,
                "s_per_epoch": digits(median),
                "s_q1": digits(low),
                "s_q3": digits(high),
                "peak_mib": digits(peak_memory(name, networks[name], batch, device)) if memory else "",
                "rounds": len(seconds_taken),
                "device": device_name(torch.device(device)),
                "date": time.strftime("%Y-%m-%d"),
            }
        )
    return measured


def main(arguments: Sequence[str]) -> int:
    """Measure, and write the table and the figure. Return the exit code."""
    kernels_wanted()  # refuses an unknown DP_REPRO_KERNELS before anything is timed
    parser = Parser(prog="python -m checks benchmark-clipless", description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(LIPSCHITZ), choices=list(LIPSCHITZ))
    parser.add_argument("--batches", nargs="+", type=int, default=[128, 512, 2048])
    parser.add_argument("--device", default="cpu", help="cpu (default, with one thread) or cuda")
    parser.add_argument("--rounds", type=int, default=9, help="steps of each method at most (at least three)")
    parser.add_argument("--seconds", type=float, default=240, help="start no new round after so long")
    parser.add_argument("--output", type=Path, help="a CSV file; default: results/benchmark, with default options")
    parser.add_argument("--quick", action="store_true", help="one network, small batches, no memory")
    options = parser.parse_args(arguments)
    if options == parser.parse_args([]):
        options.output = TABLE
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: PyTorch finds no CUDA device here.")
    if options.quick:
        options.networks, options.batches, options.rounds = ["VGG5"], [16, 32], 3
    torch.set_num_threads(1)
    machine.set_up(1)
    measured: list[dict[str, Any]] = []
    for network in options.networks:
        for batch in options.batches:
            for row in rows(network, batch, options.device, options.rounds, options.seconds, not options.quick):
                measured.append(row)
                print(
                    f"{network:<12}{batch:>6}  {row['method']:<20}{row['s_per_epoch']:>9,.1f} s an epoch "
                    f"[{row['s_q1']:,.1f}, {row['s_q3']:,.1f}]  {row['peak_mib']} MiB",
                    flush=True,
                )
    if options.output is not None:
        write_csv(options.output, list(measured[0]), measured)
    return 0

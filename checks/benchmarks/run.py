"""`python -m checks benchmark`: a table of every engine, a figure and a page.

With the default options it is written to results/benchmark/<instruction set>.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from checks.benchmarks.measure import digits, interleaved, quartiles, whole_number
from checks.benchmarks.own import padded_length
from checks.benchmarks.peers import methods
from checks.benchmarks.problems import BATCHES
from checks.benchmarks.report import FOLDER, UNLOCKED, gpu_folder, write
from checks.rehearsal import made_up_cuda
from runner.records.provenance import device_name
from runner.speed import machine
from runner.speed.kernels import MORE_FLAGS, kernels_wanted, why_off
from runner.terminal import Parser

EVERY = methods("M") | methods("L")
PADDED = ("one_pass_graph", "one_pass_compiled")
CUDA = (*PADDED, "non_private_lowered")  # what a CPU is not for
CPU = ("jax", "non_private_jax")  # what a GPU is not for
# Together they take a processor for one without AVX-512, some of them alone for a mixture.
AVX2_ALONE = (
    *("DP_REPRO_KERNEL_FLAGS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"),
    "TORCHINDUCTOR_CPP_MARCH",
)
_VENDOR = "mkl_unlocked.so"
_ALWAYS_INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }"  # what MKL asks before it takes its fastest code


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    wanted = kernels_wanted()
    parser = Parser(prog="python -m checks benchmark", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=list(BATCHES), help="default: all")
    parser.add_argument("--batches", nargs="+", type=whole_number, help="default: one or two by network")
    parser.add_argument("--methods", nargs="+", choices=list(EVERY), help="default: all that the device is for")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, or cuda and a number, as cuda:1")
    parser.add_argument("--rounds", type=whole_number, default=15, help="steps of each method at most (at least three)")
    parser.add_argument("--seconds", type=whole_number, default=60, help="start no new round after so long")
    parser.add_argument("--threads", type=whole_number, default=1)
    parser.add_argument("--unlocked", action="store_true", help="let MKL use all instructions, whoever made the CPU")
    parser.add_argument("--quick", action="store_true", help="M with 128 examples, few rounds")
    parser.add_argument("--rehearse", action="store_true", help="use a made-up GPU; its times mean nothing")
    parser.add_argument("--output", type=Path, help="a folder; default: in results/benchmark (see above)")
    arguments, default = parser.parse_args(words), parser.parse_args([])
    cpu = arguments.device == "cpu"
    if not cpu and not arguments.device.startswith("cuda"):
        parser.error(f"--device {arguments.device}: expected cpu or cuda.")
    if arguments.unlocked and not (cpu and shutil.which(os.environ.get("CXX", "c++"))):
        parser.error("--unlocked is for a CPU, and needs a C compiler.")
    if not cpu and not arguments.rehearse and not torch.cuda.is_available():
        parser.error(f"--device {arguments.device}: PyTorch finds no CUDA device here.")
    default.device = arguments.device
    default.unlocked = arguments.unlocked
    alike = len({name in os.environ for name in AVX2_ALONE}) == 1  # everything runs with the same instructions
    if arguments == default and wanted == "by rule" and alike:
        capability = torch.backends.cpu.get_cpu_capability().lower().replace(" ", "-")
        folder = capability + (UNLOCKED if arguments.unlocked else "")
        arguments.output = FOLDER / (folder if cpu else gpu_folder(arguments.device))
    if arguments.quick:
        arguments.networks, arguments.batches = arguments.networks or ["M"], [128]
        arguments.rounds, arguments.seconds = 5, 20
    for name in arguments.methods or ():
        if not any(name in methods(network) for network in arguments.networks or BATCHES):
            parser.error(f"--methods {name}: it cannot take the step of network {' or '.join(arguments.networks)}.")
    if arguments.methods is None:
        left_out = CUDA if cpu else CPU
        arguments.methods = [name for name in EVERY if name not in left_out]
    if "non_private" not in arguments.methods:
        arguments.methods.insert(0, "non_private")
    return arguments


def _rows(arguments: argparse.Namespace, network: str, batch: int) -> list[dict[str, Any]]:
    torch.compiler.reset()  # it compiles a function for a limited number of shapes
    networks = {name: network for name in methods(network) if name in arguments.methods}
    times = interleaved(networks, batch, arguments.device, arguments.rounds, arguments.seconds, _clock(arguments))
    rows = []
    for name, seconds in times.items():
        low, median, high = quartiles(seconds)
        ratios = quartiles([plain / other for plain, other in zip(times["non_private"], seconds, strict=True)])
        rows.append(
            {
                "network": network,
                "batch": batch,
                "method": name,
                "length": padded_length(batch) if name in PADDED else batch,
                "ms": digits(1e3 * median),
                "ms_q1": digits(1e3 * low),
                "ms_q3": digits(1e3 * high),
                "examples_per_s": digits(batch / median),
                "ratio": digits(ratios[1]),
                "ratio_q1": digits(ratios[0]),
                "ratio_q3": digits(ratios[2]),
                "rounds": len(seconds),
                "device": device_name(torch.device(arguments.device)),
                "pytorch": torch.__version__,
                "date": time.strftime("%Y-%m-%d"),
            }
        )
    return rows


def _clock(arguments: argparse.Namespace) -> Callable[[], float]:
    """Return the process's own time if it is one thread on a CPU, because other processes hardly affect it."""
    alone = arguments.device == "cpu" and arguments.threads == 1
    return time.process_time if alone else time.perf_counter


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['network']:<3}{row['batch']:>6}{row['length']:>7}  {row['method']:<22}{row['ms']:>10,.4g} "
        f"[{row['ms_q1']:,.4g}, {row['ms_q3']:,.4g}]".ljust(72)
        + f"{row['examples_per_s']:>9,.0f}  {row['ratio']:.2f} [{row['ratio_q1']:.2f}, {row['ratio_q3']:.2f}]"
    )


def _heading(arguments: argparse.Namespace) -> str:
    flags = "".join(f" {flag}" for flag in MORE_FLAGS)
    unlocked = ", MKL unlocked" if arguments.unlocked else ""
    return (
        f"{time.strftime('%Y-%m-%d')}, {device_name(torch.device(arguments.device))}, PyTorch {torch.__version__}, "
        f"{arguments.threads} thread(s), float32, freed memory kept.\n"
        f"{torch.backends.cpu.get_cpu_capability()}{unlocked}; kernels: {why_off() or kernels_wanted()}{flags}. "
        f"Times are {'of the process alone' if _clock(arguments) is time.process_time else 'by the clock'}.\n"
        "Medians [quartiles]; ratio: speed against the non-private step of the same round. Graphs take padded batches, "
        "as long as in training.\n"
        f"net batch length  {'method':<29}ms [quartiles]         examples/s  ratio"
    )


def _run_unlocked(words: Sequence[str]) -> int:
    """Run the command in a process whose MKL takes every processor for Intel's. Return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/{_VENDOR}"
        compiler = [os.environ.get("CXX", "c++"), "-x", "c", "-", "-shared", "-fPIC", "-o", library]
        subprocess.run(compiler, input=_ALWAYS_INTEL, text=True, check=True)
        command = [sys.executable, "-m", "checks", "benchmark", *words]
        return subprocess.run(command, env=os.environ | {"LD_PRELOAD": library}, check=False).returncode


def main(words: Sequence[str]) -> int:
    """Measure, and write the table, the figure and the page. Return the exit code."""
    arguments = _arguments(words)
    if arguments.unlocked and _VENDOR not in os.environ.get("LD_PRELOAD", ""):
        return _run_unlocked(words)
    with ExitStack() as stack:  # code compiled for another instruction set can end the process
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = stack.enter_context(tempfile.TemporaryDirectory())
        if arguments.rehearse:
            stack.enter_context(made_up_cuda())
        torch.set_num_threads(arguments.threads)
        machine.set_up(arguments.threads)
        print(_heading(arguments), flush=True)
        rows: list[dict[str, Any]] = []
        for network in arguments.networks or BATCHES:
            for batch in arguments.batches or BATCHES[network]:
                for row in _rows(arguments, network, batch):
                    print(_line(row), flush=True)
                    rows.append(row)
    if arguments.output is None:
        print("Nothing is written: --output FOLDER writes the table and a figure.")
    else:
        write(rows, arguments.output)
    return 0

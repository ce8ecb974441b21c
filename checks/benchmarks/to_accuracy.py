"""Processor time of a run to an accuracy, here and by a script with Opacus: `python -m checks benchmark-opacus`.

Both train the network of table 1 of Tempered Sigmoid with tanh on MNIST, with one thread. Batches, learning rate,
clipping norm and noise are the same. A first run here, without timing, tells after which epoch the accuracy is
reached. With the default options the table goes to results/benchmark.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from checks.benchmarks.measure import whole_number
from checks.benchmarks.report import FOLDER, WHOLE_RUNS, write_page
from runner.config import REPOSITORY
from runner.records.provenance import device_name
from runner.report.formats import write_csv
from runner.speed.kernels import kernels_wanted
from runner.terminal import Parser

EPOCHS = 20
ACCURACY, ROUNDS = 95.0, 3  # of a measurement that is written


def main(arguments: Sequence[str]) -> int:
    """Time both in turns, print the medians, and return the exit code."""
    kernels_wanted()  # refuses an unknown DP_REPRO_KERNELS before anything is timed
    parser = Parser(prog="python -m checks benchmark-opacus", description=__doc__)
    parser.add_argument("--accuracy", type=float, default=ACCURACY, help="percent of the test images")
    parser.add_argument("--rounds", type=whole_number, default=ROUNDS)
    parser.add_argument("--data", type=Path, default=Path.home() / ".cache" / "dp-data")
    options = parser.parse_args(arguments)
    if not (options.data / "MNIST").is_dir():
        parser.error(f"--data {options.data}: there is no MNIST. A run with dataset=mnist downloads it.")
    with tempfile.TemporaryDirectory() as folder:
        history = _record(Path(folder) / "first", options.data, EPOCHS)["history"]
        pairs = zip(history["epoch"], history["test_accuracy"], strict=True)
        reached = [epoch for epoch, percent in pairs if percent >= options.accuracy]
        if not reached:
            parser.error(f"--accuracy {options.accuracy}: {EPOCHS} epochs do not reach it here.")
        script = [sys.executable, "-m", "checks.benchmarks.opacus_script", str(options.data), str(options.accuracy)]
        times = []
        for number in range(options.rounds):
            started = _children()
            record = _record(Path(folder) / str(number), options.data, reached[0])
            between = _children()
            answer = subprocess.run(script, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
            times.append((between - started, _children() - between))
    opacus_epochs, accuracy = answer.split()
    ours, theirs = map(statistics.median, zip(*times, strict=True))
    programs = [
        ("this bench", ours, reached[0], record["final"]["test_accuracy"]),
        ("a script with Opacus", theirs, int(opacus_epochs), float(accuracy)),
    ]
    for program, seconds, epochs, percent in programs:
        print(f"{program}: {seconds:.1f} s of processor time, {epochs} epochs, {percent:.2f}%")
    if float(accuracy) < options.accuracy:
        print(f"Opacus did not reach {options.accuracy:g}%. Its time is of all its epochs. Nothing is written.")
    elif (options.accuracy, options.rounds) == (ACCURACY, ROUNDS):
        machine = {"device": device_name(torch.device("cpu")), "pytorch": torch.__version__}
        rows = [
            {"program": program, "seconds": round(seconds, 1), "epochs": epochs, "accuracy": round(percent, 2)}
            | {"wanted": ACCURACY, "rounds": ROUNDS, "date": time.strftime("%Y-%m-%d"), **machine}
            for program, seconds, epochs, percent in programs
        ]
        write_csv(FOLDER / WHOLE_RUNS, list(rows[0]), rows)
        write_page()
    return 0


def _record(results: Path, data: Path, epochs: int) -> dict[str, Any]:
    overrides = ["experiment=tempered_sigmoid/mnist_tanh", f"epochs={epochs}", "diagnostics=[]"]
    places = [f"runtime.results_root={results}", f"runtime.data_root={data}", "runtime.device=cpu"]
    command = [sys.executable, "-m", "runner", *overrides, *places, "runtime.threads=1", "tracking.mode=disabled"]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, check=True)
    (record,) = (results / "runs").glob("*.json")
    return dict(json.loads(record.read_text(encoding="utf-8")))


def _children() -> float:
    """Return the processor time of all processes started here that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

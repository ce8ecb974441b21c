"""Times of a whole run by engine, and on CUDA as a graph: `python -m checks benchmark-run`.

Network and settings come from an experiment, with made-up images of its size. Nothing is downloaded or recorded. Each
epoch ends with an evaluation on 10,000 images, as in a real run. The times exclude reading data, the epsilons, and on
CUDA one epoch to warm up.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import torch

from checks.benchmarks import Command
from checks.parity.cases import prepared
from runner.accounting import sound_epsilon
from runner.config import ConfigError
from runner.data.datasets import Split
from runner.gradients import ENGINES
from runner.speed import machine
from runner.training.loop import train
from runner.training.run import Run

CAPTURED = ("graph", "compiled")


def one_run(experiment: str, device: str, engine: str, step: str, epochs: int | None) -> Run:
    """Prepare one run of the experiment.

    Raises:
        ConfigError: the run cannot be prepared.
    """
    runtime = f"runtime.device={device}", f"runtime.engine={engine}", f"runtime.step={step}"
    shorter = [] if epochs is None else [f"epochs={epochs}"]
    return prepared(f"experiment={experiment}", *runtime, *shorter)


def run_of(way: str, experiment: str, device: str, epochs: int | None) -> Run:
    """Prepare the run of a way to train: an engine's name, "graph" or "compiled".

    Raises:
        ConfigError: the run cannot be prepared.
    """
    if way in ENGINES:
        return one_run(experiment, device, way, "eager", epochs)
    if way in CAPTURED:
        return one_run(experiment, device, "one_pass", way, epochs)
    raise ConfigError(f"--ways {way}: it must be one of {', '.join((*ENGINES, *CAPTURED))}.")


def made_up(examples: int, run: Run) -> Split:
    """Draw random features of the run's shape."""
    inputs = torch.randn(examples, *run.features.shape(run.dataset.shape), device=run.device)
    return Split(inputs, torch.arange(examples, device=run.device) % run.dataset.classes)


def warm_up(way: str, experiment: str, device: str, data: tuple[Split, Split]) -> None:
    """Train one epoch without timing it, because the first run of a process has costs that later runs do not have."""
    seconds(run_of(way, experiment, device, 1), data)


def price(run: Run) -> None:
    """Compute the epsilons of all epochs, which are cached for the process."""
    for epoch in range(1, run.epochs + 1):
        ledger = run.mechanism.charges_of_epochs(epoch)
        run.accountant.epsilon(ledger.claimed, run.config.delta)
        sound_epsilon(ledger.actual, run.config.delta)


def seconds(run: Run, data: tuple[Split, Split]) -> float:
    """Time training and evaluation of a run, with the capture of a graph."""
    started = time.perf_counter()
    train(run, data, lambda row: None)
    if run.device.type == "cuda":
        torch.cuda.synchronize(run.device)
    return time.perf_counter() - started


def main(arguments: Sequence[str]) -> int:
    """Time the runs and print the table, and return the exit code."""
    parser = Command(prog="python -m checks benchmark-run", description=__doc__)
    parser.add_argument("--experiment", default="tempered_sigmoid/mnist_tanh")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, help="default: the experiment's")
    parser.add_argument("--ways", nargs="+", help=f"of {', '.join((*ENGINES, *CAPTURED))}")
    options = parser.options(arguments)
    try:
        cuda = one_run(options.experiment, options.device, "one_pass", "eager", 1).device.type == "cuda"
        ways = options.ways or (["one_pass", *CAPTURED] if cuda else list(ENGINES))
        runs = {way: run_of(way, options.experiment, options.device, options.epochs) for way in ways}
    except ConfigError as error:
        print(f"full_run: {error}", file=sys.stderr)
        return 2
    machine.set_up(threads=1)
    first = next(iter(runs.values()))
    data = made_up(first.mechanism.examples, first), made_up(10_000, first)
    print(f"{options.experiment}: {first.epochs} epochs of {first.mechanism.steps_per_epoch} steps on {first.device}")
    print(f"{'':<16}{'seconds':>10}")
    price(first)
    for name, run in runs.items():
        if cuda:
            warm_up(name, options.experiment, options.device, data)
        print(f"{name:<16}{seconds(run, data):>10.1f}", flush=True)
    return 0

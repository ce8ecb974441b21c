"""`python -m runner.benchmark.full_run`: how long a whole run takes, step by step, as a graph and in lockstep.

Network and settings are those of `experiment=tempered_sigmoid/mnist_tanh`, on made-up images of MNIST's size: nothing
is downloaded, and nothing recorded.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import torch
from hydra import compose, initialize_config_dir

from runner.build import Run, prepare
from runner.config import REPOSITORY, ConfigError, register
from runner.datasets import Split
from runner.identity import resolved
from runner.train import train, training


def prepared(seed: int, device: str, step: str, epochs: int) -> Run:
    """One run of the setting. Raises ConfigError."""
    register()
    overrides = [f"seed={seed}", f"epochs={epochs}", "max_epsilon=null", "tracking=disabled"]
    overrides += [f"runtime.device={device}", f"runtime.step={step}"]
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        return prepare(resolved(compose("config", ["experiment=tempered_sigmoid/mnist_tanh", *overrides])))


def made_up(examples: int, device: torch.device) -> Split:
    """Random images of 1 x 28 x 28 pixels."""
    images = torch.randn(examples, 1, 28, 28, device=device)
    return Split(images, torch.arange(examples, device=device) % 10)


def seconds(runs: Sequence[Run], data: tuple[Split, Split]) -> float:
    """Training and evaluation of these runs, together where they are several; a capture is counted."""
    started = time.perf_counter()
    if len(runs) == 1:
        train(runs[0], data, lambda row: None)
    else:
        training(runs, data)([lambda row: None] * len(runs))
    if runs[0].device.type == "cuda":
        torch.cuda.synchronize(runs[0].device)
    return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runner.benchmark.full_run", description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lockstep", type=int, nargs="+", default=[4, 16, 64], help="so many runs at once")
    options = parser.parse_args(arguments)
    try:
        first = prepared(0, options.device, "eager", options.epochs)
        ways = {"eager": [first], "graph": [prepared(0, options.device, "graph", options.epochs)]}
        for count in options.lockstep:
            ways[f"lockstep of {count}"] = [
                prepared(seed, options.device, "graph", options.epochs) for seed in range(count)
            ]
    except ConfigError as error:
        print(f"full_run: {error}", file=sys.stderr)
        return 2
    data = made_up(first.mechanism.examples, first.device), made_up(10_000, first.device)
    print(f"{options.epochs} epochs of {first.mechanism.steps_per_epoch} steps on {first.device}")
    print(f"{'':<16}{'seconds':>10}{'a run':>10}")
    for name, runs in ways.items():
        taken = seconds(runs, data)
        print(f"{name:<16}{taken:>10.1f}{taken / len(runs):>10.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

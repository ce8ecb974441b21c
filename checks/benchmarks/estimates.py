"""Whether estimates of time hold: `python -m checks benchmark-estimates`.

Every setting whose own records agree is estimated by the records of all others, and compared with its own. With
`--runs EXPERIMENT ...` short runs are estimated too, as a plan would, then carried out, one by one on one thread, and
compared in seconds of the processor and on the clock.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from checks.benchmarks.command import Command
from runner.config import REPOSITORY, register
from runner.records.identity import identify, resolved
from runner.records.jobs import Job
from runner.runs.estimate import Estimator
from runner.runs.execute import execute
from runner.runs.paces import Paces, read
from runner.speed.yardstick import measured
from runner.training.prepare import prepare

_CLOSE = 1.5


def main(arguments: Sequence[str]) -> int:
    """The command line. Returns the exit code."""
    parser = Command(prog="python -m checks benchmark-estimates", description=__doc__)
    parser.add_argument("--runs", nargs="*", default=[], help="experiments to carry out: tempered_sigmoid/mnist_tanh")
    parser.add_argument("--epochs", type=int, default=2, help="of each run (default: 2)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    paces = Paces(read([REPOSITORY / "results"]), measured().seconds)
    print(f"{'estimated, by others':<22}{'s an epoch':>12}{'recorded':>10}{'ratio':>8}")
    ratios = []
    for setting in paces.settings:
        own, others = paces.own(setting), paces.by_others(setting)
        if own is not None and others is not None:
            ratios.append(others.seconds / own.seconds)
            print(f"{others.by:<22}{others.seconds:>12.2f}{own.seconds:>10.2f}{ratios[-1]:>8.2f}")
    print(f"settings by the records of others: {told(ratios)}")
    if options.runs:
        run_all(options.runs, options.epochs)
    return 0


def told(ratios: Sequence[float]) -> str:
    """How many of some ratios of estimated over true are near one, and the worst of them."""
    if not ratios:
        return "none"
    close = sum(1 / _CLOSE <= ratio <= _CLOSE for ratio in ratios)
    worst = max(ratios, key=lambda ratio: abs(math.log(ratio)))
    middle = statistics.median(ratios)
    return f"{close} of {len(ratios)} within a factor of {_CLOSE}, median {middle:.2f}, worst {worst:.2f}"


def run_all(experiments: Iterable[str], epochs: int) -> None:
    """Estimate short runs and carry them out; prints a row each. The estimate on the clock is as busy as before it."""
    print(f"\n{'run':<44}{'by':<18}{'alone':>7}{'processor':>11}{'ratio':>7}{'as busy':>9}{'clock':>8}{'ratio':>7}")
    worked, waited = [], []
    with tempfile.TemporaryDirectory() as root:
        for experiment in experiments:
            config = _config(experiment, epochs, root)
            estimator = Estimator(config)  # the machine is measured anew
            estimate = estimator.of(Job("", {}, *identify(config), config), prepare)
            busy = estimate.seconds * estimator.yardstick.crowding
            processor, clock = time.process_time(), time.perf_counter()
            execute(config, lambda row, run: None)
            processor, clock = time.process_time() - processor, time.perf_counter() - clock
            worked.append(estimate.seconds / processor)
            waited.append(busy / clock)
            print(
                f"{experiment:<44}{estimate.by:<18}{estimate.seconds:>7.1f}{processor:>11.1f}{worked[-1]:>7.2f}"
                f"{busy:>9.1f}{clock:>8.1f}{waited[-1]:>7.2f}",
                flush=True,
            )
    print(f"processor time: {told(worked)}\non the clock: {told(waited)}")


def _config(experiment: str, epochs: int, root: str) -> DictConfig:
    register()
    overrides = [f"experiment={experiment}", f"epochs={epochs}", "tracking=disabled", "runtime.threads=1"]
    with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
        return resolved(compose("config", [*overrides, f"runtime.results_root={root}"]))

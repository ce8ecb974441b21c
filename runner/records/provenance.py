"""Collect the provenance of a record: code, versions, machine, cost."""

import os
import platform
import resource
from collections.abc import Sequence
from importlib.metadata import distributions
from typing import Any

import torch

from runner.config import REPOSITORY
from runner.config.checkout import git
from runner.mechanism.normal import PRECISION
from runner.speed import kernels
from runner.training.loop import Trained
from runner.training.run import Run
from runner.trust.mechanism import own_noise

_PACKAGES = ("torch", "torchvision", "opacus", "dp-accounting", "hydra-core", "numpy", "kymatio")


def provenance(
    run: Run, trained: Trained, wall_seconds: float, processor_seconds: float, resumed_after: Sequence[int]
) -> dict[str, Any]:
    """Collect the provenance of a record, in seconds and MiB.

    `processor_seconds` are seconds of all threads of the process. A resumed run leaves them out. Examples per second
    count training without evaluation. `epsilon_unsound` is the reason why no sound ε is known. `epsilon_rests_on` names
    the user's classes that ε depends on and that cannot be enforced. An update rule that accepts and rejects adds its
    share of the training time. On a CPU, `instructions` is the instruction set that PyTorch uses, and `kernels` a hash
    of the compiled kernels that the run used. `noise` is how this package drew and added a private run's noise: see
    `runner.mechanism.normal`.
    """
    share, believed = run.rule.share_name, run.rests_on
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    if run.device.type == "cuda":
        memory = torch.cuda.max_memory_allocated(run.device) / 2**20
    return {
        **({"epsilon_unsound": run.unsound} if run.unsound else {}),
        **({"epsilon_rests_on": believed} if believed else {}),
        **({"resumed_after": list(resumed_after)} if resumed_after else {}),
        **({} if share is None else {share: trained.seconds_deciding / trained.seconds_training}),
        **({} if resumed_after else {"processor_seconds": processor_seconds}),
        **({"instructions": torch.backends.cpu.get_cpu_capability()} if run.device.type == "cpu" else {}),
        **({} if (used := kernels.used()) is None else {"kernels": used}),
        **({"command": command} if (command := run.config.tracking.command) else {}),
        **({"noise": PRECISION} if run.mechanism.private and own_noise(run.mechanism) is None else {}),
        "git_revision": LOADED_REVISION,
        "python": platform.python_version(),
        "versions": versions(),
        "device": device_name(run.device),
        "threads": torch.get_num_threads(),
        "engine": run.config.runtime.engine.value,
        "step": trained.step,
        "physical_batch": trained.physical_batch,
        "wall_seconds": wall_seconds,
        "examples_per_second": trained.examples / trained.seconds_training if trained.seconds_training else 0.0,
        "peak_memory_mib": memory,
    }


def versions() -> dict[str, str | None]:
    """Return the installed versions of the packages that numbers depend on."""
    return {name: next((package.version for package in distributions(name=name)), None) for name in _PACKAGES}


def git_revision() -> str | None:
    """Return the commit that is checked out. Outside a git checkout it is what DP_REPRO_REVISION says, if anything.

    It ends with "+changes" if code or configs differ from the commit.
    """
    changes = git(REPOSITORY, "status", "--porcelain", "--", "runner", "conf")
    commit = git(REPOSITORY, "rev-parse", "HEAD")
    if changes is None or commit is None:
        return os.environ.get("DP_REPRO_REVISION")
    return commit.strip() + ("+changes" if changes.strip() else "")


LOADED_REVISION = git_revision()  # of the code that was imported, whatever is committed while it runs


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return models[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()

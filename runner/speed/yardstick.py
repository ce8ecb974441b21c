"""How fast this machine is, by a fixed small piece of training, so that times of one machine tell of another.

The piece is plain PyTorch and never changes: a convolutional network's forward and backward pass on made-up images. Its
least processor time is kept in the user's cache, for as long as machine, processor, PyTorch and the number of threads
are the same: whatever else the machine does can only make it longer, so that the least of all is nearest to the
machine's own. How long it takes on the clock just now, over that, is how crowded the machine is.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from runner.data.cache import cache_folder, of_the_user_alone, safe_folder
from runner.data.files import write_whole
from runner.speed.kernels import fingerprint

_IMAGES = 64
_SECONDS = 0.3  # of processor time, about what a measurement takes
_FIRST = 4  # measurements where none is known: on a busy machine the least of one alone is up to 1.7 times too long


@dataclass(frozen=True)
class Yardstick:
    """Seconds of processor time that the piece takes here at least, and how much longer it takes now on the clock."""

    seconds: float
    crowding: float


def measured() -> Yardstick:
    """Measure this machine, with the threads that PyTorch uses now, and keep what came out if it is the least yet."""
    known = recalled()
    taken = [_taken() for _ in range(_FIRST if known is None else 1)]
    lowest, (_, elapsed, pieces) = min(lowest for lowest, _, _ in taken), taken[-1]
    least = lowest if known is None else min(known, lowest)
    if known is None or lowest < known:
        _keep(least)
    return Yardstick(least, max(1.0, elapsed / pieces / least))


def recalled() -> float | None:
    """The least processor time in seconds that the piece ever took here; None where it was never measured."""
    path = _path()
    try:
        seconds = json.loads(path.read_text())["seconds"] if of_the_user_alone(path) else None
        return float(seconds) if seconds and float(seconds) > 0 else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _taken() -> tuple[float, float, int]:
    """The least processor time of a piece in seconds, the time on the clock of all, and how many they were."""
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(1, 16, 8, 2, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.Tanh(),
            nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
        )  # fmt: skip
        images, weights = torch.rand(_IMAGES, 1, 28, 28), list(network.parameters())
        targets = torch.arange(_IMAGES) % 10

        def piece() -> float:
            started = time.process_time()
            torch.autograd.grad(nn.functional.cross_entropy(network(images), targets), weights)
            return time.process_time() - started

        piece()  # what is set up once
        times: list[float] = []
        begun = time.perf_counter()
        while sum(times) < _SECONDS:
            times.append(piece())
        return min(times) / torch.get_num_threads(), time.perf_counter() - begun, len(times)


def _path() -> Path:
    """Of this machine, its processor, PyTorch and number of threads."""
    capability, threads = torch.backends.cpu.get_cpu_capability(), str(torch.get_num_threads())
    parts = platform.node(), fingerprint(), torch.__version__, capability, threads
    return cache_folder() / "yardstick" / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.json"


def _keep(seconds: float) -> None:
    path = _path()
    try:
        safe_folder(path.parent)
        write_whole(path, json.dumps({"seconds": seconds}), replace=True, private=True)
    except OSError:  # then the next measurement stands alone
        pass

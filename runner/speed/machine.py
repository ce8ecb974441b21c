"""Settings of this process for its machine, made once, before anything is computed."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from runner.speed.kernels import MORE_FLAGS

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def set_up(threads: int | None) -> None:
    """Threads of PyTorch (None: as many as it takes), CUDA without TF32 and repeatable, freed memory kept.

    A convolution in TF32 rounds in the fourth digit, so that a contribution may exceed the norm it was clipped to.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = False
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Have glibc keep what is freed, instead of giving large blocks back to the system and asking again at every step.

    A step on a small network then takes up to a third less time. Other C libraries do as they like.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


@cache
def caches() -> dict[int, int]:
    """Bytes of the processor's data caches by level, as Linux reports them of the first core; empty where it does not.

    A cache that cores share is reported whole.
    """
    found = {}
    try:
        for folder in sorted(_CACHES.glob("index*")):
            level, kind, size = (
                (folder / name).read_text(encoding="utf-8").strip() for name in ("level", "type", "size")
            )
            if kind in ("Data", "Unified"):
                found[int(level)] = int(size[:-1]) * _UNITS[size[-1]]
    except (OSError, ValueError, KeyError):
        return {}
    return found


def described() -> str:
    """Describe in one line PyTorch's instruction set, the kernels' flags if there are any, and the caches."""
    sizes = ", ".join(f"L{level} {size / 2**20:.3g} MiB" for level, size in sorted(caches().items()))
    flags = "".join(f", kernels {flag}" for flag in MORE_FLAGS)
    return f"{torch.backends.cpu.get_cpu_capability()}{flags}; caches: {sizes or 'not known'}"

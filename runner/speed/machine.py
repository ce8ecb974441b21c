"""Settings of this process for its machine, made once, before anything is computed."""

from __future__ import annotations

import ctypes

import torch

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

"""Settings of this process for its machine, made once, before anything is computed."""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def cores() -> int:
    """Return the number of CPU cores that this process may use: by its affinity, and by the quota of its container."""
    from joblib import cpu_count  # takes half a second

    return int(cpu_count())


def gpus() -> int:
    """Return the number of CUDA devices that PyTorch finds. Where there is no driver, it is not imported for that."""
    if "torch" not in sys.modules:
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def memory(system: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use: those of the machine, or the least limit of its cgroups.

    Args:
        system: the root of the file system, in which /proc and /sys are.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError):
        for line in (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):  # of version 2, of version 1
                top = system / "sys/fs/cgroup" / controllers
                group = top / path.lstrip("/")
                name = "memory.limit_in_bytes" if controllers else "memory.max"
                for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(top))):
                    with suppress(OSError, ValueError):  # it is of another namespace, or says max
                        limits.append(int((folder / name).read_text(encoding="utf-8")))
    return min(limits)


def set_up(threads: int | None) -> None:
    """Threads of PyTorch (None: as many as it takes), CUDA without TF32 and repeatable, freed memory kept.

    A convolution in TF32 rounds in the fourth digit, so that a contribution may exceed the norm it was clipped to.
    """
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = False
    # Have glibc keep what is freed, instead of giving large blocks back to the system and asking again at every step: a
    # step on a small network takes up to a third less time. Other C libraries do as they like.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)

"""The GPUs of this machine, and which process sees which of them."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch

from runner.records.jobs import Job

_MOST = 8  # runs at a time on a CPU by default
_ANY = ("auto", "cuda")


def visible() -> list[str]:
    """List the GPUs that PyTorch finds on this machine, by their names in CUDA_VISIBLE_DEVICES."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named[:count] if named else [str(number) for number in range(count)]


def to_share(jobs: Iterable[Job]) -> list[str]:
    """List the GPUs to spread the processes of some jobs over. Each process sees one GPU alone.

    The list is empty if there is one GPU, which needs no name. It is also empty if a job names its device, because a
    process that sees one GPU has no `cuda:1`.
    """
    there_are = visible()
    free = all(job.field("runtime.device") in _ANY for job in jobs)
    return there_are if free and len(there_are) > 1 else []


def workers(jobs: Iterable[Job]) -> int:
    """Return the default number of runs at a time: one per GPU, or one per CPU core and at most eight."""
    if torch.cuda.is_available():
        return max(1, len(to_share(jobs)))
    return min(os.cpu_count() or 1, _MOST)

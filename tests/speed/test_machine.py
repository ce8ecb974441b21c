"""Settings of the process, made once before a run."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from runner.speed import machine


@pytest.fixture
def mallopt(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Options passed to glibc."""
    told: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda name, value: told.append((name, value)))
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: libc)
    return told


def test_float32_stays_float32_and_memory_is_kept(mallopt: list[tuple[int, int]]) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    machine.set_up(None)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert dict(mallopt) == {-1: 2**31 - 1, -3: 2**30}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: SimpleNamespace())
    machine.keep_freed_memory()


@pytest.mark.parametrize(("said", "policy"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_idle_threads_sleep_unless_somebody_wants_them_awake(said: str | None, policy: str) -> None:
    """Set before PyTorch, which reads it once, is loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if said is None else {"OMP_WAIT_POLICY": said}
    program = "import os, sys, runner; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [policy, "False"]

"""How the process is set up, once, before a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from runner.speed import machine


@pytest.fixture
def mallopt(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What glibc is told."""
    told: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda name, value: told.append((name, value)))
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: libc)
    return told


def test_float32_stays_float32_and_memory_is_kept(mallopt: list[tuple[int, int]]) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    machine.set_up(None, keep_freed=False)
    assert mallopt == []
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    machine.set_up(None)
    assert dict(mallopt) == {-1: 2**31 - 1, -3: 2**30}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: SimpleNamespace())
    machine.keep_freed_memory()

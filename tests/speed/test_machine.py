"""Settings of the process, made once before a run."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from runner.speed import machine


@pytest.fixture
def mallopt(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Options passed to glibc."""
    options: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda name, value: options.append((name, value)))
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: libc)
    return options


def test_float32_stays_float32_and_memory_is_kept(mallopt: list[tuple[int, int]]) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    machine.set_up(None)
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert dict(mallopt) == {-1: 2**31 - 1, -3: 2**30}  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: SimpleNamespace())
    machine.set_up(None)


def test_only_cores_that_the_process_may_use_are_counted() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, [min(before)])
        assert machine.cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        ("0::/job/step", {"job/memory.max": "3000", "job/step/memory.max": "max"}, 3000),
        ("0::/", {"memory.max": "2000"}, 2000),
        ("0::/of/another/namespace", {"memory.max": "2000"}, 2000),
        (
            "4:memory:/job",
            {"memory/job/memory.limit_in_bytes": "4000", "memory/memory.limit_in_bytes": f"{2**63}"},
            4000,
        ),
        ("4:cpu:/job", {"memory.max": "2000"}, None),
        ("0::/", {"memory.max": "max"}, None),
    ],
)
def test_memory_is_that_of_the_container(
    tmp_path: Path, line: str, files: dict[str, str], expected: int | None
) -> None:
    for name, text in {
        "proc/self/cgroup": line,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    bytes_of_machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine.memory(tmp_path) == (expected or bytes_of_machine)


@pytest.mark.parametrize(("message", "policy"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_idle_threads_sleep_unless_somebody_wants_them_awake(message: str | None, policy: str) -> None:
    """Set before PyTorch, which reads it once, is loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if message is None else {"OMP_WAIT_POLICY": message}
    program = "import os, sys, runner; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [policy, "False"]

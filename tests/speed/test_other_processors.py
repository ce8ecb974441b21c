"""The kernels built for 64-bit ARM (NEON), run in an emulator: each passes its own trial there, too.

Wants a cross compiler and QEMU's user emulation (Debian: g++-aarch64-linux-gnu, qemu-user-static).
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from runner.speed import kernels
from tests.speed.test_kernels import TRIALS

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
FLAGS = ("-O3", "-march=armv8-a", "-ffp-contract=fast", "-std=c++17", "-pthread", "-static")

pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)), reason=f"no {COMPILER} or {EMULATOR}"
)


class Emulated:
    """A kernel's library, whose functions run in the emulator on copies of their arrays."""

    def __init__(self, source: Path, folder: Path, arrays: dict[int, Tensor]) -> None:
        self._source, self._folder, self._arrays = source, folder, arrays
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., None]:
        program = self._folder / name
        if not program.exists():
            call = Path(__file__).with_name("call.cpp")
            sources = [f"-I{self._source.parent}", str(self._source), str(call)]
            subprocess.run([COMPILER, *FLAGS, f"-DKERNEL={name}", *sources, "-o", str(program)], check=True)

        def run(*arguments: Any) -> None:
            given, places = b"", []
            for argument in arguments:
                kind, number, content, place = self._written(argument)
                given += kind + number + content
                if content:
                    places.append((place, len(content)))
            done = subprocess.run([EMULATOR, str(program)], input=given, capture_output=True, check=True)
            start = 0
            for place, size in places:
                ctypes.memmove(place, done.stdout[start : start + size], size)
                start += size
            assert start == len(done.stdout)
            self.called.add(name)

        return run

    def _written(self, argument: Any) -> tuple[bytes, bytes, bytes, int]:
        """Kind, eight bytes, an array's content, and where it is in this process."""
        if isinstance(argument, ctypes.c_double):
            return b"d", struct.pack("<d", argument.value), b"", 0
        if isinstance(argument, ctypes.c_int64):
            return b"i", struct.pack("<q", argument.value), b"", 0
        if isinstance(argument, ctypes.Array):
            place, size = ctypes.addressof(argument), ctypes.sizeof(argument)
        elif argument.value is None:
            return b"p", struct.pack("<q", -1), b"", 0
        else:
            place = argument.value
            size = self._arrays[place].numel() * self._arrays[place].element_size()
        return b"p", struct.pack("<q", size), ctypes.string_at(place, size), place


@pytest.mark.parametrize("name", TRIALS)
def test_a_kernel_for_arm_agrees(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: dict[int, Tensor] = {}
    address = Tensor.data_ptr

    def noted(tensor: Tensor) -> int:
        arrays[address(tensor)] = tensor
        return address(tensor)

    monkeypatch.setattr(Tensor, "data_ptr", noted)
    emulated = Emulated(kernels._FOLDER / f"{name}.cpp", tmp_path, arrays)
    with torch.no_grad():
        assert TRIALS[name](emulated)  # type: ignore[arg-type]
    assert emulated.called

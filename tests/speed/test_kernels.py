"""Compiled libraries: a damaged one is compiled again, and none is taken from where others may write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runner.data.cache import safe_folder
from runner.speed.kernels import library, pointers

NAME = "tanh"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no library loaded from elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    if library(NAME) is None:
        pytest.skip("no C++ compiler")
    library.cache_clear()
    return tmp_path / "dp-repro-bench"


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "unsealed"])
def test_a_damaged_library_is_compiled_again(folder: Path, damage: str) -> None:
    (path,) = folder.glob(f"{NAME}_*.so")
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes({
        "cut": whole[:middle],
        "flipped": whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :],
        "empty": b"",
        "unsealed": whole[:-32],
    }[damage])  # fmt: skip
    program = f"from runner.speed.kernels import library; assert library({NAME!r}) is not None"  # not loaded here yet
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(path.read_bytes()) == len(whole)
    assert [found.name for found in folder.glob("*.so")] == [path.name]


def test_a_whole_library_is_not_compiled_again(folder: Path) -> None:
    (path,) = folder.glob(f"{NAME}_*.so")
    before = path.stat().st_mtime_ns
    assert library(NAME) is not None
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_others_may_not_write_where_libraries_are(folder: Path, mode: int) -> None:
    """As a umask of 002 leaves folders: the user's own is closed; another's is not used."""
    folder.chmod(mode)
    assert library(NAME) is not None
    assert folder.stat().st_mode & 0o022 == 0


def test_a_library_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert library(NAME) is None
    with pytest.raises(PermissionError, match="belongs to another user"):
        safe_folder(folder)


def test_pointers_are_to_the_numbers() -> None:
    tensor = torch.zeros(3)
    assert pointers(tensor)[0].value == tensor.data_ptr()

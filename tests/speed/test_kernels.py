"""Compiled libraries: a damaged one is compiled again, and none is taken from where others may write."""

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runner.gradients import terms
from runner.mechanism import normal
from runner.speed import compiled, convolution, kernels, lipschitz
from runner.speed.kernels import library

NAME = "tanh"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with the library in it, compiled once for all tests."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        kernels._library.cache_clear()
        if library(NAME, compiled.agrees_on_tanh) is None:
            pytest.skip("no C++ compiler")
    return cache / "dp-repro-bench"


@pytest.fixture
def folder(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own that holds the library alone, from where nothing has been loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "dp-repro-bench"
    shutil.copytree(built, folder)
    kernels._library.cache_clear()
    yield folder
    kernels._library.cache_clear()


@pytest.mark.parametrize(
    "damage", ["flipped", *(pytest.param(d, marks=pytest.mark.slow) for d in ("cut", "open to others"))]
)
def test_a_damaged_library_is_compiled_again(folder: Path, damage: str) -> None:
    (path,) = folder.glob(f"{NAME}_*.so")
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes({
        "cut": content[:middle],
        "flipped": content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :],
        "open to others": content,
    }[damage])  # fmt: skip
    if damage == "open to others":  # anybody could have written it, digest and all
        path.chmod(0o664)
    assert library(NAME, compiled.agrees_on_tanh) is not None
    again = path.read_bytes()
    assert path.stat().st_mode & 0o022 == 0
    assert again[-32:] == hashlib.sha256(again[:-32]).digest(), "not merely loaded as it was"
    assert len(again) == len(content)
    assert [computed.name for computed in folder.glob("*.so")] == [path.name]


def test_a_whole_library_is_not_compiled_again(folder: Path) -> None:
    (path,) = folder.glob(f"{NAME}_*.so")
    before = path.stat().st_mtime_ns
    assert library(NAME, compiled.agrees_on_tanh) is not None
    assert path.stat().st_mtime_ns == before


def test_a_folder_that_others_may_write_is_closed_or_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a umask of 002 leaves folders: the user's own is closed; another's is not used."""
    folder.chmod(0o775)
    assert library(NAME, compiled.agrees_on_tanh) is not None
    assert folder.stat().st_mode & 0o022 == 0
    kernels._library.cache_clear()
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert library(NAME, compiled.agrees_on_tanh) is None


TRIALS = {
    "convolution": convolution.agrees_directly,
    "group_norm": compiled.agrees_on_group_norm,
    "group_sort": lipschitz.agrees_on_group_sort,
    "l2_pool": lipschitz.agrees_on_l2_pool,
    "max_pool": compiled.agrees_on_max_pool,
    "normal": normal.agrees,
    "tanh": compiled.agrees_on_tanh,
    "weight_gradients": terms.agrees,
    "winograd": convolution.agrees,
    "winograd_gradients": terms.agrees_by_winograd,
}


def test_every_kernel_has_its_trial() -> None:
    assert set(TRIALS) == {path.stem for path in kernels._FOLDER.glob("*.cpp")}


@pytest.mark.parametrize("name", TRIALS)
def test_a_right_kernel_agrees_at_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In an evaluation, too. It draws no random number."""
    state = torch.get_rng_state()
    kernels._library.cache_clear()
    with torch.inference_mode():
        loaded = library(name, TRIALS[name])
    if loaded is None and not capsys.readouterr().err:
        pytest.skip("no C++ compiler")
    assert loaded is not None
    started = time.perf_counter()
    kernels._library.cache_clear()
    with torch.device("meta"):
        assert library(name, TRIALS[name]) is not None
    assert time.perf_counter() - started < 0.5  # milliseconds, where nothing else runs
    assert torch.equal(torch.get_rng_state(), state)


# One of each kernel and header, and more of the noise. `make mutants` has others, in the sources themselves.
FAULTS = {
    ("convolution", "(v * s.sy + ky) * width"): "v * s.sy * width",
    ("group_norm", "i < c + size"): "i < c + 1",
    ("group_sort", "(a > b) | (a != a) ? a : b"): "a > b ? a : b",
    ("l2_pool", "norm[c] > kNoSlope ? ratio : 0.0f"): "ratio",
    ("max_pool", "left = here ? none : left;"): ";",
    ("normal", "b & 0xfffff"): "a & 0xfffff",
    ("normal", "2147483648.0"): "2147483647.0",
    ("normal", "bits + pairs + i, &second"): "bits + i, &second",
    ("normal", "(noisy + anchor) - anchor"): "noisy",
    ("normal", "work(i, end - i)"): "work(i, end - i - 1)",
    ("normal", "((quarter + 1) & 2) << 62"): "(quarter & 2) << 62",
    ("tanh", "x != x ? x : result"): "x != x ? all(1.0f) : result",
    ("weight_gradients", "sum[j] += row[j];"): "sum[j] = row[j];",
    ("tiles", "row >= 0 && "): "row > 0 && ",
    ("winograd", "s.turned ? 8 - k : k"): "k",
    ("by_rows", "(n + 1) * rows / threads"): "(n + 1) * rows / threads - (n + 1 == threads)",
}


@pytest.mark.parametrize(("name", "right"), FAULTS)
def test_a_kernel_that_is_built_wrong_is_noticed_and_not_used(
    name: str, right: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(kernels._FOLDER, sources)
    path = next(sources.glob(f"{name}.*"))
    source = path.read_text()
    assert source.count(right) >= 1
    path.write_text(source.replace(right, FAULTS[name, right]))
    monkeypatch.setattr(kernels, "_FOLDER", sources)
    monkeypatch.setattr(kernels, "_FLAGS", [*kernels._FLAGS, "-O1"])  # compiled in less time
    built = {"by_rows": "max_pool", "tiles": "winograd_gradients"}.get(name, name)  # headers, and what they are in
    assert library(built, TRIALS[built]) is None
    message = capsys.readouterr().err
    assert message.count(f"The compiled kernel {built} does not compute what PyTorch does") == 1
    kernels._library.cache_clear()


def test_a_compiler_may_be_several_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `ccache g++`, which build scripts export."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DP_REPRO_KERNELS", "all")
    monkeypatch.setenv("CXX", f"env {compiler} -DNOTHING")
    kernels._library.cache_clear()
    assert library(NAME, compiled.agrees_on_tanh) is not None
    kernels._library.cache_clear()


@pytest.mark.parametrize("named", ["nowhere-ccache g++", "'"])
def test_a_compiler_that_is_not_there_is_named(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_REPRO_KERNELS", "all")
    monkeypatch.setenv("CXX", named)
    assert str(kernels.why_off()).startswith(f"CXX={named} names no C++ compiler: no kernel is compiled")
    monkeypatch.setenv("CXX", "")
    assert kernels._compiler()[:1] == [path for path in [shutil.which("c++")] if path]

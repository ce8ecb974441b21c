"""Kernels are used by shape and instruction set, or as DP_REPRO_KERNELS says."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from runner.cli import reproduce
from runner.runs.execute import execute
from runner.speed import compiled, kernels
from runner.speed.compiled import FastMaxPool, FastTanh
from runner.speed.faster import faster
from tests.conftest import Compose, quietly, record_of


@pytest.fixture(autouse=True)
def _rule_applies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is said of kernels, and none has been used."""
    monkeypatch.delenv("DP_REPRO_KERNELS", raising=False)
    kernels._library.cache_clear()  # it knows what other tests wanted
    kernels.forget_used()
    yield
    kernels._library.cache_clear()


def _max_pool(numbers: int) -> Tensor:
    pooled: Tensor = FastMaxPool(2)(torch.ones(numbers // 64, 1, 8, 8))
    return pooled


def _convolution(images: int) -> Tensor:
    convolved: Tensor = faster(nn.Conv2d(16, 16, 3, padding=1))(torch.ones(images, 16, 8, 8))
    return convolved


@pytest.mark.parametrize(
    ("name", "layer", "few", "enough"),
    [
        ("tanh", lambda numbers: FastTanh()(torch.ones(numbers)), compiled.LONG - 1, compiled.LONG),
        ("max_pool", _max_pool, 1 << 17, (1 << 17) + 64),
        ("winograd", _convolution, 7, 8),
    ],
)
def test_a_kernel_is_used_by_shape(
    name: str, layer: Callable[[int], Tensor], few: int, enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer(few)
    assert kernels._used == set()
    layer(enough)
    if kernels.why_off():
        pytest.skip("no C++ compiler")
    assert kernels._used == {name}
    kernels.forget_used()
    monkeypatch.setenv("DP_REPRO_KERNELS", "all")
    layer(few)
    assert kernels._used == {name}


def test_small_convolutions_are_compiled_at_any_size() -> None:
    faster(nn.Conv2d(1, 16, 8, stride=2))(torch.ones(1, 1, 8, 8))
    if kernels.why_off():
        pytest.skip("no C++ compiler")
    assert kernels._used == {"convolution"}


@pytest.mark.parametrize("wanted", ["", "0"])
def test_a_record_has_a_kernel_hash_and_the_instruction_set(
    wanted: str, smoke: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DP_REPRO_KERNELS", wanted)
    config = smoke("epochs=1", "scale.batch_size=500")
    execute(config, quietly)
    provenance = record_of(config)["provenance"]
    assert provenance["instructions"] == torch.backends.cpu.get_cpu_capability()
    computed = provenance.get("kernels")
    assert computed == kernels.used()
    assert (computed is None) == (wanted == "0" or kernels.why_off() is not None)


def test_the_hash_follows_the_kernels_and_their_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in kernels._FOLDER.iterdir():
        if source.suffix in (".cpp", ".h"):
            (tmp_path / source.name).write_text(source.read_text())
    monkeypatch.setattr(kernels, "_used", {"tanh"})
    first = kernels.used()
    monkeypatch.setattr(kernels, "_FOLDER", tmp_path)
    assert kernels.used() == first
    (tmp_path / "tanh.cpp").write_text("// another")
    assert kernels.used() != first
    monkeypatch.setattr(kernels, "_used", {"max_pool"})
    assert kernels.used() != first


def test_a_command_refuses_an_unknown_value_before_it_begins(refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runner` itself does in tests/test_config.py, where it has a process of its own."""
    monkeypatch.setenv("DP_REPRO_KERNELS", "yes")
    monkeypatch.setattr("runner.cli.reproduce.load", lambda _: pytest.fail("it began"))
    assert "DP_REPRO_KERNELS is 0 " in refusal(reproduce.main, ["losing_less"])


def test_nothing_that_a_run_imports_stumbles_over_it() -> None:
    """And a run imports nothing that it uses in places only: wandb, matplotlib and others, which take seconds."""
    program = (
        "import sys, runner.runs.execute, runner.launch.processes, runner.records.jobs\n"
        "print([m for m in ('wandb', 'matplotlib', 'kymatio', 'sklearn', 'torch._dynamo') if m in sys.modules])"
    )
    environment = os.environ | {"DP_REPRO_KERNELS": "yes"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")

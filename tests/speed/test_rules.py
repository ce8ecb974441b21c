"""Kernels are used by shape and instruction set, or as DP_REPRO_KERNELS says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from checks.benchmarks import __main__ as benchmark
from checks.benchmarks import layers
from runner import reproduce
from runner.config import ConfigError
from runner.speed import kernels as compiled
from runner.speed import tanh
from runner.speed.convolution import FastConvolution
from runner.speed.kernels import kernels_wanted
from runner.speed.max_pool import FastMaxPool
from runner.speed.tanh import FastTanh


@pytest.fixture(autouse=True)
def _by_rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is said of kernels, and none has been used."""
    monkeypatch.delenv("DP_REPRO_KERNELS", raising=False)
    compiled._library.cache_clear()  # it knows what other tests wanted
    compiled.forget_used()
    yield
    compiled._library.cache_clear()


def _max_pool(numbers: int) -> Tensor:
    pooled: Tensor = FastMaxPool(nn.MaxPool2d(2))(torch.ones(numbers // 64, 1, 8, 8))
    return pooled


def _convolution(images: int) -> Tensor:
    convolved: Tensor = FastConvolution.of(nn.Conv2d(16, 16, 3, padding=1))(torch.ones(images, 16, 8, 8))
    return convolved


@pytest.mark.parametrize(
    ("name", "layer", "few", "enough"),
    [
        ("tanh", lambda numbers: FastTanh()(torch.ones(numbers)), tanh._MANY - 1, tanh._MANY),
        ("max_pool", _max_pool, 1 << 17, (1 << 17) + 64),
        ("winograd", _convolution, 7, 8),
    ],
)
def test_a_kernel_is_used_by_shape(
    name: str, layer: Callable[[int], Tensor], few: int, enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer(few)
    assert compiled._used == set()
    layer(enough)
    if compiled.why_off():
        pytest.skip("no C++ compiler")
    assert compiled._used == {name}
    compiled.forget_used()
    monkeypatch.setenv("DP_REPRO_KERNELS", "all")
    layer(few)
    assert compiled._used == {name}


def test_the_instruction_set_decides_on_tanh() -> None:
    assert (tanh._MANY == 1 << 20) == (torch.backends.cpu.get_cpu_capability() == "AVX512")


def test_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_REPRO_KERNELS", "yes")
    with pytest.raises(ConfigError, match="DP_REPRO_KERNELS is 0"):
        kernels_wanted()


COMMANDS = {
    "runner.reproduce losing_less": reproduce.main,
    "checks.benchmarks.layers": layers.main,
    "checks.benchmarks": benchmark.main,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_it_in_one_sentence_before_they_begin(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`runner` itself does in tests/test_config.py, where it has a process of its own."""
    monkeypatch.setenv("DP_REPRO_KERNELS", "yes")
    monkeypatch.setattr(sys, "argv", command.split())
    for first in ("runner.reproduce.load", "checks.benchmarks.layers.one_thread_each", "runner.speed.machine.set_up"):
        monkeypatch.setattr(first, lambda *_, **__: pytest.fail("it began"))
    try:
        code = COMMANDS[command]()
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    (sentence,) = said.err.splitlines()
    assert sentence.partition(": ")[2].startswith("DP_REPRO_KERNELS is 0 ")


@pytest.mark.slow
def test_nothing_that_a_command_imports_stumbles_over_it() -> None:
    program = (
        "import checks.benchmarks.__main__, checks.benchmarks.layers, runner.__main__, runner.reproduce, "
        "runner.training.loop"
    )
    environment = os.environ | {"DP_REPRO_KERNELS": "yes"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

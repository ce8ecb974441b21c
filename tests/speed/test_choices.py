"""What is faster here is tried once, kept, and taken; what is computed stays the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import runner.speed.choices as choices
from checks.__main__ import COMMANDS as CHECKS
from checks.benchmarks.kernels import main, table
from runner.cli.commands import COMMANDS, carry_out
from runner.clipping.clips import clip_upstream
from runner.config import ConfigError
from runner.gradients.one_pass.method import method_for
from runner.networks.geometry import Geometry
from runner.records.files import read_record, record_path, results_folder
from runner.records.identity import identify
from runner.runs.execute import execute
from runner.speed.choices import COMPILED, PYTORCH, Trial, fastest, trial_shape, trials
from runner.speed.group_sort import FastGroupSort
from runner.speed.kernels import kernels_wanted, library
from runner.speed.l2_pool import FastL2Pool
from runner.speed.max_pool import FastMaxPool
from runner.speed.tanh import FastTanh
from tests.conftest import Compose

SHORT, LONG = 1e-4, 2e-3  # seconds


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Trials are wanted, and none has been made."""
    monkeypatch.delenv("DP_REPRO_KERNELS", raising=False)
    monkeypatch.setattr(choices, "_folder", lambda: tmp_path / "trials")
    monkeypatch.setattr(choices, "_known", {})
    choices.forget_used()
    library.cache_clear()  # it knows what other tests wanted
    yield tmp_path / "trials"
    library.cache_clear()


def busy(seconds: float) -> None:
    started = time.thread_time()
    while time.thread_time() - started < seconds:
        pass


def ways(compiled: float, pytorch: float) -> dict[str, choices.Way]:
    return {COMPILED: lambda: busy(compiled), PYTORCH: lambda: busy(pytorch)}


@pytest.mark.parametrize(("times", "expected"), [((SHORT, LONG), COMPILED), ((LONG, SHORT), PYTORCH)])
def test_the_faster_way_is_taken_and_kept(times: tuple[float, float], expected: str, folder: Path) -> None:
    assert fastest("tanh", "4", lambda: ways(*times), COMPILED) == expected
    choices._known.clear()  # another process
    assert fastest("tanh", "4", lambda: pytest.fail("tried again"), COMPILED) == expected
    assert choices.used() == {"tanh": {"4": expected}}
    (trial,) = trials()
    assert trial.chosen == expected
    assert min(trial.milliseconds.values()) >= 1e3 * SHORT
    assert expected in table([trial]).splitlines()[1]


def test_waiting_for_the_processor_is_not_counted() -> None:
    waits: dict[str, choices.Way] = {COMPILED: lambda: time.sleep(0.01), PYTORCH: lambda: busy(LONG)}
    assert fastest("tanh", "4", lambda: waits, PYTORCH) == COMPILED


OTHER_WAY = '{"kernel": "tanh", "case": "4", "threads": 1, "milliseconds": {"another": 0.1}}'
NO_TIME = '{"kernel": "tanh", "case": "4", "threads": 1, "milliseconds": {"compiled": "x", "PyTorch": 0.1}}'


@pytest.mark.parametrize("content", ["", "{", "[]", '{"kernel": "tanh"}', OTHER_WAY, NO_TIME])
def test_a_damaged_trial_is_made_again(content: str, folder: Path) -> None:
    fastest("tanh", "4", lambda: ways(SHORT, LONG), COMPILED)
    choices._known.clear()
    (path,) = folder.glob("*.json")
    path.write_text(content)
    assert fastest("tanh", "4", lambda: ways(LONG, SHORT), COMPILED) == PYTORCH
    assert json.loads(path.read_text())["milliseconds"]


def test_trials_among_other_ways_do_not_count() -> None:
    fastest("tanh", "4", lambda: ways(SHORT, LONG), COMPILED)
    others: dict[str, choices.Way] = {"a third": lambda: busy(SHORT), PYTORCH: lambda: busy(LONG)}
    assert fastest("tanh", "4", lambda: others, PYTORCH, tuple(others)) == "a third"


def test_the_first_of_two_processes_decides(folder: Path) -> None:
    def meanwhile() -> dict[str, choices.Way]:
        known = dict(choices._known)
        fastest("tanh", "4", lambda: ways(SHORT, LONG), COMPILED)
        choices._known.clear()
        choices._known.update(known)
        return ways(LONG, SHORT)

    assert fastest("tanh", "4", meanwhile, COMPILED) == COMPILED


def test_a_cache_that_cannot_be_written_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "_folder", lambda: Path("/proc/none/trials"))
    assert fastest("tanh", "4", lambda: ways(LONG, SHORT), COMPILED) == PYTORCH


@pytest.mark.parametrize("wanted", ["0", "all"])
def test_nothing_is_tried_where_nothing_is_to_be_chosen(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_REPRO_KERNELS", wanted)
    assert fastest("tanh", "4", lambda: pytest.fail("tried"), "untried") == "untried"
    assert main([]) == 2


def test_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_REPRO_KERNELS", "yes")
    with pytest.raises(ConfigError, match="DP_REPRO_KERNELS is 0"):
        kernels_wanted()


EVERY = {**COMMANDS, **CHECKS}


@pytest.mark.parametrize("command", ["reproduce losing_less", "benchmark-layers", "benchmark"])
def test_commands_refuse_it_in_one_sentence_before_they_begin(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`runner` itself does in tests/test_config.py, where it has a process of its own."""
    monkeypatch.setenv("DP_REPRO_KERNELS", "yes")
    for first in (
        "runner.cli.reproduce.load",
        "checks.benchmarks.layers.one_thread_each",
        "runner.speed.machine.set_up",
    ):
        monkeypatch.setattr(first, lambda *_, **__: pytest.fail("it began"))
    try:
        name, *arguments = command.split()
        code = carry_out(name, arguments, EVERY)
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    (sentence,) = said.err.splitlines()
    assert sentence.partition(": ")[2].startswith("DP_REPRO_KERNELS is 0 ")


@pytest.mark.slow
def test_nothing_that_a_command_imports_stumbles_over_it() -> None:
    program = (
        "import checks.__main__, checks.benchmarks.layers, runner.__main__, runner.cli.reproduce, runner.training.loop"
    )
    environment = os.environ | {"DP_REPRO_KERNELS": "yes"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("forced", [COMPILED, PYTORCH])
@pytest.mark.parametrize("layer", [FastTanh(), FastMaxPool(nn.MaxPool2d(2, 1)), FastGroupSort(), FastL2Pool(2)])
def test_either_way_gives_the_same(layer: nn.Module, forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(5, 4, 8, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    expected: Tensor = type(layer).__mro__[1].forward(layer, x)  # type: ignore[attr-defined]
    (of_x,) = torch.autograd.grad(expected.square().sum(), x)
    monkeypatch.setattr(choices, "_chosen", lambda key, ways: forced)
    found = layer(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(found.square().sum(), x)[0], of_x, rtol=0, atol=1e-5)


def test_random_numbers_are_left_as_they_are() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    FastTanh()(torch.ones(70, 40))
    method_for(Geometry(4, 16, (8, 8), (6, 6), (3, 3)), torch.ones(1))
    clip_upstream(torch.ones(5, 4, 3, 3), 1.0, True)
    assert choices.used().keys() == {"tanh", "weight_gradients", "clips"}
    assert torch.equal(torch.rand(3), expected)


def test_within_inference_and_without_gradients() -> None:
    x = torch.randn(6, 4)
    for mode in (torch.inference_mode(), torch.no_grad()):
        choices._known.clear()
        with mode:
            found: Tensor = FastTanh()(x)
        torch.testing.assert_close(found, x.tanh())


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 7), (1, 7)),
        ((5, 7), (16, 7)),
        ((16,), (16,)),
        ((17,), (64,)),
        ((1 << 30, 2), (1 << 20, 2)),
        ((0, 3), (1, 3)),
    ],
)
def test_shapes_of_trials(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert trial_shape(shape) == expected


def test_a_record_says_what_was_taken(composed: Compose) -> None:
    config = composed("experiment=tempered_sigmoid/mnist_tanh", "scale=smoke", "epochs=1", "tracking=disabled")
    execute(config, on_epoch=lambda row, run: None)
    record = read_record(record_path(results_folder(config), identify(config)[0]))
    assert record is not None
    ways = record["provenance"]["kernels"]
    assert {"tanh", "max_pool", "weight_gradients"} <= ways.keys()
    assert set(ways["weight_gradients"].values()) <= {"kernel", "instantiate", "gram"}


def test_the_table() -> None:
    tried = [Trial("tanh", "16 x 4", 1, {COMPILED: 0.5, PYTORCH: 0.25})]
    assert table(tried).splitlines() == [
        "kernel  shape   threads  measured                          chosen",
        "tanh    16 x 4  1        compiled 0.5 ms, PyTorch 0.25 ms  PyTorch",
    ]

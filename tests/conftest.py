"""Fixtures of all tests: small configs, composed without Hydra's command line, and fabricated records of real jobs."""

import copy
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Nothing that takes seconds to import is imported above a function: the process that hands tests to others runs none.
if TYPE_CHECKING:
    from omegaconf import DictConfig

    from runner.records.jobs import Job

os.environ.setdefault("DP_REPRO_KERNELS", "all")  # every kernel is tested, for small shapes too
os.environ["WANDB_MODE"] = "disabled"  # its process takes longer than a small run; tests/tracking has it

Compose = Callable[..., "DictConfig"]
Fabricate = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Hydra's way to load configs as it is, because some commands replace it in their process."""
    from hydra._internal import hydra as of_hydra

    monkeypatch.setitem(vars(of_hydra), "ConfigLoaderImpl", of_hydra.ConfigLoaderImpl)


@pytest.fixture(params=["compiled", "pytorch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs each test with the C++ kernels, where there is a compiler, and without them."""
    from runner.speed.compiled import agrees_on_tanh
    from runner.speed.kernels import _library, library

    if request.param == "pytorch":
        monkeypatch.setenv("DP_REPRO_KERNELS", "0")
    _library.cache_clear()
    if request.param == "compiled" and shutil.which(os.environ.get("CXX", "c++")) is None:
        pytest.skip("no C++ compiler")  # one that is there and makes a wrong kernel is no reason to skip
    assert (library("tanh", agrees_on_tanh) is None) == (request.param == "pytorch")
    yield request.param
    _library.cache_clear()


@cache
def _composed(options: tuple[str, ...]) -> "DictConfig":
    """Compose options of groups once for every scale, which is swapped (tests/test_config.py compares)."""
    from runner.records.jobs import composed

    scales = [text for text in options if text.startswith("scale=")]
    config = composed([text for text in options if text not in scales])
    if scales:
        config.scale = composed(scales).scale
    return config


@pytest.fixture
def composed(tmp_path: Path) -> Compose:
    """Compose and resolve a config; its results and tracking go to the test's own folder.

    As `hydra.compose` does it (tests/test_config.py compares): first the options of groups, from the cache of configs,
    then the fields.
    """
    from runner.records.identity import resolved
    from runner.records.jobs import set_fields, split

    def make(*overrides: str) -> "DictConfig":
        options, fields = split(overrides)
        config = copy.deepcopy(_composed(tuple(options)))
        config.runtime.device = "cpu"  # unless a test asks for another, on a machine with a GPU too
        config.runtime.results_root, config.tracking.directory = f"{tmp_path}/results", f"{tmp_path}/tracking"
        set_fields(config, fields)
        return resolved(config)

    return make


@pytest.fixture(scope="session")
def listed_runs() -> None:
    """List all sweeps for the cache of configs. Each process begins at another one, so that they share the work."""
    from runner.config import REPOSITORY
    from runner.records.jobs import sweep_jobs

    folder = REPOSITORY / "sweeps"
    sweeps = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.yaml"))
    worker, count = (os.environ.get(f"PYTEST_XDIST_WORKER{part}", "") for part in ("", "_COUNT"))
    first = int(worker.removeprefix("gw") or 0) * len(sweeps) // int(count or 1)
    for sweep in (*sweeps[first:], *sweeps[:first]):
        sweep_jobs(sweep)


@pytest.fixture
def coarse() -> Iterator[None]:
    """For tests of everything but the numbers of an accountant."""
    from tests.small import coarse_grid

    with coarse_grid():
        yield


@pytest.fixture
def smoke(composed: Compose) -> Compose:
    """A function that composes a config from overrides at smoke scale, without tracking."""

    def make(*overrides: str) -> "DictConfig":
        return composed("scale=smoke", "tracking=disabled", *overrides)

    return make


@pytest.fixture
def fabricate(tmp_path: Path) -> Fabricate:
    """`fabricate(job, [97.0, 98.0])`: write a record with these accuracies by epoch; returns its path.

    With sound=None no sound epsilon is known of it.
    """
    from runner.claims.evidence import folder_of
    from runner.records.disk import record_path, write_record
    from runner.records.identity import recorded_config

    def write(
        job: "Job",
        accuracy: Sequence[float],
        epsilon: float | Sequence[float] = 2.9,
        sound: float | Sequence[float] | None = 2.3,
        status: str = "finished",
        diagnostics: dict[str, Any] | None = None,
    ) -> Path:
        epochs = len(accuracy)
        best = max(range(epochs), key=lambda e: accuracy[e])
        spent, truly = (list(e) if isinstance(e, Sequence) else [e] * epochs for e in (epsilon, sound))
        history = {
            "epoch": list(range(1, epochs + 1)),
            "steps": [234 * e for e in range(1, epochs + 1)],
            "epsilon": spent,
            "epsilon_sound": truly,
            "train_loss": [0.5] * epochs,
            "test_loss": [0.25] * (epochs - 1) + [math.nan if status == "diverged" else 0.25],
            "test_accuracy": list(accuracy),
        }
        final = {name: values[-1] for name, values in history.items()}
        final |= {"best_test_accuracy": accuracy[best], "best_epoch": best + 1, "parameters": 26010}
        record = {
            "run_id": job.run_id,
            "setting_id": job.setting_id,
            "status": status,
            "config": recorded_config(job.config),
            "history": history,
            "final": {**final, "noise_multiplier": 1.1, "sampling_rate": 256 / 60000},
            "diagnostics": diagnostics or {"per_class_accuracy": [[a] * 10 for a in accuracy]},
            "provenance": {
                "git_revision": "0" * 40,
                "wall_seconds": 12.0,
                "examples_per_second": 9.0,
                "device": "none",
                **({"epsilon_unsound": "Own overrides release."} if sound is None else {}),
            },
        }
        path = record_path(folder_of(job.config.scale.name, tmp_path), job.run_id)
        assert write_record(path, record)
        return path

    return write


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`refusal(main, ["--jobs", "0"])`: the one line in which a command refuses its arguments, with exit code 2."""

    def said(main: Callable[[list[str]], int], arguments: list[str]) -> str:
        from checks.__main__ import COMMANDS as CHECKS
        from runner.cli.commands import COMMANDS, carry_out

        every = {**COMMANDS, **CHECKS}
        place = f"{main.__module__}:{main.__name__}".removesuffix(":main")
        name = next(name for name, (command, _) in every.items() if command == place)
        try:
            code = carry_out(name, arguments, every)
        except SystemExit as stopped:  # argparse's own refusals
            code = int(stopped.code or 0)
        assert code == 2
        (line,) = [
            line for line in capsys.readouterr().err.strip().splitlines() if "that the budget allows, by" not in line
        ]
        return line  # next to what a slow machine is waiting for

    return said


@pytest.fixture
def jobs() -> "Callable[..., list[Job]]":
    """`jobs("fig_3", "mnist_tanh")`: the planned jobs of one experiment of a paper, in order."""
    from runner.records.jobs import sweep_jobs

    def of(sweep: str, experiment: str, scale: str = "paper", paper: str = "tempered_sigmoid") -> "list[Job]":
        listed = sweep_jobs(f"{paper}/{sweep}", (f"scale={scale}",))
        return [job for job in listed if job.experiment == f"{paper}/{experiment}"]

    return of


def quietly(row: dict[str, float], run: Any) -> None:
    """Watch a run, and say nothing."""


def record_of(config: "DictConfig") -> dict[str, Any]:
    """Return the record of the run of a config."""
    from runner.records.disk import read_record, record_path, results_folder
    from runner.records.identity import identify

    return read_record(record_path(results_folder(config), identify(config)[0]))

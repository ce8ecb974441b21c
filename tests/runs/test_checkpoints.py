"""A run that was stopped goes on, every digit as if it had not been; a run that was trained is recorded on any disk."""

import errno
import gc
import hashlib
import io
import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from runner import files
from runner.build.prepare import prepare
from runner.config import ConfigError
from runner.gradients import OnePassEngine
from runner.records.disk import read_record, record_path, recorded, results_folder, set_aside, stopped_path
from runner.records.identity import identify
from runner.runs import checkpoints, models
from runner.runs.checkpoints import Checkpoint, checkpoint_path
from runner.runs.execute import execute
from runner.training import diagnostics
from runner.training.evaluate import evaluate
from runner.training.loop import load, training
from runner.training.run import Run
from tests.conftest import quietly, record_of
from tests.small import NETWORK

EVERY = "runtime.checkpoint_above=0"
ONE = (*NETWORK, "scale.epochs=1", "scale.batch_size=400", "diagnostics=[]")
TWO = (*NETWORK, "scale.epochs=2", "scale.batch_size=400", "epochs=2")

# What of a run has to be put back: each of these has state that the others have not.
KINDS: dict[str, tuple[str, ...]] = {
    "momentum, averaged weights, views, a rate by step and a Hessian's eigenvector": (
        *NETWORK, "optimizer.momentum=0.9", "averaging=ema", "augmentation=views", "augmentation.views=2",
        "schedule=cosine_by_step", "schedule.warmup_steps=5", "diagnostics=[hessian,layer_norms,gradient_norms]",
    ),
    "updates taken back": (  # some of 21, by draws that might have fallen otherwise
        *NETWORK, "screening=annealing", "screening.initial_temperature=0.2", "noise_multiplier=20",
        "optimizer.momentum=0.9", "scale.batch_size=200",
    ),
    "Adam, shuffled batches, a loss that changes by the epoch, and noisy statistics": (
        "experiment=losing_less/mnist_sse_focal", *NETWORK, "normalization=private_statistics", "optimizer=adam",
        "optimizer.lr=0.002", "~optimizer.momentum", "sampling=shuffled",
    ),
    "a bound that follows what was released": (
        "experiment=lipschitz/mnist_mlp", "loss=sharp_cross_entropy_quantile", "architecture.units=[8]",
    ),
}  # fmt: skip
FAST = tuple(KINDS)[:2]


class Stopped(BaseException):
    """As a signal is: no failure of the run."""


def stopping_at(epoch: int) -> Any:
    def stop_after(row: dict[str, float], run: Run) -> None:
        if row["epoch"] == epoch:
            raise Stopped

    return stop_after


def measured(config: DictConfig) -> dict[str, Any]:
    return {name: value for name, value in record_of(config).items() if name not in ("provenance", "digest")}


def weights_of(config: DictConfig) -> dict[str, torch.Tensor]:
    return models.load(models.model_path(results_folder(config), identify(config)[0])).state_dict()


def same_bits(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def place_results(config: DictConfig, folder: Path) -> DictConfig:
    config = config.copy()
    config.runtime.results_root = str(folder)
    return config


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in FAST else pytest.mark.slow) for kind in KINDS])
def test_a_run_that_was_stopped_twice_ends_with_every_bit(smoke, tmp_path, monkeypatch, kind: str) -> None:
    monkeypatch.setattr(diagnostics, "FIXED", 32)
    config = smoke(EVERY, "scale.epochs=3", "epochs=3", "scale.batch_size=400", "save_model=yes", *KINDS[kind])
    complete, stopped = place_results(config, tmp_path / "whole"), place_results(config, tmp_path / "stopped")
    assert execute(complete, quietly) == "finished"
    for epoch in (2, 3):
        with pytest.raises(Stopped):
            execute(stopped, stopping_at(epoch))
        assert checkpoint_path(stopped).exists()
    assert execute(stopped, quietly) == "finished"
    assert measured(stopped) == measured(complete)
    assert same_bits(weights_of(stopped), weights_of(complete))
    whole, resumed = (record_of(config)["provenance"] for config in (complete, stopped))
    assert (whole.get("resumed_after"), resumed["resumed_after"]) == (None, [1, 2])
    assert whole["processor_seconds"] > 0
    assert "processor_seconds" not in resumed, "that of the first attempt is not known"
    assert resumed.get("kernels") == whole.get("kernels")
    assert not checkpoint_path(stopped).exists()
    if kind == "updates taken back":
        final = record_of(complete)["final"]
        assert 0 < final["accepted"] < final["tries"]


@pytest.fixture(scope="module")
def stopped_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run of `half`, which is done once."""
    return tmp_path_factory.mktemp("half")


@pytest.fixture
def half(smoke, stopped_once: Path) -> DictConfig:
    """A run that was stopped in its second epoch, in a folder of the test's own."""
    config = smoke(*TWO, EVERY)
    if not any(stopped_once.iterdir()):
        with pytest.raises(Stopped):
            execute(place_results(config, stopped_once), stopping_at(2))
    shutil.copytree(stopped_once, config.runtime.results_root)
    return config


def loaded(config: DictConfig) -> Any:
    return Checkpoint(config, prepare(config)).load()


def test_a_checkpoint_of_other_code_config_or_rounding_is_unused(half, monkeypatch, capsys) -> None:
    """Threads, instructions and kernels decide how sums are rounded."""
    assert loaded(half)["parts"]["progress"]["history"]["epoch"] == [1]
    for place, name, value in (
        (checkpoints, "code_digest", "0" * 64),
        (torch, "get_num_threads", 3),
        (torch.backends.cpu, "get_cpu_capability", "ANOTHER"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, lambda: value)  # noqa: B023
            assert loaded(half) is None
    monkeypatch.setenv("DP_REPRO_KERNELS", "0")
    assert loaded(half) is None
    assert "is of another code, so the run starts over" in capsys.readouterr().err
    other = half.copy()
    other.seed = 1
    checkpoint_path(half).rename(checkpoint_path(other))
    assert loaded(other) is None
    assert "is of another config" in capsys.readouterr().err


def test_an_engine_goes_on_as_it_was(half: DictConfig) -> None:
    """The check of its plan could come out another way at the weights of the second epoch."""
    assert loaded(half)["parts"]["engine"] == {"fallen_back": False}
    run = prepare(half)
    images, targets = torch.rand(4, *run.dataset.shape), torch.tensor([0, 1, 2, 3])
    names = [name for name, _ in run.new_objective().named_parameters()]
    for fallen_back in (False, True):
        engine = run.engine(objective := run.new_objective())
        assert isinstance(engine, OnePassEngine)
        engine.load_state_dict({"fallen_back": fallen_back})
        with torch.no_grad():
            objective.get_parameter(names[0]).fill_(torch.nan)  # no plan is right here
        engine.clipped_sum(images, targets, [names], torch.ones_like)
        assert engine.state_dict() == {"fallen_back": fallen_back}


def test_a_damaged_checkpoint_is_none(half: DictConfig, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint_path(half)
    complete = path.read_bytes()
    for damaged in (b"", complete[:-1], complete[:100] + bytes([complete[100] ^ 1]) + complete[101:]):
        path.write_bytes(damaged)
        assert loaded(half) is None
        assert "is damaged" in capsys.readouterr().err
    assert execute(half, quietly) == "finished"
    assert not path.exists()


def test_nothing_that_a_checkpoint_says_is_run(half, tmp_path, capsys) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return os.mkdir, (f"{tmp_path}/made",)

    buffer = io.BytesIO()
    torch.save({"bound": Runs()}, buffer, pickle_module=pickle)
    checkpoint_path(half).write_bytes(hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())
    assert loaded(half) is None
    assert "holds more than numbers" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_steps_that_cost_another_epsilon_are_refused(half: DictConfig) -> None:
    """A state whose steps and whose epsilon part: one step fewer than the history says."""
    state = loaded(half)
    state["parts"]["progress"]["kept"] = state["parts"]["progress"]["kept"][:-1]
    run = prepare(half)
    with pytest.raises(ValueError, match="another epsilon"):
        training(run, load(run), state=state)(lambda row: None)


def test_a_short_run_and_one_of_the_users_classes_have_none(smoke) -> None:
    for config in (smoke(*TWO), smoke(*TWO, EVERY, "clipping._target_=tests.failing.OwnClipping")):
        with pytest.raises(Stopped):
            execute(config, stopping_at(2))
        assert not checkpoint_path(config).exists()


def test_saved_weights_are_those_that_were_measured(smoke) -> None:
    config = smoke(*ONE, "save_model=yes")
    assert identify(config) == identify(smoke(*ONE))
    assert execute(config, quietly) == "finished"
    record = record_of(config)
    assert "save_model" not in record["config"]
    objective = models.load(models.model_path(results_folder(config), record["run_id"]))
    run = prepare(config)
    again = evaluate(objective, load(run)[1], run.dataset.classes)
    assert again.accuracy == pytest.approx(record["final"]["test_accuracy"], abs=5e-4)  # three decimals
    assert again.loss == pytest.approx(record["final"]["test_loss"], rel=1e-4)


def test_threads_change_a_record_by_rounding_only(smoke, tmp_path: Path) -> None:
    """And garbage is collected in training. The command line turns the collector off for its imports."""
    results, collected = [], list[bool]()
    gc.disable()
    for threads in (1, 2):
        config = place_results(smoke(*ONE, f"runtime.threads={threads}"), tmp_path / str(threads))
        assert execute(config, lambda row, run: collected.append(gc.isenabled())) == "finished"
        results.append(record_of(config))
    torch.set_num_threads(1)
    gc.unfreeze()
    assert all(collected)
    first, two = results
    assert first["run_id"] == two["run_id"]
    assert first["history"]["epsilon_sound"] == two["history"]["epsilon_sound"]
    assert first["history"]["test_loss"] == pytest.approx(two["history"]["test_loss"], rel=1e-3)


def test_a_stopped_run_leaves_its_epochs_and_can_still_be_made(smoke) -> None:
    """Another search may let it go further. The longer record has all that the shorter had."""
    small = ("architecture.units=[8]", "scale.batch_size=400", "diagnostics=[]")
    config = smoke("experiment=lipschitz/mnist_drawn", *small)
    folder, (run_id, _) = Path(config.runtime.results_root) / "smoke", identify(config)
    path = stopped_path(folder, run_id)
    assert execute(config, quietly, goes_on=lambda rows: len(rows) < 1) == "stopped"
    shorter = read_record(path)
    assert execute(config, quietly, goes_on=lambda rows: rows[-1]["epoch"] < 2) == "stopped"
    stopped = read_record(path)
    assert (shorter["status"], stopped["status"]) == ("stopped", "stopped")
    assert (shorter["history"]["epoch"], stopped["history"]["epoch"]) == ([1], [1, 2])
    assert stopped["history"]["test_accuracy"][:1] == shorter["history"]["test_accuracy"]
    assert not recorded(config)
    written = path.read_bytes()
    assert execute(config, quietly, goes_on=lambda rows: len(rows) < 1) == "stopped"
    assert path.read_bytes() == written, "what was measured stays"
    assert execute(config, quietly, goes_on=lambda rows: True) == "finished"
    complete = read_record(record_path(folder, run_id))
    assert complete["history"]["test_accuracy"][:2] == stopped["history"]["test_accuracy"]
    assert path.read_bytes() == written
    path.replace(record_path(folder, run_id))
    assert not recorded(config), "epochs of a run are no run"


def path_of(config: DictConfig) -> Path:
    return record_path(results_folder(config), identify(config)[0])


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder."""
    folder = tmp_path / "temporary files"
    folder.mkdir()
    monkeypatch.setattr(files.tempfile, "tempdir", str(folder))
    return folder


def full_for(*paths: Path) -> Any:
    """In the place of `write_whole`: a disk that has no room for these files."""
    write = files.write_whole

    def written(path: Path, content: Any, **options: Any) -> bool:
        if path in paths:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, content, **options)

    return written


@pytest.mark.parametrize("folder", ["", "smoke/runs", ".checkpoints", "smoke/models"])
def test_a_place_that_cannot_be_written_is_found_before_training(smoke, folder: str) -> None:
    config = smoke(*ONE, "save_model=yes")
    place = Path(config.runtime.results_root) / folder
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    before = sorted(place.parent.iterdir())
    sentence = r"cannot be written to .*: runtime\.results_root=FOLDER|cannot be read: Not a directory"
    with pytest.raises(ConfigError, match=sentence):
        execute(config, quietly, on_start=lambda run: pytest.fail("it began"))
    assert sorted(place.parent.iterdir()) == before


def test_a_checkpoint_that_cannot_be_written_ends_no_run(smoke, monkeypatch, capsys) -> None:
    config = smoke(*ONE, "scale.epochs=2", EVERY)
    monkeypatch.setattr(checkpoints, "write_whole", full_for(checkpoint_path(config)))
    assert execute(config, quietly) == "finished"
    assert capsys.readouterr().err.count("No space left on device") == 1


@pytest.mark.parametrize("lost", ["record", "weights"])
def test_what_cannot_be_written_after_training_is_saved(smoke, monkeypatch, elsewhere, lost: str) -> None:
    """The weights are no reason not to write the record."""
    config = smoke(*ONE, "save_model=yes")
    weights = results_folder(config) / "models" / f"{identify(config)[0]}.pt"
    path = path_of(config) if lost == "record" else weights
    monkeypatch.setattr(files, "write_whole", full_for(path))
    with pytest.raises(OSError, match="No space left on device") as error:
        execute(config, quietly)
    assert recorded(config) == (lost == "weights")
    subprocess.run(str(error.value).partition("in its place: ")[2], shell=True, check=True)
    assert recorded(config)
    assert weights.exists()
    assert not list(elsewhere.iterdir())


def test_a_file_created_at_the_record_path_in_a_run_is_set_aside(smoke) -> None:
    """As an empty file, which a machine that lost its power leaves."""
    config = smoke(*ONE)

    def show_epoch(row: dict[str, float], run: Any) -> None:
        path_of(config).parent.mkdir(parents=True, exist_ok=True)
        path_of(config).touch()

    assert execute(config, show_epoch) == "finished"
    assert recorded(config)
    assert set_aside(path_of(config)) is None
    assert path_of(config).with_suffix(".broken-1").read_text() == ""

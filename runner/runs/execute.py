"""One run, executed: skipped where recorded, else claimed, trained, recorded."""

import gc
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import torch
from omegaconf import DictConfig, OmegaConf

from runner.build.parts import device_of
from runner.build.prepare import check_own, prepare
from runner.config import ConfigError, Precision
from runner.files import check_writable
from runner.records import disk, schema
from runner.records.identity import check_examples, identify, recorded_config
from runner.records.provenance import LOADED_REVISION, provenance
from runner.runs import models
from runner.runs.checkpoints import Checkpoint, checkpoint_path
from runner.speed import kernels, machine
from runner.terminal import part_done
from runner.tracking import writer as tracking
from runner.training.loop import Trained, final_metrics, load, training
from runner.training.run import Run, State
from runner.trust.sources import check_sources

Outcome = Literal["finished", "diverged", "stopped", "skipped", "busy"]
OnEpoch = Callable[[dict[str, float], Run], object]
GoesOn = Callable[[Sequence[dict[str, float]]], bool]  # told all epochs so far
OnStart = Callable[[Run], None]
OnStep = Callable[[int, int, Run], None]
OnRecord = Callable[[Path], None]  # before W&B is waited for


@contextmanager
def _staying() -> Iterator[None]:
    """Make an error of the run out of a `sys.exit` in a user's part."""
    try:
        yield
    except SystemExit as left:
        raise RuntimeError(f"a part of the run ends the process by sys.exit({left.code!r})") from left


@_staying()
def execute(
    config: DictConfig,
    on_epoch: OnEpoch,
    on_start: OnStart = lambda run: None,
    on_step: OnStep = lambda epoch, step, run: None,
    on_record: OnRecord = lambda path: None,
    goes_on: GoesOn | None = None,
) -> Outcome:
    """Carry out one resolved config (see `runner.records.identity.resolved`), unless its record exists.

    Returns:
        The outcome. skipped: it was recorded before. busy: another process on this machine computes it. stopped:
        `goes_on` ended it, and its partial history is saved.

    Raises:
        ConfigError: the config cannot be run, or its results cannot be written. Nothing was read or written.
        DataError: the data set cannot be read.
        OSError: something cannot be written in the end. The message says where it is instead.
        Exception: the error of training, after a failure file with its traceback was written.
    """
    with ExitStack() as claims:
        execution = _Execution(config, claims)
        if not gc.isenabled():  # the first run of a command line
            gc.freeze()  # what is loaded and prepared stays
            gc.enable()
        if execution.outcome is None:
            _carry_out(execution, on_epoch, on_start, on_step, on_record, goes_on)
    assert execution.outcome is not None
    return execution.outcome


class _Execution:
    """One config, claimed unless there is nothing to do, which `outcome` then says."""

    def __init__(self, config: DictConfig, claims: ExitStack) -> None:
        self.config = config
        self.outcome: Outcome | None = None
        self.identity, self.setting = identify(config)
        self.folder = disk.results_folder(config)
        self.rows: list[dict[str, float]] = []
        device_of(config.runtime.device)  # a wrong one is wrong with a record, too
        if disk.recorded(config):
            self.outcome = "skipped"
            return
        tracking.check(config)
        check_sources(config)  # this process may have loaded files that were edited since the run was listed
        self.run = prepare(config)
        if config.precision is Precision.tf32 and self.run.device.type != "cuda":
            raise ConfigError(
                "precision=tf32 is for CUDA, and this run is on a CPU, which has none: bf16 runs on both."
            )
        check_examples(config, self.folder, self.run.dataset)
        try:
            schema.validate(recorded_config(config), schema.RecordedConfig)
        except schema.SchemaError as error:
            raise ConfigError(f"a record cannot hold this config: {error}.") from error
        for name in ("runtime.results_root", "runtime.data_root", "tracking.directory"):
            if not OmegaConf.select(config, name):
                raise ConfigError(f"{name} is empty: it has to be the name of a folder.")
        paths = [disk.record_path(self.folder, self.identity), disk.failure_path(self.folder, self.identity)]
        if config.save_model:
            paths.append(models.model_path(self.folder, self.identity))
        if config.runtime.checkpoint_above is not None:
            paths.append(checkpoint_path(config))
        for place in (disk.claims_folder(config.runtime.results_root), *(path.parent for path in paths)):
            try:
                check_writable(place)
            except OSError as error:
                why = f"results cannot be written to {place} ({error.strerror})"
                raise ConfigError(f"{why}: runtime.results_root=FOLDER chooses another folder.") from error
        if not claims.enter_context(disk.claim(config.runtime.results_root, self.identity)):
            self.outcome = "busy"
        elif disk.recorded(config):  # finished between the first look and the claim
            self.outcome = "skipped"
        elif broken := disk.set_aside(path := disk.record_path(self.folder, self.identity)):
            print(f"{path} was no whole record: it is {broken.name} now, and the run is done again.", file=sys.stderr)

    def record(self, trained: Trained, seconds: float, worked: float, resumed_after: Sequence[int]) -> Path:
        """Write the record of the run, after its weights if `save_model` is set. Return its file.

        Raises:
            OSError: the record or the weights could not be written to their folder. The message names the file that
                has them instead.
            ValueError: nobody could read the record again, so it is not written.
        """
        record: dict[str, Any] = {
            "run_id": self.identity,
            "setting_id": self.setting,
            "status": trained.status,
            "config": recorded_config(self.config),
            "history": trained.history,
            "final": final_metrics(self.run, trained),
            "diagnostics": trained.diagnostics,
            "provenance": provenance(self.run, trained, seconds, worked, resumed_after),
        }
        schema.validate(json.loads(disk.dumps(record)))
        elsewhere: OSError | None = None
        if self.config.save_model and trained.objective is not None:
            try:
                models.save(models.model_path(self.folder, self.identity), self.config, trained.objective)
            except OSError as error:
                elsewhere = error
        if trained.status == disk.STOPPED:
            path, written = disk.stopped_path(self.folder, self.identity), True
            disk.write_stopped(path, record)
        else:
            path = disk.record_path(self.folder, self.identity)
            written = disk.write_record(path, record)
            if not written and disk.set_aside(path):  # what came to be there meanwhile is no record
                written = disk.write_record(path, record)
        # Where it was not written, another machine on the same file system was first, and its record stands.
        self.outcome = trained.status if written else "skipped"
        for path_before in (disk.failure_path(self.folder, self.identity), checkpoint_path(self.config)):
            with suppress(OSError):
                path_before.unlink(missing_ok=True)
        if elsewhere is not None:
            raise elsewhere
        return path

    def write_failure(self, error: Exception) -> Path:
        """Write the error that is handled and the history until then. Return the file."""
        names = self.rows[0] if self.rows else {}
        failure = {
            "run_id": self.identity,
            "setting_id": self.setting,
            "status": "failed",
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
            "config": recorded_config(self.config),
            "history": {name: [row[name] for row in self.rows] for name in names},
            "provenance": {"git_revision": LOADED_REVISION},
        }
        path = disk.failure_path(self.folder, self.identity)
        disk.write_record(path, failure, replace=True)
        return path


def _carry_out(
    execution: _Execution,
    on_epoch: OnEpoch,
    on_start: OnStart,
    on_step: OnStep,
    on_record: OnRecord,
    goes_on: GoesOn | None,
) -> None:
    run, config = execution.run, execution.config
    machine.set_up(config.runtime.threads)
    kernels.forget_used()
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(run.device)
    check_own(run)
    started, working = time.perf_counter(), time.process_time()
    data = load(run)
    checkpoint = Checkpoint(config, run)
    state = checkpoint.load()

    def seconds() -> float:
        return checkpoint.seconds + time.perf_counter() - started

    def save_state(state: Callable[[], State]) -> None:
        above, row = config.runtime.checkpoint_above, execution.rows[-1]
        if above is not None and seconds() / part_done(row, run.epochs, run.paid_for) > above:
            checkpoint.save(state(), int(row["epoch"]), seconds())

    saves = save_state if checkpoint.possible else lambda state: None
    train = training(run, data, lambda epoch, step: on_step(epoch, step, run), saves, state)
    on_start(run)
    try:
        if state is not None:
            history: dict[str, list[float]] = state["parts"]["progress"]["history"]
            execution.rows = [dict(zip(history, row, strict=True)) for row in zip(*history.values(), strict=True)]

        def after_epoch(row: dict[str, float]) -> bool:
            execution.rows.append(row)
            on_epoch(row, run)
            return goes_on is None or goes_on(execution.rows)

        with _staying():
            trained = train(after_epoch)
        worked = time.process_time() - working
        path = execution.record(trained, seconds(), worked, checkpoint.resumed_after)
        on_record(path)
        tracking.track(config, execution.identity, execution.setting, path)
    except KeyboardInterrupt as stopped:
        under_way = "the run that was under way"
        if execution.outcome:
            stopped.add_note(f"finds {under_way} recorded")
        elif checkpoint.epochs:
            stopped.add_note(f"continues {under_way} after epoch {checkpoint.epochs}")
        else:
            stopped.add_note(f"starts {under_way} again")
        raise
    except Exception as error:
        if execution.outcome is None:
            try:
                error.add_note(f"traceback in {execution.write_failure(error)}")
            except OSError as lost:
                error.add_note(f"traceback: {lost}")
        raise

"""The life of one run: skipped, claimed, trained, recorded."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from omegaconf import DictConfig

from runner import tracking
from runner.accounting import sound_epsilon
from runner.build import Run, prepare
from runner.identity import identify, recorded_config
from runner.provenance import LOADED_REVISION, provenance
from runner.records import claim, failure_path, record_path, results_folder, write_record
from runner.train import Trained, load, train

Outcome = Literal["finished", "diverged", "skipped", "busy"]
OnEpoch = Callable[[dict[str, float], Run], None]
OnStart = Callable[[Run], None]


def live(config: DictConfig, on_epoch: OnEpoch, on_start: OnStart = lambda run: None) -> Outcome:
    """Carry out one resolved config (see `runner.identity.resolved`), unless its record exists.

    Returns what happened: "skipped" where the record existed, "busy" where another process on this machine is at it.

    Raises:
        ConfigError: where the config cannot be run; nothing was read or written.
        DataError: where the data set cannot be read.
        Exception: whatever training raised, after a failure file with its traceback was written.
    """
    (identity, setting), folder = identify(config), results_folder(config)
    if record_path(folder, identity).exists():
        return "skipped"
    tracking.check(config)
    run = prepare(config)
    with claim(config.runtime.results_root, identity) as claimed:
        if not claimed:
            return "busy"
        if record_path(folder, identity).exists():  # finished elsewhere between the first look and the claim
            return "skipped"
        if config.runtime.threads is not None:
            torch.set_num_threads(config.runtime.threads)
        started = time.perf_counter()
        data = load(run)
        on_start(run)
        rows: list[dict[str, float]] = []
        try:
            with tracking.tracked(config, identity, setting) as (log, summarise):

                def after_epoch(row: dict[str, float]) -> None:
                    rows.append(row)
                    log(row)
                    on_epoch(row, run)

                trained = train(run, data, after_epoch)
                record: dict[str, Any] = {
                    "run_id": identity,
                    "setting_id": setting,
                    "status": trained.status,
                    "config": recorded_config(config),
                    "history": trained.history,
                    "final": final_metrics(run, trained),
                    "diagnostics": trained.diagnostics,
                    "provenance": provenance(run, trained, time.perf_counter() - started),
                }
                written = write_record(record_path(folder, identity), record)
                summarise(record["final"])
        except Exception as error:
            path = _write_failure(config, identity, setting, rows, error)
            error.add_note(f"traceback in {path}")
            raise
    failure_path(folder, identity).unlink(missing_ok=True)
    if not written:  # another machine on the same file system was first, and its record stands
        return "skipped"
    return "diverged" if trained.status == "diverged" else "finished"


def final_metrics(run: Run, trained: Trained) -> dict[str, Any]:
    """The last epoch's metrics and, apart from them, the best epoch's: chosen on the evaluation split."""
    history = trained.history
    best = max(range(len(history["epoch"])), key=lambda e: history["test_accuracy"][e])
    return {
        **{name: values[-1] for name, values in history.items()},
        **_at_max_tries(run),
        "best_test_accuracy": history["test_accuracy"][best],
        "best_epoch": history["epoch"][best],
        "noise_multiplier": run.mechanism.noise_multiplier,
        "neighbouring_relation": run.mechanism.neighbouring_relation,
        "sampling_rate": run.mechanism.sampling_rate,
        "parameters": run.parameters,
    }


def _at_max_tries(run: Run) -> dict[str, Any]:
    """What a screened run guarantees, however many tries it took: see `runner.screening`."""
    if run.screening is None:
        return {}
    releases = run.mechanism.actual_releases(run.epochs)
    return {
        "max_tries": run.epochs * run.mechanism.steps_per_epoch,
        "epsilon_sound_at_max_tries": sound_epsilon(releases, run.config.delta),
    }


def _write_failure(
    config: DictConfig, identity: str, setting: str, rows: list[dict[str, float]], error: Exception
) -> Path:
    history: dict[str, list[float]] = {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}
    failure = {
        "run_id": identity,
        "setting_id": setting,
        "status": "failed",
        "error": f"{type(error).__name__}: {error}",
        "traceback": traceback.format_exc(),
        "config": recorded_config(config),
        "history": history,
        "provenance": {"git_revision": LOADED_REVISION},
    }
    path = failure_path(results_folder(config), identity)
    write_record(path, failure, replace=True)
    return path

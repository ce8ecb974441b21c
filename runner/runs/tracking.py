"""Weights & Biases: written, never read. The only file that imports wandb."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from runner.config import ConfigError, TrackingMode
from runner.runs.identity import recorded_config

Log = Callable[[dict[str, Any]], None]


def check(config: DictConfig) -> None:
    """ConfigError where online tracking is asked for and cannot work."""
    if config.tracking.mode == TrackingMode.online and _wandb() is None:
        raise ConfigError("tracking=online needs the package wandb, which is not installed.")


@contextmanager
def tracked(config: DictConfig, run_id: str, setting_id: str) -> Iterator[tuple[Log, Log]]:
    """One W&B run: yields two functions, for an epoch's metrics and for the final summary.

    The W&B run's id is the run id, so that sending it twice makes one run. Metrics are plotted against epsilon.
    """
    wandb = None if config.tracking.mode == TrackingMode.disabled else _wandb()
    if wandb is None:
        if config.tracking.mode == TrackingMode.offline:
            print("tracking=offline: wandb is not installed, nothing is written for it.", file=sys.stderr)
        yield lambda _: None, lambda _: None
        return
    folder = Path(config.tracking.directory).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        mode=config.tracking.mode.value,
        project=config.tracking.project,
        entity=config.tracking.entity,
        dir=str(folder),
        id=run_id,
        name=run_id,
        group=config.tracking.group,
        job_type=config.tracking.job_type,
        tags=[*config.tracking.tags, f"setting:{setting_id}", f"scale:{config.scale.name}"],
        config=recorded_config(config),
        reinit="create_new",  # beside the runs that are trained together with it
        resume="allow" if config.tracking.mode == TrackingMode.online else None,
        settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
    )
    failed = True
    try:
        run.define_metric("epsilon")
        run.define_metric("*", step_metric="epsilon")
        yield run.log, run.summary.update
        failed = False
    finally:  # not the run's own `with`, which prints a traceback
        run.finish(exit_code=int(failed))


def _wandb() -> Any:
    try:
        import wandb
    except ImportError:
        return None
    return wandb

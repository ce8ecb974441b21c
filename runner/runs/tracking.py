"""Weights & Biases: written, never read. The only file that imports wandb."""

from __future__ import annotations

import math
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
    if config.tracking.mode != TrackingMode.online:
        return
    wandb = _wandb()
    if wandb is None:
        raise ConfigError("tracking=online needs the package wandb, which is not installed.")
    if wandb.api.api_key is None:
        raise ConfigError("tracking=online needs a W&B login: run `wandb login`, or set WANDB_API_KEY.")


@contextmanager
def tracked(config: DictConfig, run_id: str, setting_id: str) -> Iterator[tuple[Log, Log]]:
    """One W&B run: yields two functions, for an epoch's metrics and for the final summary.

    The W&B run's id is the run id, so that sending it twice makes one run. Metrics are plotted against epsilon; of a
    run without privacy against the epoch, as its epsilon is infinite, and no chart has a place for that.
    """
    wandb = None if config.tracking.mode == TrackingMode.disabled else _wandb()
    if wandb is None:
        if config.tracking.mode == TrackingMode.offline:
            print("tracking=offline: wandb is not installed, nothing is written for it.", file=sys.stderr)
        yield lambda _: None, lambda _: None
        return
    if config.tracking.mode == TrackingMode.online:  # asked for: better no run than one that nobody can watch
        run = _started(wandb, config, run_id, setting_id)
    else:
        run = _unless_it_fails(_started, wandb, config, run_id, setting_id)
    if run is None:
        yield lambda _: None, lambda _: None
        return
    failed, alive = True, [True]

    def while_alive(send: Log) -> Log:
        def log(values: dict[str, Any]) -> None:
            if alive[0]:
                alive[0] = _unless_it_fails(_sent, send, values) is not None

        return log

    try:
        yield while_alive(run.log), while_alive(run.summary.update)
        failed = False
    finally:  # not the run's own `with`, which prints a traceback
        if alive[0]:
            _unless_it_fails(run.finish, exit_code=int(failed))


def _started(wandb: Any, config: DictConfig, run_id: str, setting_id: str) -> Any:
    folder = Path(config.tracking.directory).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        mode=config.tracking.mode.value,
        project=config.tracking.project,
        entity=config.tracking.entity,
        dir=str(folder),
        id=run_id,
        name=_name(config, run_id),
        group=config.tracking.group,
        job_type=config.tracking.job_type,
        tags=[*config.tracking.tags, f"setting:{setting_id}", f"scale:{config.scale.name}"],
        config=recorded_config(config),
        reinit="create_new",  # beside the runs that are trained together with it
        resume="allow" if config.tracking.mode == TrackingMode.online else None,
        settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
    )
    axis = "epsilon" if _private(config) else "epoch"
    run.define_metric(axis)
    run.define_metric("*", step_metric=axis)
    return run


def _name(config: DictConfig, run_id: str) -> str:
    """For people: `tempered_sigmoid/mnist_tanh seed 3 1a2b3c`, or the data set where no experiment was chosen."""
    chosen = config.tracking.job_type or config.dataset.name
    return f"{chosen} seed {config.seed} {run_id[:6]}"


def _private(config: DictConfig) -> bool:
    return bool(config.noise_multiplier != 0)  # null: it is calibrated


def _spent(values: dict[str, Any]) -> dict[str, Any]:
    """Without epsilons that are infinite: no axis has a place for them. A loss that is no number is shown as that."""
    return {name: v for name, v in values.items() if not (name.startswith("epsilon") and math.isinf(v))}


def _sent(send: Log, values: dict[str, Any]) -> bool:
    send(_spent(values))
    return True


def _unless_it_fails(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What W&B's function returns; None where it raises, and a line that says so. What is measured is in the record:
    a run does not end because W&B's process did, or because there is no room for its files."""
    try:
        return function(*arguments, **named)
    except Exception as error:
        said = " ".join(f"{type(error).__name__} {error}".split())
        print(f"tracking: W&B failed ({said}), so the run goes on without it.", file=sys.stderr)
        return None


def _wandb() -> Any:
    try:
        import wandb
    except ImportError:
        return None
    return wandb

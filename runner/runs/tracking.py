"""Weights & Biases: written, never read. The only file of a run that imports wandb."""

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
from runner.runs.media import rows_of
from runner.runs.records import upper_bound

Log = Callable[[dict[str, Any]], None]
End = Callable[[dict[str, Any], Path], None]  # the record, and its file

AXES = ("epsilon", "epsilon_sound", "epoch")  # that a private run's curves can be plotted against, the default first


def check(config: DictConfig) -> None:
    """ConfigError where online tracking is asked for and cannot work."""
    if config.tracking.mode == TrackingMode.online:
        check_login("tracking=online")


def check_login(what: str) -> None:
    """ConfigError where `what` is asked for, which needs the package, a login, and W&B within reach."""
    wandb = _wandb()
    if wandb is None:
        raise ConfigError(f"{what} needs the package wandb, which is not installed.")
    try:
        there = wandb.login(prompt=False)
    except Exception as error:  # a wrong key, no network: several classes, not all of them W&B's
        raise ConfigError(f"{what}: {' '.join(str(error).split())}") from error
    if not there:
        raise ConfigError(f"{what} needs a W&B login: run `wandb login`, or set WANDB_API_KEY.")


def default_entity() -> str:
    """Whose W&B projects a login is for, unless a command says otherwise."""
    return str(_wandb().Api().default_entity)


@contextmanager
def tracked(config: DictConfig, run_id: str, setting_id: str) -> Iterator[tuple[Log, End]]:
    """One W&B run: yields two functions, for an epoch's metrics and for the record when it is written.

    The W&B run's id is the run id, so that sending it twice makes one run. Metrics are plotted against epsilon, and can
    be against any of `AXES`; of a run without privacy against the epoch, as its epsilon is infinite, and no chart has a
    place for that. At the end come the record's final numbers, its diagnostics, the claims that it serves, and the
    record itself, as an artifact.
    """
    wandb = None if config.tracking.mode == TrackingMode.disabled else _wandb()
    if wandb is None:
        if config.tracking.mode == TrackingMode.offline:
            print("tracking=offline: wandb is not installed, nothing is written for it.", file=sys.stderr)
        yield lambda _: None, lambda *_: None
        return
    if config.tracking.mode == TrackingMode.online:  # asked for: better no run than one that nobody can watch
        run = _started(wandb, config, run_id, setting_id)
    else:
        run = _unless_it_fails(_started, wandb, config, run_id, setting_id)
    if run is None:
        yield lambda _: None, lambda *_: None
        return
    failed, alive = True, [True]

    def while_alive(send: Callable[..., None], *values: Any) -> None:
        if alive[0]:
            alive[0] = _unless_it_fails(_sent, send, *values) is not None

    def log(row: dict[str, Any]) -> None:
        while_alive(run.log, _spent(row))

    def end(record: dict[str, Any], path: Path) -> None:
        while_alive(_end, wandb, run, dict(config.tracking.serves), record, path)

    try:
        yield log, end
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
    axes = AXES if _private(config) else AXES[-1:]
    for axis in axes:
        run.define_metric(axis)  # against nothing but W&B's own counter
    run.define_metric("*", step_metric=axes[0])
    return run


def _end(wandb: Any, run: Any, serves: dict[str, str], record: dict[str, Any], path: Path) -> None:
    """What is known only now; diagnostics last, which are the most that W&B could stumble over."""
    final = record["final"]
    guaranteed = final.get("epsilon_sound_at_max_tries", final.get("epsilon_sound"))
    run.summary.update(_spent(final | {"epsilon_sound_guaranteed": guaranteed}))
    if serves:
        run.summary.update({"claims": list(serves), "verdicts": ", ".join(dict.fromkeys(serves.values()))})
    artifact = wandb.Artifact(
        f"record-{record['run_id']}", type="record", metadata={"setting_id": record["setting_id"]}
    )
    artifact.add_file(str(path), policy="immutable")  # it stays where it is, and as it is
    run.log_artifact(artifact)
    axes: dict[str, str] = {}
    for axis, row in rows_of(wandb, record["diagnostics"]):
        for name in row.keys() - axes.keys():
            run.define_metric(name, **({"hidden": True} if name == axis else {"step_metric": axis}))
            axes[name] = axis
        run.log(row)


def _name(config: DictConfig, run_id: str) -> str:
    """For people: `tempered_sigmoid/mnist_tanh seed 3 1a2b3c`, or the data set where no experiment was chosen."""
    chosen = config.tracking.job_type or config.dataset.name
    return f"{chosen} seed {config.seed} {run_id[:6]}"


def _private(config: DictConfig) -> bool:
    return bool(config.noise_multiplier != 0)  # null: it is calibrated


def _spent(values: dict[str, Any]) -> dict[str, Any]:
    """Without epsilons that are infinite or not known: no axis has a place for them. A loss that is NaN stays."""
    return {name: v for name, v in values.items() if not (name.startswith("epsilon") and math.isinf(upper_bound(v)))}


def _sent(send: Callable[..., None], *values: Any) -> bool:
    send(*values)
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

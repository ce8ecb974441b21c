"""Weights & Biases: written, never read. The only file of a run that imports wandb.

W&B is called in a thread. A run waits for it at most `_PATIENCE` seconds, so a silent server cannot stop a run.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from runner.config import ConfigError, TrackingMode
from runner.records.files import rounded, upper_bound
from runner.records.identity import recorded_config
from runner.runs.media import rows_of
from runner.terminal import command, one_line
from runner.training.targets import bare_name

Log = Callable[[dict[str, Any]], None]
End = Callable[[dict[str, Any], Path], None]  # the record, and its file

_PATIENCE = 30.0  # seconds that a run waits for W&B when it begins, and in all when it ends
_STOPPED = 5.0  # seconds that one waits which is interrupted
_RUNS: list[Any] = []  # of W&B's, that this process has open
_REACHED = threading.Event()  # W&B's server, by a run of this process

AXES = (
    "epsilon",
    "epsilon_sound",
    "epsilon_spent",
    "epoch",
)  # that a private run's curves can be plotted against, the default first


def check(config: DictConfig) -> None:
    """ConfigError where online tracking is asked for and cannot work, unless it has worked in this process."""
    if config.tracking.mode == TrackingMode.online and not _REACHED.is_set():
        check_login("tracking=online")


def check_login(what: str) -> None:
    """ConfigError where `what` is asked for, which needs the package, a login, and W&B within reach."""
    wandb = _wandb()
    if wandb is None:
        raise ConfigError(f"{what} needs the package wandb, which is not installed.")
    try:
        there = within(wandb.login, prompt=False)
    except Exception as error:  # a wrong key, no network: several classes, not all of them W&B's
        _release(wandb)
        raise ConfigError(f"{what}: {one_line(str(error))}") from error
    if not there:
        raise ConfigError(f"{what} needs a W&B login: run `wandb login`, or set WANDB_API_KEY.")


def default_entity() -> str:
    """Whose W&B projects a login is for, unless a command says otherwise; ConfigError where W&B does not say."""
    try:
        return str(within(lambda: _wandb().Api().default_entity))
    except Exception as error:
        raise ConfigError(_said(error)) from error


@contextmanager
def tracked(config: DictConfig, run_id: str, setting_id: str) -> Iterator[tuple[Log, End]]:
    """One W&B run: yields two functions, for an epoch's metrics and for the record when it is written.

    The W&B run's id is the run id, so that sending it twice makes one run. Metrics are plotted against epsilon, and can
    be against any of `AXES`; of a run without privacy against the epoch, as its epsilon is infinite, and no chart has a
    place for that. At the end come the record's final numbers, its diagnostics, and the
    record itself, as an artifact. They are sent while other runs end; leaving the context waits for that.

    Raises:
        ConfigError: no run can be begun online, and this process has begun none before. Later runs are written offline.
    """
    mode = config.tracking.mode
    wandb = None if mode == TrackingMode.disabled else _wandb()
    if wandb is None and mode == TrackingMode.offline:
        print("tracking=offline: wandb is not installed, nothing is written for it.", file=sys.stderr)
    run = None if wandb is None else _begun(wandb, mode, config, run_id, setting_id)
    if run is None:
        yield lambda _: None, lambda *_: None
        return
    _RUNS.append(run)
    failed, well, deadline = True, True, math.inf
    ending: Future[Any] | None = None

    def trouble(error: Exception) -> None:
        nonlocal well
        if well:
            _say(error, f"the run is done without it.{_sent_later(run)}")
        well = False

    def log(row: dict[str, Any]) -> None:
        if well:
            try:
                within(run.log, _spent(row))
            except Exception as error:
                trouble(error)

    def end(record: dict[str, Any], path: Path) -> None:
        nonlocal ending, deadline
        deadline = time.monotonic() + _PATIENCE
        ending = _in_a_thread(_end, wandb, run, record, path)

    try:
        yield log, end
        failed = False
    except KeyboardInterrupt:
        deadline = time.monotonic() + _STOPPED
        raise
    finally:  # not the run's own `with`, which prints a traceback
        ending = ending or _in_a_thread(run.finish, exit_code=int(failed))
        try:
            _result(ending, min(_PATIENCE, deadline - time.monotonic()))
        except Exception as error:
            trouble(error)
        finally:
            _RUNS.remove(run)
            if not _RUNS and not (well and ending.done()):
                _release(wandb)


def _begun(wandb: Any, mode: TrackingMode, config: DictConfig, run_id: str, setting_id: str) -> Any:
    """Begin a run of W&B. Return None, after one line with the reason, if that is not possible."""
    try:
        run = within(_started, wandb, mode, config, run_id, setting_id)
    except Exception as error:
        if not _RUNS:
            _release(wandb)
        if mode != TrackingMode.online:
            _say(error, "the run goes on without it.")
            return None
        if not _REACHED.is_set():  # the user asked to watch the run, so it does not begin without W&B
            raise ConfigError(f"tracking=online: {_said(error)}") from error
        send = command("wandb-sync", "--folder", str(Path(config.tracking.directory).expanduser().resolve()))
        _say(error, f"the run is written for later, and sent by: {send}")
        return _begun(wandb, TrackingMode.offline, config, run_id, setting_id)
    if mode == TrackingMode.online:
        _REACHED.set()
    return run


def _started(wandb: Any, mode: TrackingMode, config: DictConfig, run_id: str, setting_id: str) -> Any:
    folder = Path(config.tracking.directory).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    called = config.tracking.job_type or config.dataset.get("name") or bare_name(config.dataset._target_)
    run = wandb.init(
        mode=mode.value,
        project=config.tracking.project,
        entity=config.tracking.entity,
        dir=str(folder),
        id=run_id,
        name=f"{called} seed {config.seed} {run_id[:6]}",
        group=config.tracking.group,
        job_type=config.tracking.job_type,
        tags=[*config.tracking.tags, f"setting:{setting_id}", f"scale:{config.scale.name}"],
        config=recorded_config(config),
        reinit="create_new",  # the runs that are trained together with it go on
        resume="allow" if mode == TrackingMode.online else None,
        settings=wandb.Settings(
            silent=True,
            console="off",
            disable_git=True,
            x_disable_stats=True,
            init_timeout=_PATIENCE * 2 / 3,  # W&B's own ways to give up leave whole files, so they come first
            finish_timeout=_PATIENCE * 2 / 3,
            finish_timeout_raises=True,
        ),
    )
    axes = AXES if config.noise_multiplier != 0 else AXES[-1:]  # null: it is calibrated
    for axis in axes:
        run.define_metric(axis)  # against nothing but W&B's own counter
    run.define_metric("*", step_metric=axes[0])
    return run


def _end(wandb: Any, run: Any, record: dict[str, Any], path: Path) -> None:
    """Send what is known only now, and finish the run whatever becomes of it."""
    try:
        run.summary.update(_spent(record["final"]))
        about = {"setting_id": record["setting_id"]}
        artifact = wandb.Artifact(f"record-{record['run_id']}", type="record", metadata=about)
        artifact.add_file(str(path), policy="immutable")  # it stays where it is, and as it is
        run.log_artifact(artifact)
        defined = set[str]()
        for axis, row in rows_of(wandb, record["diagnostics"]):  # last: the most that W&B could stumble over
            for name in row.keys() - defined:
                run.define_metric(name, **({"hidden": True} if name == axis else {"step_metric": axis}))
            defined |= row.keys()
            run.log(row)
    finally:
        run.finish(exit_code=0)


def _spent(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out epsilons that are infinite or unknown, because no axis can show them. A loss that is NaN stays.

    An epsilon is rounded up as the record has it.
    """
    epsilons = {name: rounded(value, name) for name, value in values.items() if name.startswith("epsilon")}
    endless = {name for name, value in epsilons.items() if math.isinf(upper_bound(value))}
    return {name: value for name, value in {**values, **epsilons}.items() if name not in endless}


def _sent_later(run: Any) -> str:
    """Return a sentence with the command that sends the files of an online run, or "" for an offline run."""
    folder = Path(getattr(run, "dir", "")).parent
    if not folder.name.startswith("run-"):
        return ""
    return f" This sends its curves: python -m wandb sync --include-online {shlex.quote(str(folder))}"


def _said(error: Exception) -> str:
    return one_line(f"{type(error).__name__} {error}")


def _say(error: Exception, and_so: str) -> None:
    """Print that W&B failed. The run continues, because its measurements are in the record."""
    print(f"tracking: W&B failed ({_said(error)}): {and_so}", file=sys.stderr)


def _in_a_thread(function: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
    """Call a function in a thread. Neither the caller nor the end of the process waits for it."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments, **named))
        except BaseException as error:  # W&B's own calls of sys.exit, too
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def _result(future: Future[Any], seconds: float) -> Any:
    wait([future], max(0.0, seconds))
    if not future.done():
        raise TimeoutError(f"no answer in {_PATIENCE:g} seconds")
    return future.result()


def within(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return the result of a function that asks W&B.

    Raises:
        TimeoutError: it takes longer than 30 seconds.
        Exception: as the function raises.
    """
    return _result(_in_a_thread(function, *arguments, **named), _PATIENCE)


def _release(wandb: Any) -> None:
    """End W&B's process. It would run until a server answers, and delay the end of this process."""
    with suppress(Exception):  # there is none, or it is not this process's own
        wandb.sdk.wandb_setup.singleton().assert_service()._proc._process.kill()
    with suppress(Exception):
        wait([_in_a_thread(wandb.teardown)], _PATIENCE)  # takes away what W&B does when this process ends


def _wandb() -> Any:
    os.environ.setdefault("WANDB_HTTP_TIMEOUT", "8")  # seconds: of 19, two questions would take more than `_PATIENCE`
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # telemetry, which the end of the process would wait for
    try:
        import wandb
    except ImportError:
        return None
    return wandb

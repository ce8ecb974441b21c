"""One run in Weights & Biases, written by a process of its own.

`track` is called when the record is written. What is below `main` is the other process, `python -m
runner.tracking.writer`, which alone imports wandb. It reads a JSON object from a pipe: what the run is, and where its
record is. So whatever becomes of W&B, of its network or of its disk, the run and its record stay as they are.
"""

import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from runner.config import PACKAGE, ConfigError, TrackingMode
from runner.records.disk import rounded, upper_bound
from runner.records.identity import recorded_config
from runner.terminal import one_line
from runner.trust.sources import bare_name

Row = dict[str, Any]

AXES = ("epsilon", "epsilon_sound", "epsilon_spent", "epoch")  # of a private run's curves, the default first
LOGIN = "`wandb login` asks for a key, `wandb login --host=URL` is for a server of your own"
_PATIENCE = 35.0  # seconds that a run which is recorded waits for W&B, at most
_GIVING_UP = 20.0  # seconds after which W&B itself gives up, which leaves whole files
_DIAGNOSTIC_AXES = ("epoch", "step")  # one of them is a column of every diagnostic that is measured more than once
_LONGEST_NAME = 128  # characters of a run's name in W&B
_UNFINISHED = ".unfinished-"  # beginning of the names of folders in wandb/
_WITHOUT = "The run is recorded without it."


def check(config: DictConfig) -> None:
    """Check that online tracking can work, if it is asked for.

    Raises:
        ConfigError: it cannot.
    """
    if _mode(config) == TrackingMode.online:
        check_login("tracking=online")


def _mode(config: DictConfig) -> TrackingMode:
    """Return how a run is tracked. `WANDB_MODE=disabled`, W&B's own switch, turns tracking off for all runs."""
    mode: TrackingMode = config.tracking.mode
    return TrackingMode.disabled if os.environ.get("WANDB_MODE") == "disabled" else mode


@cache
def check_login(what: str) -> None:
    """Check once in this process that W&B is installed, knows the user and can be reached.

    Raises:
        ConfigError: `what` needs this, and it is not so.
    """
    program = "import sys, wandb; sys.exit(0 if wandb.login(prompt=False) else 'no login')"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], env=_environment(), capture_output=True, text=True, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{what}: W&B gives no answer in {_PATIENCE:g} seconds.") from None
    why = (done.stderr.strip().splitlines() or [f"W&B ended with {done.returncode}"])[-1]
    if done.returncode and why == "no login":
        raise ConfigError(f"{what} needs a W&B login: {LOGIN}.")
    if done.returncode:
        raise ConfigError(f"{what}: {one_line(why)}")


def track(config: DictConfig, run_id: str, setting_id: str, path: Path) -> None:
    """Write a run to W&B, offline or online, from the file of its record. Wait for that at most 35 seconds.

    The W&B run's id is the run id, so that sending it twice makes one run. Its curves are plotted against epsilon, and
    can be against any of `AXES`. Without privacy they are plotted against the epoch, as no axis has a place for an
    infinite epsilon. After them come the record's final numbers, its diagnostics, and the record as an artifact.
    """
    if _mode(config) == TrackingMode.disabled:
        return
    message = json.dumps(_begin(config, run_id, setting_id) | {"record": str(path.resolve())})
    try:
        writer = subprocess.Popen(
            [sys.executable, "-m", "runner.tracking.writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=_environment(),
            process_group=0,  # Ctrl-C is for the run: the writer goes on
        )
    except OSError as error:  # no memory for another process
        _print_failure(error)
        return
    try:
        writer.communicate(message, _PATIENCE)
    except subprocess.TimeoutExpired:
        writer.kill()
        writer.wait()
        _print_failure(f"it has not ended after {_PATIENCE:g} seconds")
    else:
        if writer.returncode < 0:  # what fails by itself prints its own line
            _print_failure(f"its process was ended by {signal.Signals(-writer.returncode).name}")


def _begin(config: DictConfig, run_id: str, setting_id: str) -> Row:
    """Return what `wandb.init` is called with, what is plotted against what, and the width of histograms' bins."""
    from runner.training.diagnostics.gradients import BIN  # loads PyTorch, which only the run has

    tracking = config.tracking
    name = tracking.job_type or config.dataset.get("name") or bare_name(config.dataset._target_)
    # The overrides of its command that tell it from other runs of its experiment.
    alike = ("experiment", "sweeps", "scale", "seed", "runtime", "tracking", "hydra", "hydra/launcher", "title")
    words = [word for word in shlex.split(tracking.command or "")[3:] if not word.startswith("-")]
    varied = [word for word in words if re.split("[=.]", word)[0] not in alike]
    arguments = {
        "mode": tracking.mode.value,
        "project": tracking.project,
        "entity": tracking.entity,
        "dir": str(Path(tracking.directory).expanduser().resolve()),
        "id": run_id,
        "name": " ".join([name, *varied, f"seed {config.seed}", run_id[:6]])[:_LONGEST_NAME],
        "group": tracking.group,
        "job_type": tracking.job_type,
        "tags": [*tracking.tags, f"setting:{setting_id}", f"scale:{config.scale.name}"],
        "config": recorded_config(config),
    }
    axes = AXES if config.noise_multiplier != 0 else AXES[-1:]  # null: it is calibrated
    return {"init": arguments, "axes": axes, "bin": BIN}


def _print_failure(why: str | Exception, remedy: str = _WITHOUT) -> None:
    text = why if isinstance(why, str) else one_line(f"{type(why).__name__} {why}")
    print(f"tracking: W&B failed ({text}). {remedy}", file=sys.stderr, flush=True)


def _environment() -> dict[str, str]:
    """Return an environment with this package, a short patience of W&B's, none of its telemetry and messages."""
    places = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    defaults = {"WANDB_HTTP_TIMEOUT": "8", "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
    return defaults | os.environ | {"PYTHONPATH": os.pathsep.join(places)}


def main() -> int:
    """Write the run that the standard input tells of. Return the exit code, which is 1 if W&B failed."""
    signal.alarm(int(_PATIENCE))  # it ends then, whatever W&B does, also where the run has stopped waiting
    run: Any = None
    try:
        import wandb

        begin = json.load(sys.stdin)
        run = _start(wandb, begin)
        _write_record(wandb, run, Path(begin["record"]), begin["bin"])
        run.finish(exit_code=0)
        written = Path(run.dir).parent
        folder = written.parents[1]
        if folder.name.startswith(_UNFINISHED):  # to where W&B's commands look; one file that ends early stops them all
            written.rename(folder.parent / written.name)
            shutil.rmtree(folder, ignore_errors=True)
    except ImportError:
        print("tracking: wandb is not installed, so nothing is written for it.", file=sys.stderr)
    except Exception as error:
        folder = Path(getattr(run, "dir", "")).parent
        send = f"This sends the rest: wandb sync --include-online {shlex.quote(str(folder))}"
        _print_failure(error, send if folder.name.startswith("run-") else _WITHOUT)  # else "offline-run-"
        os._exit(1)  # at its end, W&B would wait for its server again
    return 0


def _start(wandb: Any, begin: Row) -> Any:
    folder = Path(begin["init"]["dir"]) / "wandb"
    folder.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        x_disable_stats=True,
        init_timeout=_GIVING_UP,
        finish_timeout=_GIVING_UP,
        finish_timeout_raises=True,
    )
    run = None
    if begin["init"]["mode"] == TrackingMode.online.value:
        try:
            run = wandb.init(**begin["init"], resume="allow", settings=settings)
        except Exception as error:
            _print_failure(error, "The run is written for `make wandb-sync`.")
    if run is None:
        offline = {"mode": TrackingMode.offline.value, "dir": tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder)}
        run = wandb.init(**begin["init"] | offline, settings=settings)
    for axis in begin["axes"]:
        run.define_metric(axis)  # against nothing but W&B's own counter
    run.define_metric("*", step_metric=begin["axes"][0])
    return run


def _write_record(wandb: Any, run: Any, path: Path, width: float) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    history: dict[str, list[Any]] = record["history"]
    for values in zip(*history.values(), strict=True):
        run.log(_finite(dict(zip(history, values, strict=True))))
    run.summary.update(_finite(record["final"]))
    artifact = wandb.Artifact(
        f"record-{record['run_id']}", type="record", metadata={"setting_id": record["setting_id"]}
    )
    artifact.add_file(str(path), policy="immutable")  # it stays where it is, and as it is
    run.log_artifact(artifact)
    weights = path.parents[1] / "models" / f"{record['run_id']}.pt"
    if weights.is_file():  # save_model=true
        model = wandb.Artifact(f"model-{record['run_id']}", type="model", metadata={"run_id": record["run_id"]})
        model.add_file(str(weights), policy="immutable")
        run.log_artifact(model)
    defined = set[str]()
    for axis, row in rows_of(wandb, record["diagnostics"], width):  # last: the most that W&B could stumble over
        for name in row.keys() - defined:
            run.define_metric(name, **({"hidden": True} if name == axis else {"step_metric": axis}))
        defined |= row.keys()
        run.log(row)


def _finite(values: Row) -> Row:
    """Round numbers as a record does, and leave out epsilons that are infinite or unknown, as no axis can show them."""
    numbers = {name: rounded(value, name) for name, value in values.items()}
    endless = {name for name, v in numbers.items() if name.startswith("epsilon") and math.isinf(upper_bound(v))}
    return {name: float(v) if v in ("inf", "-inf", "nan") else v for name, v in numbers.items() if name not in endless}


def rows_of(wandb: Any, diagnostics: Mapping[str, Any], width: float) -> Iterator[tuple[str, Row]]:
    """Yield the rows to log of a record's diagnostics, each with the name of the axis that it is plotted against.

    Numbers become curves, counts histograms, confusions images and tables. A table of all epochs is a separate row, at
    the last epoch.

    Args:
        wandb: the imported package.
        diagnostics: as recorded.
        width: of the bins of counts that have no range of their own.
    """
    for diagnostic, measured in diagnostics.items():
        if diagnostic == "per_class_accuracy":  # [epochs][classes]
            data = [[epoch, label, value] for epoch, row in enumerate(measured, 1) for label, value in enumerate(row)]
            table = wandb.Table(["epoch", "class", "accuracy"], data)
            yield f"{diagnostic}/epoch", {f"{diagnostic}/epoch": len(measured), diagnostic: table}
            continue
        (axis,) = (name for name in _DIAGNOSTIC_AXES if name in measured)
        columns = dict(_columns({name: column for name, column in measured.items() if name != axis}))
        for place, value in enumerate(measured[axis]):
            row: Row = {f"{diagnostic}/{axis}": value}
            for name, column in columns.items():
                if isinstance(column, list):
                    row |= _shown(wandb, f"{diagnostic}/{name}", column[place], width)
                elif place == 0:  # one for all epochs
                    row |= _shown(wandb, f"{diagnostic}/{name}", column, width)
            yield f"{diagnostic}/{axis}", row


def _columns(columns: Mapping[str, Any], folder: str = "") -> Iterator[tuple[str, Any]]:
    """Columns by path: what is measured of every layer is a mapping of columns."""
    for name, column in columns.items():
        if isinstance(column, dict) and "counts" not in column:
            yield from _columns(column, f"{folder}{name}/")
        else:
            yield f"{folder}{name}", column


def _shown(wandb: Any, name: str, value: Any, width: float) -> Row:
    """One measurement: a number, counts in bins of a width, {largest, counts}, or counts[true class][predicted]."""
    if isinstance(value, dict):
        counts = value["counts"]
        return {name: _histogram(wandb, counts, float(value["largest"]) / len(counts))}
    if not isinstance(value, list):
        return {name: value} if math.isfinite(float(value)) else {}
    if isinstance(value[0], list):
        cells = [[true, label, count] for true, row in enumerate(value) for label, count in enumerate(row)]
        table = wandb.Table(["true class", "predicted class", "examples"], cells)
        return {name: wandb.Image(_confusion(value)), f"{name}_table": table}
    return {name: _histogram(wandb, value, width)}


def _histogram(wandb: Any, counts: Sequence[int], width: float) -> Any:
    return wandb.Histogram(np_histogram=(list(counts), [width * edge for edge in range(len(counts) + 1)]))


def _confusion(counts: Sequence[Sequence[int]]) -> Any:
    """Draw a confusion matrix as a picture [height, width, 4]: colours are shares of each true class, cells counts."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.6), dpi=150, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.imshow([[count / max(1, sum(row)) for count in row] for row in counts], cmap="Blues", vmin=0, vmax=1)
    for true, row in enumerate(counts):
        for label, count in enumerate(row):
            if count:
                colour = "white" if 2 * count > sum(row) else "black"
                axes.text(label, true, str(count), ha="center", va="center", fontsize=6, color=colour)
    axes.set(xticks=range(len(counts)), yticks=range(len(counts)), xlabel="predicted class", ylabel="true class")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


if __name__ == "__main__":
    sys.exit(main())

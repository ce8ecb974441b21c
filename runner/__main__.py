"""`python -m runner`: one run, or a Hydra multirun of many.

Exit codes: 0 done (or done before), 1 a run failed, 2 the configuration cannot be run, 130 interrupted.
"""

from __future__ import annotations

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` is there to say it, an interruption just ends this

import atexit
import difflib
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.config import FIELDS, REPOSITORY, ConfigError, TrackingMode, register

register()

_ENDED: list[Path] = []  # the records of the runs that this process carried out, or found
STOPPED = "Stopped. What is recorded stays; the same command goes on from there."
_ALIKE = 0.75  # of two words, from which one may have been meant for the other
_SHOWN = 100  # runs of a table at the end, at most
_FRAMES = "\nException raised from"  # what some of PyTorch's messages go on with: a stack of C++
_TWICE = 1.0  # seconds within which one signal may come in two ways
_SILENCE = 10.0  # seconds without a word, after which a run says which step it is at


@hydra.main(version_base="1.3", config_path=str(REPOSITORY / "conf"), config_name="config")
def run(composed: DictConfig) -> None:
    """Carry out one composed config. In a sweep, says at once what failed; Hydra goes on and raises it at the end."""
    try:
        _run(composed)
    except KeyboardInterrupt as stopped:
        if HydraConfig.get().mode == RunMode.RUN:
            notes = getattr(stopped, "__notes__", ())
            _stop(f"Stopped. The same command {' and '.join(notes)}." if notes else "Stopped. Nothing was begun.", 130)
        raise
    except Exception as error:
        said, code = explained(error)
        if HydraConfig.get().mode == RunMode.RUN:
            _stop(said, code)
        print(f"runner: {one_line(said)}", file=sys.stderr)
        raise


def _run(composed: DictConfig) -> None:
    from runner.records.files import read_record, record_path, results_folder
    from runner.records.identity import identify, resolved
    from runner.records.jobs import command_of
    from runner.report.own import explain_command, result_text
    from runner.report.served import served
    from runner.runs.execute import execute
    from runner.runs.models import model_path
    from runner.speed.kernels import kernels_wanted, why_off
    from runner.terminal import Line, duration, epoch_text, part_done
    from runner.training.own import rests_on
    from runner.training.prepare import Run

    kernels_wanted()  # refuses an environment that asks for nothing known
    config = resolved(composed)
    choices = HydraConfig.get().runtime.choices
    overrides = HydraConfig.get().overrides
    folders = [text for text in overrides.hydra if text.startswith("hydra.searchpath=")]
    config.tracking.command = command_of([*overrides.task, *folders])
    config.tracking.job_type = config.tracking.job_type or choices.get("experiment")
    if choices.get("sweeps") and config.tracking.mode != TrackingMode.disabled:
        config.tracking.serves = served(results_folder(config), choices["sweeps"], config.tracking.job_type or "")
    line, started = Line(), time.monotonic()
    behind: list[float] = []  # how much of the run was done before this process went on with it
    for name in FIELDS:
        if not isinstance(config[name], DictConfig) and config[name] != composed[name]:
            line.keep(f"scale={config.scale.name}: {name} {config[name]} instead of {composed[name]}")

    def on_epoch(row: dict[str, float], run: Run) -> None:
        done = part_done(row, run.epochs, run.paid_for)
        behind.append(done * (1 - 1 / row["epoch"]))
        left = (time.monotonic() - started) * (1 - done) / (done - behind[0])
        line.show(f"{epoch_text(row, run.epochs, run.paid_for)} · {duration(left)} left")

    def on_step(epoch: int, step: int, run: Run) -> None:
        if line.silent > _SILENCE:
            line.show(f"epoch {epoch}, step {step} of {run.mechanism.steps_per_epoch}")

    def on_start(run: Run) -> None:
        until = f", or until {run.paid_for} updates are kept," if run.paid_for else ""
        steps = f"{run.epochs} epochs of {run.mechanism.steps_per_epoch} steps{until}"
        line.keep(f"run {identify(config)[0]}: {steps} on {run.device}")
        if config.delta * run.mechanism.examples >= 1:
            one_in = f"1/{run.mechanism.examples}, one over the number of examples"
            line.keep(f"delta={config.delta:g} is not below {one_in}: at so large a δ, ε promises none of them much")
        if run.device.type == "cpu" and (why := why_off()):
            line.keep(why)
        if run.unsound:
            line.keep(f"no sound ε is known: {run.unsound}")
        for believed in rests_on(run):
            line.keep(f"ε rests on {believed}")

    def on_record(path: Path) -> None:
        _ENDED.append(path)
        line.keep(result_text(read_record(path)))

    outcome = execute(config, on_epoch, on_start, on_step, on_record)
    run_id = identify(config)[0]
    path = record_path(results_folder(config), run_id)
    if outcome == "busy":
        line.keep(f"being computed by another process: {path}")
        return
    if outcome == "skipped":
        if path in _ENDED:  # as where scale=smoke takes few seeds for many
            line.keep(f"run {run_id}: shown above")
            return
        on_record(path)
        unsaved = config.save_model and not model_path(results_folder(config), run_id).exists()
        no_weights = ", so there are no weights to save" if unsaved else ""
        line.keep(f"already recorded{no_weights}; to run it again: runtime.results_root=FOLDER")
    if HydraConfig.get().mode == RunMode.RUN:
        line.keep(f"{path}: {explain_command(path)}")


def main() -> None:
    """Run Hydra, and turn what it raises into one sentence and an exit code."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise instead of printing: it is explained below
    from runner.data import DataError
    from runner.records.hydra_keys import judge
    from runner.records.options import check_options

    on_termination_as_on_interrupt()
    judge()
    try:
        check_options(sys.argv[1:])
    except ConfigError as error:
        _stop(str(error), 2)
    try:
        run()
    except KeyboardInterrupt as stopped:
        _stop(", and ".join([STOPPED.rstrip("."), *getattr(stopped, "__notes__", ())]) + ".", 130)
    except (ConfigError, DataError):
        _stop("a run of the sweep cannot be run as configured; the others are recorded.", 2)
    except Exception as error:
        said, code = explained(error)
        _stop(f"{said}; finished runs are recorded." if code == 1 else said, code)
    finally:
        _show_ended()


def _show_ended() -> None:
    """A table of the runs of a multirun, those recorded before included; of very many the last ones. Then a plot."""
    if len(_ENDED) > 1:
        from runner.records.files import read_record
        from runner.report.own import runs_text
        from runner.report.own_plot import drawn

        print(runs_text([read_record(path) for path in _ENDED[-_SHOWN:]]))
        if len(_ENDED) > _SHOWN:
            print(f"These are the last {_SHOWN} of {len(_ENDED)} runs.")
        if plot := drawn(_ENDED):
            print(f"Drawn: {plot}")


def explained(error: Exception) -> tuple[str, int]:
    """What is said of an error, and the exit code: 2 where the configuration cannot be run, 1 where a run failed."""
    from runner.data import DataError

    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return sentence(error), 2
    if isinstance(error, (ConfigError, DataError)):
        return str(error).partition(_FRAMES)[0], 2
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"failed, {type(error).__name__}: {error}{notes}", 1


def on_termination_as_on_interrupt() -> None:
    """Have SIGTERM raise KeyboardInterrupt, as SIGINT does; a second one of either ends the process at once.

    What ends with it needs no more time: records are written whole, and the processes of runs end with their parent.
    One that comes within `_TWICE` of the first is the first again: `make` passes on a SIGTERM that its whole group got.
    """

    def interrupt(number: int, frame: object) -> NoReturn:
        first = time.monotonic()

        def again(number: int, frame: object) -> None:
            if time.monotonic() > first + _TWICE:
                os._exit(130)

        for each in numbers:
            signal.signal(each, again)
        raise KeyboardInterrupt

    # A shell has SIGINT ignored in what it starts by "&", and that stays so.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    for each in numbers:
        signal.signal(each, interrupt)
    # When Python ends, handlers are gone before the process is: a SIGTERM that comes then would change its exit code.
    atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)


def sentence(error: BaseException) -> str:
    """What Hydra or OmegaConf has to say, in one line: the message of the innermost cause, and where."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).partition("Config search path:")[0].splitlines() if line.strip()]
    where = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key: ")), "")
    said = " ".join(line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=")))
    unknown = re.search(r"Key '(\S+)' (?:is not in struct|not in '\w+')", said)
    if unknown:
        hint = _fields(error, unknown[1]) or _options_with(where)
        hint = _options_named(unknown[1], sys.argv[1:]) or hint
        said = said.replace(unknown[0], f"there is no field '{unknown[1]}'") + hint
    said = re.sub(r"^Multiple values for (\w+)\..*: (\w+)'", r"\1 has a value already: write \1=\2 without +", said)
    if isinstance(error, MissingConfigException):
        missing, options = error.missing_cfg_file or "", error.options or ()
        said = _no_option(missing, options) if options else said + _nearest(missing)
    return f"{where}: {said}" if where and where not in said else said


def _no_option(missing: str, options: Sequence[str]) -> str:
    """Says that a group has no option of this name, which options it has, and which may have been meant."""
    group, _, name = missing.rpartition("/")
    near = difflib.get_close_matches(name, options, n=1)
    end = f". Did you mean {near[0]}?" if near else ""
    return f"{group} has no option {name!r}: choose from {', '.join(options)}{end}"


def _options_with(field: str) -> str:
    """Which options of a group have the field `group.name` that the chosen one has not."""
    group, _, name = field.partition(".")
    files = sorted((REPOSITORY / "conf" / group).glob("*.yaml")) if name else []
    options = [f"{group}={path.stem}" for path in files if name in OmegaConf.load(path)]
    return f". It belongs to {' and '.join(options)}" if options else ""


def _nearest(missing: str) -> str:
    """What an experiment or a sweep may have been meant to be: those are too many to list."""
    group, _, name = missing.partition("/")
    folder = {"experiment": REPOSITORY / "conf" / group, "sweeps": REPOSITORY / group}.get(group)
    if folder is None:
        return ""
    paths = sorted(path for path in folder.glob("*/*.yaml") if not path.stem.startswith("base_"))
    names = [path.relative_to(folder).with_suffix("").as_posix() for path in paths]
    near = difflib.get_close_matches(name, names, cutoff=0.5)
    return (
        f". Did you mean {' or '.join(near)}?" if near else f". They are the files of {folder.relative_to(REPOSITORY)}/"
    )


def _fields(error: BaseException, name: str) -> str:
    """Which field may have been meant, or all there are, in the part of the config where one was not found."""
    fields = [field for field in _names(error) if field != "hydra" and not field.startswith("_")]
    parent: Any = getattr(error, "parent_node", None)
    inside = [f"{group}.{name}" for group in fields if isinstance(parent[group], DictConfig) and name in parent[group]]
    near = inside or difflib.get_close_matches(name, fields, n=1, cutoff=_ALIKE)
    if near:
        return f". Did you mean {near[0]}?"
    more = ", and with a + before it whatever else its class takes" if "_target_" in _names(error) else ""
    return f". There are {', '.join(fields)}{more}" if fields else ""


def _names(error: BaseException) -> list[str]:
    """The fields of the part of the config that an error is about."""
    return [str(field) for field in getattr(error, "parent_node", None) or ()]


def _options_named(field: str, overrides: Sequence[str]) -> str:
    """Which groups have the option that was asked of one that is not there: `model=resnet` is an architecture."""
    values = [value for name, _, value in (text.partition("=") for text in overrides) if name == field and value]
    paths = sorted((REPOSITORY / "conf").glob("*/*.yaml")) if values else []
    options = [f"{path.parent.name}={path.stem}" for path in paths if values[0] in path.stem.split("_")]
    return f". Did you mean {' or '.join(options[:3])}?" if options else ""


def one_line(text: str) -> str:
    """Any text without its line breaks."""
    return " ".join(text.split())


def _stop(text: str, code: int) -> NoReturn:
    print(f"runner: {one_line(text)}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()

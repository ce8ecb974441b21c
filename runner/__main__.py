"""`python -m runner`: one run, or a Hydra multirun of many.

Exit codes: 0 done (or done before), 1 a run failed, 2 the configuration cannot be run, 130 interrupted.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runner.config import FIELDS, REPOSITORY, ConfigError, register

register()

STOPPED = "Stopped. Finished runs are recorded; the same command goes on from there."
_SILENCE = 10.0  # seconds without a word, after which a run says which step it is at


@hydra.main(version_base="1.3", config_path=str(REPOSITORY / "conf"), config_name="config")
def run(composed: DictConfig) -> None:
    """Carry out one composed config. In a sweep, says at once what failed; Hydra goes on and raises it at the end."""
    from runner.data.datasets import DataError

    try:
        _run(composed)
    except Exception as error:
        refused = isinstance(error, (ConfigError, DataError))
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        said = str(error) if refused else f"failed, {type(error).__name__}: {error}{notes}"
        if HydraConfig.get().mode == RunMode.RUN:
            _stop(said, 2 if refused else 1)
        print(f"runner: {one_line(said)}", file=sys.stderr)
        raise


def _run(composed: DictConfig) -> None:
    from runner.runs.execute import execute
    from runner.runs.identity import identify, resolved
    from runner.runs.records import record_path, results_folder
    from runner.terminal import Line, duration, epoch_text, part_done
    from runner.training.prepare import Run

    config = resolved(composed)
    config.tracking.job_type = config.tracking.job_type or HydraConfig.get().runtime.choices.get("experiment")
    line, started = Line(), time.monotonic()
    for name in FIELDS:
        if not isinstance(config[name], DictConfig) and config[name] != composed[name]:
            line.keep(f"scale={config.scale.name}: {name} {config[name]} instead of {composed[name]}")

    def on_epoch(row: dict[str, float], run: Run) -> None:
        left = (time.monotonic() - started) * (1 / part_done(row, run.epochs, run.paid_for) - 1)
        line.show(f"{epoch_text(row, run.epochs, run.paid_for)} · {duration(left)} left")

    def on_step(epoch: int, step: int, run: Run) -> None:
        if line.silent > _SILENCE:
            line.show(f"epoch {epoch}, step {step} of {run.mechanism.steps_per_epoch}")

    def on_start(run: Run) -> None:
        until = f", or until {run.paid_for} updates are kept," if run.paid_for else ""
        steps = f"{run.epochs} epochs of {run.mechanism.steps_per_epoch} steps{until}"
        line.keep(f"run {identify(config)[0]}: {steps} on {run.device}")

    outcome = execute(config, on_epoch, on_start, on_step)
    path = record_path(results_folder(config), identify(config)[0])
    explained = {"skipped": "already recorded", "busy": "being computed by another process"}.get(outcome, outcome)
    line.keep(f"{explained}: {path}")


def main() -> None:
    """Run Hydra, and turn what it raises into one sentence and an exit code."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise instead of printing: it is explained below
    from runner.data.datasets import DataError

    on_termination_as_on_interrupt()
    try:
        run()
    except KeyboardInterrupt:
        _stop(STOPPED, 130)
    except (HydraException, OmegaConfBaseException) as error:
        _stop(sentence(error), 2)
    except (ConfigError, DataError):
        _stop("a run of the sweep cannot be run as configured; the others are recorded.", 2)
    except Exception as error:
        if "Config group override must be a string" in str(error):  # Hydra's word for a group that is set to null
            _stop(_no_group(sys.argv[1:]), 2)
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        _stop(f"failed, {type(error).__name__}: {error}{notes}; finished runs are recorded.", 1)


def on_termination_as_on_interrupt() -> None:
    """Have SIGTERM raise KeyboardInterrupt, as SIGINT does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


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


def _no_group(overrides: Sequence[str]) -> str:
    """Says how to do without a group that was set to null."""
    nulls = [name for name, _, value in (text.partition("=") for text in overrides) if value in ("null", "None", "")]
    groups = [name for name in nulls if (REPOSITORY / "conf" / name).is_dir()]
    named = groups[0] if groups else "a group"
    return f"{named} cannot be null: leave it out, or where an experiment chooses one, take it away with ~{named}"


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
    fields = [str(field) for field in getattr(error, "parent_node", None) or ()]
    fields = [field for field in fields if field != "hydra" and not field.startswith("_")]
    near = difflib.get_close_matches(name, fields, n=1)
    if near:
        return f". Did you mean {near[0]}?"
    return f". There are {', '.join(fields)}" if fields else ""


def one_line(text: str) -> str:
    """Any text without its line breaks."""
    return " ".join(text.split())


def _stop(text: str, code: int) -> NoReturn:
    print(f"runner: {one_line(text)}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()

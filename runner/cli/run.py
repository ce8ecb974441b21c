"""One run, or a Hydra multirun of many: `python -m runner`.

Exit codes: 0 done (or done before), 1 a run failed, 2 the configuration cannot be run, 130 interrupted.
"""

import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from runner.cli.commands import STOPPED
from runner.cli.errors import explained
from runner.config import BUDGETS, FIELDS, REPOSITORY, ConfigError, register
from runner.terminal import one_line

register()

_ENDED: list[Path] = []  # the records of the runs that this process carried out, or found
_whole_errors = False  # HYDRA_FULL_ERROR=1 asks for the traceback, too
_LONGEST_GROUP = 128  # characters of a group's name in W&B
_SHOWN = 100  # runs of a table at the end, at most


@hydra.main(version_base="1.3", config_path=str(REPOSITORY / "conf"), config_name="config")
def run(composed: DictConfig) -> None:
    try:
        _run(composed)
    except KeyboardInterrupt as stopped:
        if HydraConfig.get().mode == RunMode.RUN:
            notes = getattr(stopped, "__notes__", ())
            _stop(f"Stopped. The same command {' and '.join(notes)}." if notes else "Stopped. Nothing was begun.", 130)
        raise
    except Exception as error:
        message, code = explained(error)
        if _whole_errors:
            traceback.print_exc()
        if HydraConfig.get().mode == RunMode.RUN:
            _stop(message, code)
        print(f"runner: {one_line(message)}", file=sys.stderr)
        raise


def _run(composed: DictConfig) -> None:
    from runner.config.options import check_budgets
    from runner.records.disk import find_record, read_record, results_folder, use_own_folder
    from runner.records.identity import identify, resolved
    from runner.records.jobs import command_of
    from runner.report.listing import explain_command, result_text
    from runner.runs.execute import execute
    from runner.runs.models import model_path
    from runner.speed.kernels import kernels_wanted, why_off
    from runner.terminal import Line, duration, epoch_text, part_done
    from runner.training.run import Run

    kernels_wanted()  # refuses an environment that asks for nothing known
    choices, overrides = HydraConfig.get().runtime.choices, HydraConfig.get().overrides
    check_budgets(composed, overrides.task)
    config = resolved(composed)
    use_own_folder(config, overrides.task)
    folders = [text for text in overrides.hydra if text.startswith("hydra.searchpath=")]
    folders += [f"--config-dir={source.path}" for source in HydraConfig.get().runtime.config_sources
                if source.provider == "command-line"]  # fmt: skip
    config.tracking.command = command_of([*overrides.task, *folders])
    config.tracking.job_type = config.tracking.job_type or choices.get("experiment")
    if config.tracking.group is None and HydraConfig.get().mode == RunMode.MULTIRUN:
        config.tracking.group = " ".join(text for text in sys.argv[1:] if "=" in text)[:_LONGEST_GROUP]
    line, started = Line(), time.monotonic()
    behind: list[float] = []  # the part of the run that was done before this process resumed it

    def show_epoch(row: dict[str, float], run: Run) -> None:
        done = part_done(row, run.epochs, run.paid_for)
        behind.append(done * (1 - 1 / row["epoch"]))
        left = (time.monotonic() - started) * (1 - done) / (done - behind[0])
        line.show(f"{epoch_text(row, run.epochs, run.paid_for)} · {duration(left)} left")

    def show_step(epoch: int, step: int, run: Run) -> None:
        if line.silent:
            line.show(f"epoch {epoch}, step {step} of {run.mechanism.steps_per_epoch}")

    def show_start(run: Run) -> None:
        for name in FIELDS:
            follows = name == "examples" or (config.sound_epsilon is not None and name in BUDGETS)
            if not (follows or isinstance(config[name], DictConfig)) and config[name] != composed[name]:
                limited = "null" if config[name] is None else config[name]
                line.keep(f"scale={config.scale.name}: {name} {limited} instead of {composed[name]}")
        until = f", or until {run.paid_for} updates are kept," if run.paid_for else ""
        steps = f"{run.epochs} epochs of {run.mechanism.steps_per_epoch} steps{until}"
        line.keep(f"run {identify(config)[0]}: {steps} on {run.device}")
        if config.sound_epsilon is not None:
            noise = f"noise multiplier {run.mechanism.noise_multiplier:.4f}"
            line.keep(f"{noise}, which costs a sound ε of at most {config.sound_epsilon:g} at δ={config.delta:g}")
        if run.device.type == "cpu" and (why := why_off()):
            line.keep(why)
        if run.unsound:
            line.keep(f"no sound ε is known: {run.unsound}")
        for believed in run.rests_on:
            line.keep(f"ε rests on {believed}")

    def show_record(path: Path) -> None:
        _ENDED.append(path)
        line.keep(result_text(read_record(path)))

    outcome = execute(config, show_epoch, show_start, show_step, show_record)
    run_id = identify(config)[0]
    path = find_record(results_folder(config), run_id)
    if outcome == "busy":
        line.keep(f"being computed by another process: {path}")
        return
    if outcome == "skipped":
        if path in _ENDED:  # for example because scale=smoke reduces the seeds
            line.keep(f"run {run_id}: shown above")
            return
        show_record(path)
        unsaved = config.save_model and not model_path(results_folder(config), run_id).exists()
        no_weights = ", so there are no weights to save" if unsaved else ""
        again = f"{config.tracking.command} runtime.results_root=again"
        line.keep(f"already recorded{no_weights}; to run it again: {again}")
    if HydraConfig.get().mode == RunMode.RUN:
        line.keep(f"{path}: {explain_command(read_record(path), path.parent.parent)}")


def main() -> None:
    global _whole_errors
    _whole_errors = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise instead of printing, for the explanation below
    from runner.config.loader import use_loader
    from runner.config.options import arranged, check_options
    from runner.data import DataError

    use_loader()
    try:
        check_options(sys.argv[1:])
        sys.argv[1:] = arranged(sys.argv[1:])
    except ConfigError as error:
        _stop(str(error), 2)
    try:
        run()
    except KeyboardInterrupt as stopped:
        _stop(", and ".join([STOPPED.rstrip("."), *getattr(stopped, "__notes__", ())]) + ".", 130)
    except (ConfigError, DataError):
        _stop("a run of the sweep cannot be run as configured; the others are recorded.", 2)
    except Exception as error:
        message, code = explained(error)
        _stop(f"{message}; finished runs are recorded." if code == 1 else message, code)
    finally:
        if len(_ENDED) > 1:  # a table of the runs of a multirun, with earlier ones
            from runner.records.disk import read_record
            from runner.report.listing import records_text

            lines = [records_text([read_record(path) for path in _ENDED[-_SHOWN:]])]
            if len(_ENDED) > _SHOWN:
                lines.append(f"These are the last {_SHOWN} of {len(_ENDED)} runs.")
            with suppress(OSError):  # it is not read, and all runs are recorded
                print("\n".join(lines), flush=True)


def _stop(text: str, code: int) -> NoReturn:
    print(f"runner: {one_line(text)}", file=sys.stderr)
    sys.exit(code)

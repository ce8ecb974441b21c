"""Launchers, which execute many runs: on this machine, on a Slurm cluster, on a Ray cluster.

A command names one by its file in conf/launcher/, with `launcher.` overrides.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from hydra.utils import get_class
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError
from yaml import YAMLError

from runner.config import REPOSITORY, ConfigError, options_of
from runner.launch.processes import Tally, Work
from runner.records.disk import recorded
from runner.terminal import Line, nearest, one_line

__all__ = ["Launcher", "Tally", "Work", "launcher_of", "run_jobs"]


class Launcher(Protocol):
    """Carries jobs out. Its options are in its file in conf/launcher/, and are no part of a run."""

    def carry_out(self, work: Work, line: Line) -> Tally:
        """Execute jobs without records. A failed job stops no other."""


def run_jobs(launcher: Launcher, work: Work, line: Line) -> Tally:
    """Carry out the jobs without records. The tally counts the others as recorded."""
    done = {job.run_id: job for job in work.jobs if recorded(job.config)}
    left = [job for job in work.jobs if job.run_id not in done]
    tally = launcher.carry_out(replace(work, jobs=left), line) if left else Tally()
    tally.recorded[:0] = done.values()
    return tally


def launcher_of(name: str, overrides: Sequence[str] = ()) -> Launcher:
    """Return the launcher of a file in conf/launcher/, with the options in `overrides`, ready to carry jobs out.

    Raises:
        ConfigError: there is no such launcher, an option is wrong, or a program or package is missing.
    """
    if name not in (names := options_of("launcher")):
        raise ConfigError(f"There is no launcher {name!r}: choose from {', '.join(names)}.")
    for text in overrides:
        if "=" not in text:
            raise ConfigError(f"launcher.{text} has no value: write launcher.{text}=VALUE.")
    defaults: Any = OmegaConf.load(REPOSITORY / "conf" / "launcher" / f"{name}.yaml")
    launcher: type[Launcher] = get_class(defaults.pop("_target_"))
    try:
        merged = OmegaConf.merge(defaults, OmegaConf.from_dotlist(list(overrides)))
        options: Any = OmegaConf.to_container(merged, resolve=True)
        return launcher(**options)
    except (IndexError, OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"launcher {name}: {one_line(str(error))}") from error
    except ValidationError as error:
        first = error.errors()[0]
        option, reason = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        if first["type"] == "unexpected_keyword_argument":
            reason = f"there is no such option. {nearest(option, defaults)}" if defaults else "it has no options."
        raise ConfigError(": ".join(part for part in (f"launcher {name}", option, reason) if part)) from error

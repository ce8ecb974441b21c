"""The launcher that a command names, made of its file in conf/launcher/ and of the command's `launcher.` overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from runner.config import REPOSITORY, ConfigError, options_of
from runner.launch.interface import Launcher

_PREFIX = "launcher."


def split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate overrides of the launcher (`launcher.partition=gpu`), without their prefix, from overrides of runs."""
    ours = [text.removeprefix(_PREFIX) for text in overrides if text.startswith(_PREFIX)]
    return ours, [text for text in overrides if not text.startswith(_PREFIX)]


def launcher_of(name: str, overrides: Sequence[str] = (), *, wait: bool = True) -> Launcher:
    """Return the launcher of a file in conf/launcher/, with the options in `overrides`, ready to carry jobs out.

    `wait` is False if the command does not wait until all jobs are done.

    Raises:
        ConfigError: there is no such launcher, an option is wrong, or a program or package is missing. Or it needs the
            command to wait.
    """
    if name not in (known := options_of("launcher")):
        raise ConfigError(f"There is no launcher {name!r}: choose from {', '.join(known)}.")
    options: Any = OmegaConf.load(REPOSITORY / "conf" / "launcher" / f"{name}.yaml")
    there_are = [option for option in options if option != "_target_"]
    for text in overrides:
        option, equals, _ = text.partition("=")
        if option not in there_are or not equals:
            listed = f"its options are {', '.join(there_are)}" if there_are else "it has no options"
            raise ConfigError(f"launcher.{text} sets no option of the launcher {name}: {listed}.")
    try:
        launcher: Launcher = instantiate(OmegaConf.merge(options, OmegaConf.from_dotlist(list(overrides))))
    except InstantiationException as error:
        raise ConfigError(f"launcher {name}: {error.__cause__ or error}") from error
    launcher.check(wait)
    return launcher

"""The launcher that a command names, made of its file in conf/launcher/ and of the command's `launcher.` overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError
from yaml import YAMLError

from runner.config import REPOSITORY, ConfigError, options_of
from runner.launch.interface import Launcher
from runner.terminal import nearest, one_line

_PREFIX = "launcher."


def split(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate overrides of the launcher (`launcher.partition=gpu`), without their prefix, from overrides of runs."""
    ours = [text.removeprefix(_PREFIX) for text in overrides if text.startswith(_PREFIX)]
    return ours, [text for text in overrides if not text.startswith(_PREFIX)]


def launcher_of(name: str, overrides: Sequence[str] = ()) -> Launcher:
    """Return the launcher of a file in conf/launcher/, with the options in `overrides`, ready to carry jobs out.

    Raises:
        ConfigError: there is no such launcher, an option is wrong, or a program or package is missing.
    """
    if name not in (known := options_of("launcher")):
        raise ConfigError(f"There is no launcher {name!r}: choose from {', '.join(known)}.")
    for text in overrides:
        if "=" not in text:
            raise ConfigError(f"launcher.{text} has no value: write launcher.{text}=VALUE.")
    options: Any = OmegaConf.load(REPOSITORY / "conf" / "launcher" / f"{name}.yaml")
    kind: type[Launcher] = get_class(options.pop("_target_"))
    try:
        merged = OmegaConf.merge(options, OmegaConf.from_dotlist(list(overrides)))
        chosen: Any = OmegaConf.to_container(merged, resolve=True)
        return kind(**chosen)
    except (IndexError, OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"launcher {name}: {one_line(str(error))}") from error
    except ValidationError as error:
        first = error.errors()[0]
        option, said = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        if first["type"] == "unexpected_keyword_argument":
            said = f"there is no such option. {nearest(option, options)}" if options else "it has no options."
        raise ConfigError(": ".join(part for part in (f"launcher {name}", option, said) if part)) from error

"""The `_target_`s of a config, which name classes and functions, and their import."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from hydra.utils import get_object

from runner.config import ConfigError
from runner.data.reading import reproducible
from runner.terminal import nearest

LIBRARIES = ("runner", "torch", "torchvision", "opacus")  # their classes are not a user's

logging.getLogger("hydra.utils").addFilter(lambda _: False)  # what it says of a class, a ConfigError says


def targets(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every `_target_` of a config's plain values, nested ones too, as (its place, its value)."""
    if isinstance(content, dict):
        for name, value in content.items():
            inner = f"{place}.{name}" if place else str(name)
            if name == "_target_":
                yield inner, value
            yield from targets(value, inner)
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from targets(value, f"{place}[{index}]")


def own_targets(content: Any) -> list[str]:
    """Return the `_target_`s of a config's plain values that are neither of this package nor of PyTorch."""
    return [target for _, target in targets(content) if target.partition(".")[0] not in ("runner", "torch")]


def bare_name(target: str) -> str:
    """Return the last part of a dotted path: `Flat` for `runner.clipping.Flat`."""
    return target.rpartition(".")[2]


def import_target(place: str, target: Any) -> Any:
    """Import the class or function that a `_target_` names; `place` is its place in the config, for messages.

    Raises:
        ConfigError: it names no class or function, or cannot be imported.
    """
    if not isinstance(target, str) or "." not in target or "/" in target or target.endswith(".py"):
        raise ConfigError(f"{place}={target} names no class: write it as mymodule.NameOfTheClass.")
    top, module = target.partition(".")[0], target.rpartition(".")[0]
    if top == "__main__":
        raise ConfigError(
            f"{place}={target} is not in a file, so no record could identify it: put it into a file next to the "
            f"command, and name it mymodule.{bare_name(target)}."
        )
    is_users_file = top not in (*LIBRARIES, *sys.modules)  # it may read data when it is loaded
    try:
        with reproducible() if is_users_file else nullcontext():
            imported = get_object(target)
    except (Exception, SystemExit) as error:  # the module may even end its process
        cause = error.__cause__ or error
        if isinstance(cause, ModuleNotFoundError) and cause.name == target and module in sys.modules:
            names = [
                key
                for key, value in vars(sys.modules[module]).items()
                if (inspect.isclass(value) or inspect.isfunction(value))
                and not value.__name__.startswith("_")
                and f"{value.__module__}.".startswith(f"{module}.")  # defined there or below
            ]
            name = bare_name(target)
            raise ConfigError(f"{place}={target}: {module} has no {name}. {nearest(name, names)}") from error
        if isinstance(cause, ModuleNotFoundError) and cause.name == top:
            raise ConfigError(f"{place}={target}: there is no {top}.py in the folder where you start.") from error
        raise ConfigError(f"{place}={target} cannot be imported: {type(cause).__name__}: {cause}") from error
    if not callable(imported):
        raise ConfigError(f"{place}={target} names no class: write it as {target}.NameOfTheClass.")
    return imported

"""Checks of the `_target_`s of a config, which name classes and functions, before one of them is called.

A config may name a class of PyTorch or of this package that its group takes: `runner.config` states the type next to
the field. It may name a function of `runner.networks` that returns a network, and whatever else can be imported, such
as a class in the folder where the command was started. What a config must not call is Hydra's own policy.
"""

from __future__ import annotations

import inspect
import logging
import sys
import typing
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from runner.config import FIELDS, ConfigError
from runner.data.reading import reproducible
from runner.terminal import nearest

LIBRARIES = ("runner", "torch", "torchvision", "opacus")  # their classes are not a user's
_NETWORK = "torch.nn.Module"

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


def check_targets(config: DictConfig, group: str) -> None:
    """Check every `_target_` in a group of a config, at any depth.

    Raises:
        ConfigError: a target names no class or function, cannot be imported, or its group takes another type.
    """
    for place, target in targets(OmegaConf.to_container(config[group], resolve=True), group):
        if not isinstance(target, str) or "." not in target or "/" in target or target.endswith(".py"):
            raise ConfigError(f"{place}={target} names no class: write it as mymodule.NameOfTheClass.")
        if target.partition(".")[0] == "__main__":
            raise ConfigError(
                f"{place}={target} is not in a file, so no record could identify it: put it into a file next to the "
                f"command, and name it mymodule.{bare_name(target)}."
            )
        named, taken = _imported(place, target), FIELDS[group].takes if group in FIELDS else None
        if not callable(named):
            raise ConfigError(f"{place}={target} names no class: write it as {target}.NameOfTheClass.")
        in_library = str(named.__module__).partition(".")[0] in LIBRARIES
        if place == f"{group}._target_" and taken is not None and in_library and not _is_taken(named, taken):
            raise ConfigError(f"{place}={target} is no {taken}, which this group takes.")


def _imported(place: str, target: str) -> Any:
    loads = target.partition(".")[0] not in (*LIBRARIES, *sys.modules)  # a user's file, which may read data at its top
    try:
        with reproducible() if loads else nullcontext():
            return get_object(target)
    except (Exception, SystemExit) as error:  # the module may even end its process
        cause = error.__cause__ or error
        module, _, name = target.rpartition(".")
        if isinstance(cause, ModuleNotFoundError) and cause.name == target and module in sys.modules:
            there = [each for each, value in vars(sys.modules[module]).items() if _is_from(value, module)]
            raise ConfigError(f"{place}={target}: {module} has no {name}. {nearest(name, there)}") from error
        top = target.partition(".")[0]
        if isinstance(cause, ModuleNotFoundError) and cause.name == top:
            raise ConfigError(f"{place}={target}: there is no {top}.py in the folder where you start.") from error
        raise ConfigError(f"{place}={target} cannot be imported: {type(cause).__name__}: {cause}") from error


def _is_from(value: Any, module: str) -> bool:
    """Return True if a module, or one below it, defines a class or function for others."""
    named = inspect.isclass(value) or inspect.isfunction(value)
    return named and not value.__name__.startswith("_") and f"{value.__module__}.".startswith(f"{module}.")


def _is_taken(named: Any, taken: str) -> bool:
    """Return True if a class of a library is of the type that a group takes, or a function of it makes a network."""
    if inspect.isfunction(named):
        return taken == _NETWORK and named.__module__.startswith("runner.networks.") and _returns_a_network(named)
    return _is_a(named, get_object(taken))


def _is_a(named: type, kind: Any) -> bool:
    """Return True if a class is a subclass of another, or has the methods and properties of a protocol."""
    if not getattr(kind, "_is_protocol", False):
        return issubclass(named, kind)
    asked = [name for name in vars(kind) if not name.startswith("_") or name == "__call__"]
    fields = getattr(named, "__dataclass_fields__", ())  # values, not methods, whatever their names
    return all(name not in fields and any(name in vars(each) for each in named.__mro__) for name in asked)


def _returns_a_network(function: Any) -> bool:
    from torch import nn  # not at the top: commands that only read configs need no PyTorch, which takes seconds

    returned = typing.get_type_hints(function).get("return")
    return inspect.isclass(returned) and issubclass(returned, nn.Module)
